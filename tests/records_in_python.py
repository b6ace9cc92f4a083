"""Write records in Python, by the definition of the formats: what the writer in C is held against."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from t5prep.dataset import tfrecord
from t5prep.tokens.ragged import first_fit

# The inputs and targets of one example, without padding, both `int32[length]`.
Pair = tuple[NDArray[np.int32], NDArray[np.int32]]
Rows = NDArray[np.signedinteger]
# The features of a packed row, sorted.
FEATURES = ("input_ids", "input_positions", "input_segment_ids", "label_positions", "label_segment_ids", "labels")


def frame(record: bytes) -> bytes:
    """Return a record as it stands in a TFRecord file: length, checksum, data, checksum."""
    length = len(record).to_bytes(8, "little")
    return length + tfrecord.masked_checksum(length) + record + tfrecord.masked_checksum(record)


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


def field(number: int, content: bytes) -> bytes:
    """Return a field of a message: bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(features: Mapping[str, Sequence[int] | Sequence[bytes]]) -> bytes:
    """Return a tf.train.Example of these features."""
    entries = b""
    for name, values in sorted(features.items()):
        if name in ("id", "references") or (
            values and isinstance(values[0], bytes)
        ):  # of bytes, even if there are none
            kind, content = 1, b"".join(field(1, value) for value in values if isinstance(value, bytes))
        else:
            packed = b"".join(varint(int(value)) for value in values)
            kind, content = 3, field(1, packed) if packed else b""
        entries += field(1, field(1, name.encode()) + field(2, field(kind, content)))
    return field(1, entries)


def framed(features: Mapping[str, Sequence[int] | Sequence[bytes]]) -> bytes:
    """Return one framed record."""
    return frame(example(features))


def pack(pairs: Sequence[Pair], *, room: tuple[int, int], pad_id: int, label_pad: int) -> dict[str, Rows]:
    """Pack examples into rows by first-fit, with `room` tokens of inputs and of targets each.

    Returns `input_ids, input_segment_ids, input_positions`: `int32[rows, room[0]]`, and `labels, label_segment_ids,
    label_positions`: `int32[rows, room[1]]`; and `example_rows`: `int64[n]`, the row of each example.
    Raises ValueError when an example does not fit into an empty row.

    >>> one, two = (np.array([7, 1]), np.array([8, 1])), (np.array([9, 1]), np.array([1]))
    >>> packed = pack([one, two], room=(5, 4), pad_id=0, label_pad=-100)
    >>> packed["input_ids"], packed["label_segment_ids"]
    (array([[7, 1, 9, 1, 0]], dtype=int32), array([[1, 1, 2, 0]], dtype=int32))
    """
    sizes = np.array([(len(inputs), len(targets)) for inputs, targets in pairs], np.int64).reshape(-1, 2)
    rows = first_fit(sizes, room=room)
    order = np.argsort(rows, kind="stable")  # examples row by row, in their given order inside each
    segments = _count_preceding(rows[order]) + 1
    packed: dict[str, Rows] = {}
    for side, (name, ids, fill) in enumerate((("input", "input_ids", pad_id), ("label", "labels", label_pad))):
        shape = (int(rows.max(initial=-1)) + 1, room[side])
        lengths = sizes[order, side]
        positions = _count_preceding(np.repeat(np.arange(len(order)), lengths))
        # An example starts where the earlier examples of its row end.
        ends = lengths.cumsum()
        before_row = np.concatenate([[0], ends])[np.searchsorted(rows[order], np.arange(shape[0]))]
        starts = ends - lengths - before_row[rows[order]]
        cells = (np.repeat(rows[order], lengths), np.repeat(starts, lengths) + positions)
        tokens = np.concatenate([pairs[example][side] for example in order] or [np.empty(0, np.int32)])
        for key, values, empty in (
            (ids, tokens, fill),
            (f"{name}_segment_ids", np.repeat(segments, lengths), 0),
            (f"{name}_positions", positions, 0),
        ):
            packed[key] = np.full(shape, empty, np.int32)
            packed[key][cells] = values
    return {**packed, "example_rows": rows}


def _count_preceding(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many elements of the same group come just before each: `[4, 4, 4, 7, 7]` → `[0, 1, 2, 0, 1]`."""
    positions = np.arange(len(groups))
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    return positions - np.repeat(starts, np.diff(starts, append=len(groups)))
