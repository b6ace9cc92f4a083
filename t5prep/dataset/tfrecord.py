"""Write and read tf.train.Example records and their TFRecord framing, without TensorFlow.

The bytes equal TensorFlow's own deterministic serialization (a test holds them against it). Formats:
tensorflow/core/example/{example,feature}.proto and tensorflow/core/lib/io/record_writer.h.
"""

import functools
import struct
from collections.abc import Iterator
from typing import BinaryIO

import google_crc32c
import numpy as np

# Length (8), its checksum (4), the data's checksum (4): what framing adds to a record.
_BEFORE_RECORD, _AFTER_RECORD = 12, 4
FRAME_BYTES = _BEFORE_RECORD + _AFTER_RECORD
# A negative int64 is ten bytes as a varint; -100 is the label that weighs nothing.
IGNORED_LABEL = -100


def varint(value: int) -> bytes:
    """Return one int64 in protobuf's variable-length coding.

    >>> varint(300).hex(), varint(-100).hex()
    ('ac02', '9cffffffffffffffff01')
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Return the varints of many ids at once, and where each begins: `int64[n + 1]`. Ids lie in [0, 2^21).

    One pass over a whole block: this is the hot path of writing.
    """
    two, three = values >= 1 << 7, values >= 1 << 14
    sizes = np.add(two, three, dtype=np.int8) + np.int8(1)
    begins = np.zeros(len(values) + 1, np.int64)
    np.cumsum(sizes, out=begins[1:])
    data = np.empty(int(begins[-1]), np.uint8)
    places = begins[:-1]
    # Seven bits a byte, the lowest first; the eighth says that another byte follows.
    data[places] = (values.astype(np.uint8) & 0x7F) | two.view(np.uint8) << 7
    longer = np.flatnonzero(two)
    second = values[longer] >> 7
    data[places[longer] + 1] = (second & 0x7F) | (second > 0x7F).view(np.uint8) << 7
    longest = np.flatnonzero(three)
    data[places[longest] + 2] = values[longest] >> 14
    return data.tobytes(), begins


