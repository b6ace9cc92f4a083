"""Read the ids of serialized records in C; where it is not built, or a record is unusual, TensorFlow's parser does it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

try:
    from t5prep.tokens._native import decode_records
except ImportError:  # there was no compiler
    decode_records = None  # type: ignore[assignment]

ALIGNMENT = 64  # bytes; Eigen's for the widest vectors
available = decode_records is not None


class RecordDecoder:
    """Read features of records as int32[records, length of the feature], in the order of `lengths`.

    `lengths` and `fills` are by the features' names: a row's ids, and what it is filled up with. Where `exact`, a record
    must have as many ids as a row. `parse` reads records that are not as `prepare` writes them: `string[n]` → tensors by
    name, with the same values, or an error that says what is wrong.
    """

    def __init__(
        self,
        *,
        lengths: Mapping[str, int],
        fills: Mapping[str, int],
        exact: bool,
        parse: Callable[[Any], Mapping[str, Any]],
    ) -> None:
        self.names = tuple(lengths)
        self.lengths = tuple(lengths.values())
        self._encoded = tuple(name.encode() for name in lengths)
        self._fills = tuple(fills.get(name, 0) for name in lengths)
        self._exact, self._parse = exact, parse

    def __call__(self, records: np.ndarray | Sequence[bytes]) -> list[np.ndarray]:
        """Return one array for each feature from serialized records. Raises tf.errors.OpError for a damaged record."""
        serialized = records.tolist() if isinstance(records, np.ndarray) else list(records)
        arrays = tuple(_aligned(len(serialized), length) for length in self.lengths)
        read = decode_records(serialized, self._encoded, arrays, self.lengths, self._fills, self._exact)
        if read == len(serialized):
            return list(arrays)
        parsed = self._parse(serialized)
        return [np.asarray(parsed[name]) for name in self.names]


def _aligned(rows: int, length: int) -> np.ndarray:
    """Return room for int32[rows, length] that begins where TensorFlow and jax take an array without copying it."""
    room = np.empty(rows * length + ALIGNMENT // 4, np.int32)
    begin = -room.ctypes.data % ALIGNMENT // 4
    return room[begin : begin + rows * length].reshape(rows, length)
