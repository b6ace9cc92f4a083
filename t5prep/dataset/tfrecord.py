"""Read tf.train.Example records and their TFRecord framing, without TensorFlow. (native/records.c writes them.)

`read` reads a file from its beginning; `cut_records` finds the records in many pages at once, the hot path of reading
with an index.

The bytes equal TensorFlow's own deterministic serialization (tests hold both against it). Formats:
tensorflow/core/example/{example,feature}.proto and tensorflow/core/lib/io/record_writer.h.
"""

import struct
from collections.abc import Container, Iterator, Sequence
from typing import BinaryIO, NamedTuple

import google_crc32c
import numpy as np

from t5prep._native import cut_blocks

# Length (8), its checksum (4), the data's checksum (4): what framing adds to a record.
_BEFORE_RECORD, _AFTER_RECORD = 12, 4
FRAME_BYTES = _BEFORE_RECORD + _AFTER_RECORD
# A negative int64 is ten bytes as a varint; -100 is the label that weighs nothing.
IGNORED_LABEL = -100
LONGEST_VARINT = 10
_NO_EXAMPLE = "not a tf.train.Example"
# Bytes that are read at a time: a length that is a lie takes no memory.
_PIECE = 1 << 24
# Where a record lies: its bytes are [begin, begin + size) of a page. native/records.h has the same fields.
PLACE = np.dtype([("page", np.int64), ("begin", np.int64), ("size", np.int64)])


def unpack(packed: bytes) -> np.ndarray:
    """Return the int64 values of packed varints, `int64[n]`, in protobuf's variable-length coding. Raises ValueError.

    >>> unpack(bytes.fromhex("07ac029cffffffffffffffff01")).tolist()
    [7, 300, -100]
    """
    data = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(data < 0x80) + 1
    begins = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    sizes = ends - begins
    values = np.zeros(len(ends), np.uint64)
    longest = int(sizes.max(initial=0))
    if longest > LONGEST_VARINT or (len(data) and data[-1] >= 0x80):
        raise ValueError("a broken number")
    for byte_index in range(longest):
        is_longer = sizes > byte_index
        values[is_longer] |= (data[begins[is_longer] + byte_index] & 0x7F).astype(np.uint64) << np.uint64(
            7 * byte_index
        )
    return values.view(np.int64)


def masked_checksum(data: bytes) -> bytes:
    """Return the CRC-32C of some bytes as it stands in a TFRecord file.

    The mask keeps a checksum of data that itself holds checksums from degenerating (crc32c.h).
    """
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def read(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the records of a TFRecord file. Raises ValueError if a checksum or a length is wrong."""
    position = 0
    while head := stream.read(12):
        if len(head) < 12 or head[8:] != masked_checksum(head[:8]):
            raise ValueError(f"a broken record header at byte {position}")
        (length,) = struct.unpack("<Q", head[:8])
        record = b"".join(_pieces(stream, length))
        if len(record) < length or stream.read(4) != masked_checksum(record):
            raise ValueError(f"a broken record at byte {position}")
        yield record
        position += FRAME_BYTES + length


def _pieces(stream: BinaryIO, length: int) -> Iterator[bytes]:
    """Yield the next `length` bytes, or as many as there are."""
    while length and (piece := stream.read(min(length, _PIECE))):
        yield piece
        length -= len(piece)


def parse(record: bytes) -> dict[str, list[int] | list[bytes]]:
    """Return the features of an Example, for people and for verification: name → int64 values or byte strings.

    Raises ValueError if the bytes are no Example.
    """
    features: dict[str, list[int] | list[bytes]] = {}
    for entries in _of_number(1, record):
        for entry in _of_number(1, entries):
            pair = dict(_fields(entry))
            lists = list(_fields(pair.get(2, b"")))
            if 1 not in pair or not lists:
                raise ValueError(_NO_EXAMPLE)
            kind, values = lists[0]
            packed = list(_of_number(1, values))
            features[pair[1].decode()] = unpack(b"".join(packed)).tolist() if kind == 3 else packed
    return features


def raw_features(record: bytes, *, names: Container[str] | None = None) -> dict[str, list[bytes]]:
    """Return the features of an Example, not decoded: name → byte strings, or one string of packed varints.

    `names` are the names to read, None all. Only for records of this project's own making: it looks at no tags.
    """
    features: dict[str, list[bytes]] = {}
    offset, end = _inside(record, 0)
    while offset < end:
        offset, entry_end = _inside(record, offset)  # one entry of the map
        offset, name_end = _inside(record, offset)
        name = record[offset:name_end].decode()
        if names is not None and name not in names:
            offset = entry_end
            continue
        offset, _ = _inside(record, name_end)  # its feature
        offset, list_end = _inside(record, offset)
        values = features[name] = []
        while offset < list_end:
            offset, value_end = _inside(record, offset)
            values.append(record[offset:value_end])
            offset = value_end
    return features


def _inside(data: bytes, offset: int) -> tuple[int, int]:
    """Return where the content of the length-delimited field at `offset` begins and ends."""
    size = data[offset + 1]
    if size < 0x80:
        return offset + 2, offset + 2 + size
    size, begin = _read_varint(data, offset + 1)
    return begin, begin + size


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the field number and the bytes of each field of a message whose fields are all length-delimited, as an Example's are."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        length, position = _read_varint(message, position)
        if tag & 7 != 2 or position + length > len(message):
            raise ValueError(_NO_EXAMPLE)
        yield tag >> 3, message[position : position + length]
        position += length


def _of_number(number: int, message: bytes) -> Iterator[bytes]:
    """Yield the bytes of each field of this number; others are passed over, as protobuf does with those that it does not know."""
    return (value for field, value in _fields(message) if field == number)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for byte_index, byte in enumerate(data[position : position + LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * byte_index
        if byte < 0x80:
            return value, position + byte_index + 1
    raise ValueError(_NO_EXAMPLE)


class Records(NamedTuple):
    """Name serialized records by their places in pages of bytes: `places` is PLACE[...]. No record is copied."""

    pages: Sequence[bytes]
    places: np.ndarray

    def serialized(self) -> list[bytes]:
        """Return the records, one after the other."""
        places = self.places.ravel()
        columns = (places[name].tolist() for name in ("page", "begin", "size"))
        return [self.pages[page][begin : begin + size] for page, begin, size in zip(*columns, strict=True)]


class BrokenPageError(ValueError):
    """Say which page does not hold what it should: its number in what was given."""

    def __init__(self, number: int) -> None:
        super().__init__(f"page {number} is broken")
        self.number = number


def join_records(parts: Sequence[Records]) -> Records:
    """Return the records of several parts, one after the other: PLACE[records]. Pages that parts share stay one."""
    pages: list[bytes] = []
    places, begins = [], {}
    for part in parts:
        if id(part.pages) not in begins:
            begins[id(part.pages)] = len(pages)
            pages += part.pages
        part_places = part.places.ravel().copy()
        part_places["page"] += begins[id(part.pages)]
        places.append(part_places)
    return Records(tuple(pages), np.concatenate(places))


def cut_records(pages: Sequence[bytes], counts: np.ndarray) -> np.ndarray:
    """Return where the records of all pages lie, one after the other, with their checksums checked: PLACE[records].

    `counts` (int64[pages]) are the records of each page. Raises BrokenPageError for a page with other records than
    that, or with a wrong checksum.
    """
    places = np.empty(int(counts.sum()), PLACE)
    valid_pages = cut_blocks(tuple(pages), np.ascontiguousarray(counts, np.int64), places)
    if valid_pages < len(pages):
        raise BrokenPageError(valid_pages)
    return places