def unpack(packed: bytes) -> np.ndarray:
    """Return the int64 values of packed varints, `int64[n]`, as `varints` and `varint` write them.

    >>> unpack(bytes.fromhex("07ac029cffffffffffffffff01")).tolist()
    [7, 300, -100]
    """
    data = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(data < 0x80) + 1
    begins = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    sizes = ends - begins
    values = np.zeros(len(ends), np.uint64)
    for place in range(int(sizes.max(initial=0))):
        more = sizes > place
        values[more] |= (data[begins[more] + place] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
    return values.view(np.int64)


def int64_feature(name: str, packed: bytes) -> bytes:
    """Return one entry of an Example's feature map: `name` → the int64 values whose varints are `packed`."""
    if packed:
        return _head(name, b"\x1a", len(packed)) + packed
    return _tagged(b"\x0a", _key(name) + _tagged(b"\x12", _tagged(b"\x1a", b"")))


def bytes_feature(name: str, values: list[bytes]) -> bytes:
    """Return one entry of an Example's feature map: `name` → byte strings."""
    if len(values) == 1:
        return _head(name, b"\x0a", len(values[0])) + values[0]
    items = b"".join([_tagged(b"\x0a", value) for value in values])
    return _tagged(b"\x0a", _key(name) + _tagged(b"\x12", _tagged(b"\x0a", items)))


@functools.lru_cache(maxsize=1 << 15)
def _head(name: str, kind: bytes, size: int) -> bytes:
    """Return the bytes before the one value of an entry; they depend on its size alone, and sizes repeat, so it is cached."""
    head = b""
    for tag in (b"\x0a", kind, b"\x12"):
        head = tag + varint(size + len(head)) + head
    head = _key(name) + head
    return b"\x0a" + varint(size + len(head)) + head


@functools.cache
def _key(name: str) -> bytes:
    return _tagged(b"\x0a", name.encode())


def _tagged(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


def example(entries: bytes) -> bytes:
    """Return an Example of feature entries, which the caller has joined in the order of their names."""
    return b"".join((_features(len(entries)), entries))


@functools.lru_cache(maxsize=1 << 14)
def _features(size: int) -> bytes:
    return b"\x0a" + varint(size)


def payload(framed: bytes, begin: int = 0, end: int | None = None) -> bytes:
    """Return the record inside a framed one, which stands from `begin` to `end` in some bytes; checksums are not looked at.

    >>> payload(frame(b"record")), payload(frame(b"a") + frame(b"bc"), 17, 35)
    (b'record', b'bc')
    """
    return framed[begin + _BEFORE_RECORD : (len(framed) if end is None else end) - _AFTER_RECORD]


def frame(record: bytes) -> bytes:
    """Return a record as it stands in a TFRecord file: length, checksum, data, checksum."""
    return b"".join((_length(len(record)), record, _masked(record)))


@functools.lru_cache(maxsize=1 << 14)
def _length(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + _masked(length)


def _masked(data: bytes) -> bytes:
    # The mask keeps a checksum of data that itself holds checksums from degenerating (crc32c.h).
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def read(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the records of a TFRecord file. Raises ValueError where a checksum or a length is wrong."""
    position = 0
    while head := stream.read(12):
        if len(head) < 12 or head[8:] != _masked(head[:8]):
            raise ValueError(f"a broken record header at byte {position}")
        (length,) = struct.unpack("<Q", head[:8])
        record, check = stream.read(length), stream.read(4)
        if len(record) < length or check != _masked(record):
            raise ValueError(f"a broken record at byte {position}")
        yield record
        position += FRAME_BYTES + length


def parse(record: bytes) -> dict[str, list[int] | list[bytes]]:
    """Return the features of an Example, for people and for verification: name → int64 values or byte strings."""
    features: dict[str, list[int] | list[bytes]] = {}
    for _, entries in _fields(record):
        for _, entry in _fields(entries):
            pair = dict(_fields(entry))
            kind, values = next(_fields(pair[2]))
            if kind == 3:
                features[pair[1].decode()] = [
                    value for _, packed in _fields(values) for value in unpack(packed).tolist()
                ]
            else:
                features[pair[1].decode()] = [value for _, value in _fields(values)]
    return features


def raw_features(record: bytes) -> dict[str, list[bytes]]:
    """Return the features of an Example, not decoded: name → byte strings, or one string of packed varints.

    Only for records of this module's own making: it is on the hot path of arranging, and looks at no tags.
    """
    features: dict[str, list[bytes]] = {}
    at, end = _inside(record, 0)
    while at < end:
        at, _ = _inside(record, at)  # one entry of the map
        at, name_end = _inside(record, at)
        name = record[at:name_end].decode()
        at, _ = _inside(record, name_end)  # its feature
        at, list_end = _inside(record, at)
        values = features[name] = []
        while at < list_end:
            at, value_end = _inside(record, at)
            values.append(record[at:value_end])
            at = value_end
    return features


def _inside(data: bytes, at: int) -> tuple[int, int]:
    """Return where the content of the length-delimited field at `at` begins and ends."""
    size = data[at + 1]
    if size < 0x80:
        return at + 2, at + 2 + size
    size, begin = _read_varint(data, at + 1)
    return begin, begin + size


def with_bytes(record: bytes, name: str, values: list[bytes]) -> bytes:
    """Return the Example with another value of one bytes feature, which it may not have had; names stay sorted."""
    entries = {}
    for _, features in _fields(record):
        for _, entry in _fields(features):
            entries[dict(_fields(entry))[1].decode()] = b"\x0a" + varint(len(entry)) + entry
    entries[name] = bytes_feature(name, values)
    return example(b"".join(entries[known] for known in sorted(entries)))


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the field number and the bytes of each field of a message whose fields are all length-delimited, as an Example's are."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        length, position = _read_varint(message, position)
        if tag & 7 != 2 or position + length > len(message):
            raise ValueError("not a tf.train.Example")
        yield tag >> 3, message[position : position + length]
        position += length


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
