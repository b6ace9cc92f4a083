"""tf.train.Example records and their TFRecord framing, without TensorFlow.

The bytes equal TensorFlow's own deterministic serialization (a test holds them against it). Formats:
tensorflow/core/example/{example,feature}.proto and tensorflow/core/lib/io/record_writer.h.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO

import google_crc32c
import numpy as np

# Length (8), its checksum (4), the data's checksum (4): what framing adds to a record.
FRAME_BYTES = 16
# A negative int64 is ten bytes as a varint; -100 is the label that weighs nothing.
IGNORED_LABEL = -100


def varint(value: int) -> bytes:
    """One int64 in protobuf's variable-length coding.

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
    """Varints of many ids at once, and where each begins: `int64[n + 1]`. Ids lie in [0, 2^21).

    One pass over a whole block: this is the hot path of writing.
    """
    ids = values.astype(np.uint32, copy=False)
    spread = np.empty((len(ids), 3), np.uint8)
    two, three = ids >= 1 << 7, ids >= 1 << 14
    spread[:, 0] = ids & 0x7F | two.astype(np.uint8) << 7
    spread[:, 1] = (ids >> 7) & 0x7F | three.astype(np.uint8) << 7
    spread[:, 2] = ids >> 14
    used = np.ones((len(ids), 3), bool)
    used[:, 1], used[:, 2] = two, three
    begins = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(1 + two.astype(np.int64) + three, out=begins[1:])
    return spread[used].tobytes(), begins


def unpack(packed: bytes) -> np.ndarray:
    """The int64 values of packed varints, `int64[n]`: what `varints` and `varint` wrote.

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
    """One entry of an Example's feature map: `name` → the int64 values whose varints are `packed`."""
    values = b"\x0a" + varint(len(packed)) + packed if packed else b""
    return _entry(name, b"\x1a" + varint(len(values)) + values)


def bytes_feature(name: str, values: list[bytes]) -> bytes:
    """One entry of an Example's feature map: `name` → byte strings."""
    items = b"".join(b"\x0a" + varint(len(value)) + value for value in values)
    return _entry(name, b"\x0a" + varint(len(items)) + items)


def _entry(name: str, feature: bytes) -> bytes:
    body = b"\x0a" + varint(len(name)) + name.encode() + b"\x12" + varint(len(feature)) + feature
    return b"\x0a" + varint(len(body)) + body


def example(entries: bytes) -> bytes:
    """An Example of feature entries, which the caller has joined in the order of their names."""
    return b"\x0a" + varint(len(entries)) + entries


def frame(record: bytes) -> bytes:
    """A record as it stands in a TFRecord file: length, checksum, data, checksum."""
    length = struct.pack("<Q", len(record))
    return b"".join((length, _masked(length), record, _masked(record)))


def _masked(data: bytes) -> bytes:
    # The mask keeps a checksum of data that itself holds checksums from degenerating (crc32c.h).
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def read(stream: BinaryIO) -> Iterator[bytes]:
    """The records of a TFRecord file. Raises ValueError where a checksum or a length is wrong."""
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
    """The features of an Example, for people and for verification: name → int64 values or byte strings."""
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
    """The features of an Example, not decoded: name → byte strings, or one string of packed varints."""
    features: dict[str, list[bytes]] = {}
    for _, entries in _fields(record):
        for _, entry in _fields(entries):
            pair = dict(_fields(entry))
            features[pair[1].decode()] = [value for _, values in _fields(pair[2]) for _, value in _fields(values)]
    return features


def with_bytes(record: bytes, name: str, values: list[bytes]) -> bytes:
    """The Example with another value of one bytes feature, which it may not have had; names stay sorted."""
    entries = {}
    for _, features in _fields(record):
        for _, entry in _fields(features):
            entries[dict(_fields(entry))[1].decode()] = b"\x0a" + varint(len(entry)) + entry
    entries[name] = bytes_feature(name, values)
    return example(b"".join(entries[known] for known in sorted(entries)))


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(field number, bytes) of a message whose fields are all length-delimited, as an Example's are."""
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
