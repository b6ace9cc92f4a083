"""Find the records in blocks of a TFRecord file, many blocks at once: the hot path of reading with an index."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t5prep._native import cut_blocks

# Where a record lies: its bytes are [begin, begin + size) of a block. native/records.h has the same fields.
PLACE = np.dtype([("block", np.int64), ("begin", np.int64), ("size", np.int64)])


class Records(NamedTuple):
    """Name serialized records by their places in blocks of bytes: `places` is PLACE[...]. No record is copied."""

    blocks: Sequence[bytes]
    places: np.ndarray

    def serialized(self) -> list[bytes]:
        """Return the records, one after the other."""
        places = self.places.ravel()
        columns = (places[name].tolist() for name in ("block", "begin", "size"))
        return [self.blocks[block][begin : begin + size] for block, begin, size in zip(*columns, strict=True)]


class BrokenBlockError(ValueError):
    """Say which block does not hold what it should: its number in what was given."""

    def __init__(self, number: int) -> None:
        super().__init__(f"block {number} is broken")
        self.number = number


def joined(parts: Sequence[Records]) -> Records:
    """Return the records of several parts, one after the other: PLACE[records]. Blocks that parts share stay one."""
    blocks: list[bytes] = []
    places, begins = [], {}
    for part in parts:
        if id(part.blocks) not in begins:
            begins[id(part.blocks)] = len(blocks)
            blocks += part.blocks
        own = part.places.ravel().copy()
        own["block"] += begins[id(part.blocks)]
        places.append(own)
    return Records(tuple(blocks), np.concatenate(places))


def cut(blocks: Sequence[bytes], counts: np.ndarray) -> np.ndarray:
    """Return where the records of all blocks lie, one after the other, with their checksums checked: PLACE[records].

    `counts` (int64[blocks]) are the records of each block. Raises BrokenBlockError for a block with other records than
    that, or with a wrong checksum.
    """
    places = np.empty(int(counts.sum()), PLACE)
    whole = cut_blocks(tuple(blocks), np.ascontiguousarray(counts, np.int64), places)
    if whole < len(blocks):
        raise BrokenBlockError(whole)
    return places
