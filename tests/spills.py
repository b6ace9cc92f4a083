"""Make a sorted spill from records that a test names."""

from collections.abc import Mapping, Sequence

import numpy as np

from t5prep.dataset import tfrecord
from t5prep.prepare.block_sorter import SortedSpill
from t5prep.prepare.sorted_runs import INDEX_ENTRY


def framed(id: str, **features: list[int]) -> bytes:
    """Return one framed record with an id and lists of integers."""
    packed = {name: tfrecord.varints(np.array(values, np.int64))[0] for name, values in features.items()}
    entries = [tfrecord.bytes_feature("id", [id.encode()])]
    entries += [tfrecord.int64_feature(name, data) for name, data in sorted(packed.items())]
    return tfrecord.frame(tfrecord.example(b"".join(entries)))


# The files that records of tests come from; an entry has the number of its file.
FILES = ("f", "large", "small")


def spill_of(
    splits: Mapping[str, Sequence[tuple[int, bytes]]], *, file: str = "f", first_row: int = 1, path: str = ""
) -> SortedSpill:
    """Return a spill with some records in each split, each with the high half of its position (and 0 as the low half).

    With a path, its bytes are in that file.
    """
    records, bounds, sizes = [], {}, {}
    for split, own in splits.items():
        bounds[split] = len(records), len(records) + len(own)
        sizes[split] = sum(len(record) for _, record in own)
        records += sorted(own)
    entries = np.zeros(len(records), INDEX_ENTRY)
    entries["high"] = np.array([high for high, _ in records], np.uint64)
    entries["file"] = FILES.index(file)
    entries["row"] = np.arange(len(records)) + first_row
    entries["size"] = [len(record) for _, record in records]
    entries["begin"] = np.cumsum(entries["size"]) - entries["size"]
    data = entries.tobytes() + b"".join(record for _, record in records)
    if path:
        with open(path, "wb") as opened:
            opened.write(data)
    rows = len(records)
    return SortedSpill(file, first_row, rows, rows, bounds, sizes, b"", {}, path=path, data=b"" if path else data)
