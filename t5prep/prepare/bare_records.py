"""Read back bare records, which hold no padding because rows are laid out when a shard is written."""

from typing import NamedTuple

import numpy as np

from t5prep.dataset import tfrecord
from t5prep.tokens import ragged
from t5prep.tokens.names import Names
from t5prep.tokens.ragged import Ragged

try:
    from t5prep.tokens._native import read_records
except ImportError:  # no compiler
    read_records = None  # type: ignore[assignment]


class Bare(NamedTuple):
    """Hold the ids of records, and the tokens of both their sides."""

    ids: Names
    inputs: Ragged
    labels: Ragged


def read(data: bytes, *, sizes: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> Bare:
    """Return bare records, given one after the other with sizes in bytes and lengths in tokens: all `int[n]`."""
    if read_records is not None:
        try:
            ids, *tokens, id_starts, input_starts, label_starts = read_records(
                data, np.ascontiguousarray(sizes, np.uint32)
            )
        except ValueError:  # they hold more than ids and tokens
            return _by_python(data, sizes, inputs, labels)
        starts = [np.frombuffer(one, np.int64) for one in (id_starts, input_starts, label_starts)]
        sides = (np.frombuffer(one, np.int32) for one in tokens)
        return Bare(Names(ids, starts[0]), *map(Ragged, sides, starts[1:]))
    return _by_python(data, sizes, inputs, labels)


def _by_python(data: bytes, sizes: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> Bare:
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    rows = [
        tfrecord.raw_features(tfrecord.payload(data, end - size, end))
        for end, size in zip(ends, sizes.tolist(), strict=True)
    ]
    flat = (tfrecord.unpack(b"".join(b"".join(row[name]) for row in rows)) for name in ("input_ids", "labels"))
    sides = (
        Ragged(tokens.astype(np.int32), ragged.begins(lengths))
        for tokens, lengths in zip(flat, (inputs, labels), strict=True)
    )
    return Bare(Names.of([row["id"][0].decode("utf-8", "surrogatepass") for row in rows]), *sides)
