"""Find the records in blocks of a TFRecord file, many blocks at once: the hot path of reading with an index."""

from collections.abc import Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np

from t5prep.dataset.tfrecord import FRAME_BYTES

try:
    from t5prep.tokens._native import cut_blocks
except ImportError:  # there was no compiler
    cut_blocks = None  # type: ignore[assignment]

_BEFORE = 12  # bytes of a record's length and of its checksum

# Where a record lies: its bytes are [begin, begin + size) of a block. tokens/native/decode.h has the same fields.
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
    if cut_blocks is None:
        return _cut_by_numpy(blocks, counts)
    places = np.empty(int(counts.sum()), PLACE)
    whole = cut_blocks(tuple(blocks), np.ascontiguousarray(counts, np.int64), places)
    if whole < len(blocks):
        raise BrokenBlockError(whole)
    return places


def _cut_by_numpy(blocks: Sequence[bytes], counts: np.ndarray) -> np.ndarray:
    """Return what `cut` does, where the extension in C is not built."""
    data = b"".join(blocks)
    stops = np.cumsum(np.fromiter(map(len, blocks), np.int64, len(blocks)))
    starts = np.concatenate([[0], stops[:-1]])
    at, first = starts.copy(), np.cumsum(counts) - counts
    begins = np.empty(int(counts.sum()), np.int64)
    ends = np.empty_like(begins)
    # Views that begin at each byte: the length before a record, and the checksum after it, can stand anywhere.
    lengths = np.ndarray(max(0, len(data) - 7), "<u8", data, strides=(1,))
    checksums = np.ndarray(max(0, len(data) - 3), "<u4", data, strides=(1,))
    for number in range(int(counts.max(initial=0))):
        live = np.flatnonzero(counts > number)
        begin, room = at[live], stops[live] - at[live] - FRAME_BYTES
        _check(room >= 0, live)
        length = lengths[begin]
        _check(length <= room.astype(np.uint64), live)
        row = first[live] + number
        begins[row] = begin + _BEFORE
        ends[row] = begins[row] + length.astype(np.int64)
        at[live] = ends[row] + FRAME_BYTES - _BEFORE
    _check(at == stops, np.arange(len(blocks)))
    records = (data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))
    crc = np.fromiter(map(google_crc32c.value, records), np.uint32, len(begins))
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    block = np.repeat(np.arange(len(blocks)), counts)
    _check(masked == checksums[ends], block)
    places = np.empty(len(begins), PLACE)
    places["block"], places["begin"], places["size"] = block, begins - starts[block], ends - begins
    return places


def _check(right: np.ndarray, number: np.ndarray) -> None:
    """Raise BrokenBlockError with the number of the first that is not right."""
    if not right.all():
        raise BrokenBlockError(int(number[int(np.argmin(right))]))
