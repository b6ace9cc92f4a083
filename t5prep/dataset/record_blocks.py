"""Cut blocks of a TFRecord file into their records, many blocks at once: the hot path of reading with an index."""

from collections.abc import Sequence

import google_crc32c
import numpy as np

from t5prep.dataset.tfrecord import FRAME_BYTES

_BEFORE = 12  # bytes of a record's length and of its checksum


class BrokenBlockError(ValueError):
    """Say which block does not hold what it should: its number in what was given."""

    def __init__(self, number: int) -> None:
        super().__init__(f"block {number} is broken")
        self.number = number


def records(blocks: Sequence[bytes], counts: np.ndarray) -> np.ndarray:
    """Return the records of all blocks, one after the other, as an array of bytes objects, with their checksums checked.

    `counts` (int64[blocks]) are the records of each block. Raises BrokenBlockError for a block with other records than
    that, or with a wrong checksum.
    """
    data = b"".join(blocks)
    stops = np.cumsum(np.fromiter(map(len, blocks), np.int64, len(blocks)))
    at = np.concatenate([[0], stops[:-1]])
    first = np.cumsum(counts) - counts
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
    found = np.empty(len(begins), object)
    found[:] = [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    crc = np.fromiter(map(google_crc32c.value, found), np.uint32, len(found))
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(0xA282EAD8)
    _check(masked == checksums[ends], np.repeat(np.arange(len(blocks)), counts))
    return found


def _check(right: np.ndarray, number: np.ndarray) -> None:
    """Raise BrokenBlockError with the number of the first that is not right."""
    if not right.all():
        raise BrokenBlockError(int(number[int(np.argmin(right))]))
