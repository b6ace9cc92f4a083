"""Leave out records of a range that get no record of their own: near-duplicates, duplicates, and those of another split.

Each function takes the records that runs have in one range and an order of them, `int[n]`, and returns the order without
some, and for each of those its source file and its finished JSON line.
"""

import collections
import json
from collections.abc import Iterable, Sequence

import numpy as np

from t5prep.dataset import tfrecord
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.sorted_runs import Gathered

# The order without some records, and the source file and the JSON line of each of these.
Rest = tuple[np.ndarray, list[tuple[str, bytes]]]


class LeftOut:
    """Collect the rows of a shard that get no record of their own.

    Lines are ordered by the step that left them out, then by position: so they do not depend on the ranges in which a shard
    is written, which follow from the memory there is.
    """

    def __init__(self) -> None:
        self._lines = collections.defaultdict[int, list[bytes]](list)
        self.duplicates, self.reasons = collections.Counter[str](), collections.Counter[str]()
        self.merged = 0

    def add(self, reason: str, dropped: Iterable[tuple[str, bytes]], *, step: int) -> None:
        """Take the source file and the JSON line of each, which a step left out of the next range."""
        for file, line in dropped:
            self.duplicates[file] += 1
            self.reasons[reason] += 1
            self._lines[step].append(line)

    def lines(self) -> bytes:
        """Return all lines."""
        return b"".join(line for step in sorted(self._lines) for line in self._lines[step])


def without_repeats(order: np.ndarray, records: Gathered, repeats: Repeats, *, files: Sequence[str]) -> Rest:
    """Leave out rows that repeat another one."""
    if not len(repeats.dropped):
        return order, []
    repeated = {(row["file"], row["row"]): row for row in repeats.dropped.to_pylist()}
    keep, lines = np.ones(len(order), bool), []
    for place in np.flatnonzero(np.isin(records.entries["high"][order], repeats.dropped["high"].to_numpy())).tolist():
        i = order[place]
        file, row = _place(records, i, files)
        if kept := repeated.get((file, row)):
            keep[place] = False
            reason = (
                f"near duplicate: kept is {kept['kept_file']}:{kept['kept_row']}, id {kept['kept_id']} "
                f"(Jaccard similarity {kept['similarity']:.2f})"
            )
            lines.append(_line(file, row, records.record(i), reason))
    return order[keep], lines


def without_duplicates(
    order: np.ndarray, records: Gathered, *, keys: Sequence[str], same: str, files: Sequence[str]
) -> Rest:
    """Leave one record for equal keys: the one with the smallest bytes, whoever came first."""
    entries = records.entries
    equal = np.zeros(len(order) + 1, bool)
    equal[1:-1] = np.all([entries[key][order[1:]] == entries[key][order[:-1]] for key in keys], axis=0)
    if not equal.any():
        return order, []
    keep, lines = np.ones(len(order), bool), []
    begin = 0
    while begin < len(order):
        end = begin + 1
        while equal[end]:
            end += 1
        if end - begin > 1:
            rivals = [(records.record(i), *_place(records, i, files), i) for i in order[begin:end]]
            (_, file, row, winner), *others = sorted(rivals)
            keep[begin:end] = order[begin:end] == winner
            lines += [
                _line(other_file, other_row, other, f"duplicate {same}: kept is {file}:{row}")
                for other, other_file, other_row, _ in others
            ]
        begin = end
    return order[keep], lines


def without_leaks(
    order: np.ndarray, records: Gathered, others: Gathered | None, reason: str, *, files: Sequence[str]
) -> Rest:
    """Leave out records whose position another split has, of which `others` are the records."""
    if others is None:
        return order, []
    taken = set(zip(*(others.entries[key].tolist() for key in ("high", "low")), strict=True))
    here = zip(*(records.entries[key][order].tolist() for key in ("high", "low")), strict=True)
    keep = np.fromiter((position not in taken for position in here), bool, len(order))
    lines = []
    for i in order[~keep]:
        file, row = _place(records, i, files)
        lines.append(_line(file, row, records.record(i), reason))
    return order[keep], lines


def _place(records: Gathered, i: int, files: Sequence[str]) -> tuple[str, int]:
    return files[int(records.entries["file"][i])], int(records.entries["row"][i])


def _line(file: str, row: int, record: bytes, reason: str) -> tuple[str, bytes]:
    (id,) = tfrecord.parse(tfrecord.payload(record))["id"]
    assert isinstance(id, bytes)
    line = {"file": file, "row": row, "id": id.decode("utf-8", "surrogatepass"), "reason": reason}
    return file, json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
