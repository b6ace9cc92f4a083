"""Merge rows that are several right answers to one input into one record with references, for evaluation."""

import itertools

import numpy as np

from t5prep.dataset import tfrecord
from t5prep.prepare.record_layouts import Range


def merged(records: Range) -> Range:
    """Return the records with neighbours of one id made one: the first row's, with the references of all.

    The order of references is that of the rows; no reference stands twice.
    """
    entries, data = records
    positions = entries[["high", "low"]]
    starts = [0, *(np.flatnonzero(positions[1:] != positions[:-1]) + 1).tolist()]
    if len(starts) >= len(entries):
        return records
    ends = np.cumsum(entries["size"], dtype=np.int64).tolist()
    sizes = entries["size"].tolist()
    first, pieces = [], []
    for begin, end in itertools.pairwise([*starts, len(entries)]):
        group = sorted(range(begin, end), key=lambda at: int(entries["row"][at]))
        bodies = [tfrecord.payload(data, ends[at] - sizes[at], ends[at]) for at in group]
        references = [reference for body in bodies for reference in tfrecord.raw_features(body).get("references", [])]
        first.append(group[0])
        pieces.append(tfrecord.frame(tfrecord.with_bytes(bodies[0], "references", list(dict.fromkeys(references)))))
    kept = entries[first]
    kept["size"] = [len(piece) for piece in pieces]
    kept["begin"] = np.cumsum(kept["size"], dtype=np.uint64) - kept["size"]
    return Range(kept, b"".join(pieces))
