"""Read tf.train.Example records and their TFRecord framing, without TensorFlow. `native/records.c` writes them.

`read` reads a file from its beginning. `cut_records` finds the records in many pages at once: training reads with it.

The bytes equal TensorFlow's own deterministic serialization; tests compare them with it. Formats:
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
# The label that the loss ignores, as in PyTorch. As a negative int64, its varint has ten bytes.
IGNORED_LABEL = -100
LONGEST_VARINT = 10
_NO_EXAMPLE = "not a tf.train.Example"
# Bytes of one read. A false length in a record's header can reserve no more memory than this.
_PIECE = 1 << 24
# The place of a record: bytes [begin, begin + size) of a page. The C struct in native/records.h must have equal fields.
PLACE = np.dtype([("page", np.int64), ("begin", np.int64), ("size", np.int64)])


def unpack(packed: bytes) -> np.ndarray:
    """Return the values of packed varints, protobuf's coding of int64 lists, as `int64[n]`. Raises ValueError.

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
    # One pass over all numbers for each byte of the longest: most numbers have one to three bytes.
    for byte_index in range(longest):
        is_longer = sizes > byte_index
        values[is_longer] |= (data[begins[is_longer] + byte_index] & 0x7F).astype(np.uint64) << np.uint64(
            7 * byte_index
        )
    return values.view(np.int64)


def masked_checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C of `data`, four bytes as in a TFRecord file.

    TensorFlow rotates the checksum and adds a constant (crc32c.h), because data may itself contain CRCs.
    """
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def read(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the serialized records of a TFRecord file. Raises ValueError if a checksum or a length is wrong."""
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
    """Yield the next `length` bytes in pieces, fewer if the stream ends."""
    while length and (piece := stream.read(min(length, _PIECE))):
        yield piece
        length -= len(piece)


def parse(record: bytes) -> dict[str, list[int] | list[bytes]]:
    """Return the features of a serialized Example: name → int64 values or byte strings. Raises ValueError if it is none.

    This checks every byte, and is slow: for single records and for `verify`.
    """
    features: dict[str, list[int] | list[bytes]] = {}
    for entries in _values(record):
        for entry in _values(entries):
            pair = dict(_fields(entry))
            lists = list(_fields(pair.get(2, b"")))
            if 1 not in pair or not lists:
                raise ValueError(_NO_EXAMPLE)
            # `kind` is the field of the oneof in feature.proto: 1 is bytes_list, 3 is int64_list.
            kind, values = lists[0]
            packed = list(_values(values))
            features[pair[1].decode()] = unpack(b"".join(packed)).tolist() if kind == 3 else packed
    return features


def raw_features(record: bytes, *, names: Container[str] | None = None) -> dict[str, list[bytes]]:
    """Return the features of a serialized Example without decoding: name → byte strings, or one string of packed varints.

    `names` are the features to return, None for all. Use it only for records that t5prep wrote: it skips protobuf's tags
    without checking them, because in these records each tag is one byte.
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
    """Return the begin and end of the content of the length-delimited field at `offset`, whose tag is one byte."""
    size = data[offset + 1]
    if size < 0x80:
        return offset + 2, offset + 2 + size
    size, begin = _read_varint(data, offset + 1)
    return begin, begin + size


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each field of a message. Raises ValueError for a field that is not length-delimited."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        length, position = _read_varint(message, position)
        if tag & 7 != 2 or position + length > len(message):
            raise ValueError(_NO_EXAMPLE)
        yield tag >> 3, message[position : position + length]
        position += length


def _values(message: bytes) -> Iterator[bytes]:
    """Yield the bytes of each field 1 of a message. Other fields are skipped, as protobuf skips unknown ones."""
    return (value for field, value in _fields(message) if field == 1)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the varint at `position` and the position after it. Raises ValueError if it has more than ten bytes."""
    value = 0
    for byte_index, byte in enumerate(data[position : position + LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * byte_index
        if byte < 0x80:
            return value, position + byte_index + 1
    raise ValueError(_NO_EXAMPLE)


class Records(NamedTuple):
    """Hold serialized records by their places in `pages`, without copying them. `places` is PLACE[...], of any shape."""

    pages: Sequence[bytes]
    places: np.ndarray

    def serialized(self) -> list[bytes]:
        """Return a copy of the bytes of each record, in the order of `places`."""
        places = self.places.ravel()
        columns = (places[name].tolist() for name in ("page", "begin", "size"))
        return [self.pages[page][begin : begin + size] for page, begin, size in zip(*columns, strict=True)]


class BrokenPageError(ValueError):
    """Report the `number`, from 0, of a page with other records than expected, or with a wrong checksum."""

    def __init__(self, number: int) -> None:
        super().__init__(f"page {number} is broken")
        self.number = number


def join_records(parts: Sequence[Records]) -> Records:
    """Return the concatenation of `parts`, with places of shape PLACE[records]. Pages that parts share are not repeated."""
    pages: list[bytes] = []
    places, begins = [], {}
    for part in parts:
        if id(part.pages) not in begins:  # by identity: comparing pages would read all of their bytes
            begins[id(part.pages)] = len(pages)
            pages += part.pages
        part_places = part.places.ravel().copy()
        part_places["page"] += begins[id(part.pages)]
        places.append(part_places)
    return Records(tuple(pages), np.concatenate(places))


def cut_records(pages: Sequence[bytes], counts: np.ndarray) -> np.ndarray:
    """Return the places of the records of all pages, PLACE[records], after checking their checksums.

    `counts` has the number of records of each page, int64[pages]. Raises BrokenPageError for a page with another number
    of records, or with a wrong checksum.
    """
    places = np.empty(int(counts.sum()), PLACE)
    valid_pages = cut_blocks(tuple(pages), np.ascontiguousarray(counts, np.int64), places)
    if valid_pages < len(pages):
        raise BrokenPageError(valid_pages)
    return places
