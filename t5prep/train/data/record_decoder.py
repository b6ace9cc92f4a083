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
    name, with the same values, or an error that says what is wrong. With a `pad_id`, the `attention_mask` is added, as
    `model.token_mask` computes it for rows that are neither packed nor pairs.
    """

    def __init__(
        self,
        *,
        lengths: Mapping[str, int],
        fills: Mapping[str, int],
        exact: bool,
        parse: Callable[[Any], Mapping[str, Any]],
        pad_id: int | None = None,
    ) -> None:
        mask = {} if pad_id is None else {"attention_mask": lengths["input_ids"]}
        self.names, self.lengths = (*lengths, *mask), (*lengths.values(), *mask.values())
        self._own, self._pad_id = tuple(lengths), pad_id
        self._encoded = tuple(name.encode() for name in lengths)
        self._fills = tuple(fills.get(name, 0) for name in lengths)
        self._exact, self._parse = exact, parse

    def __call__(self, records: np.ndarray | Sequence[bytes]) -> list[np.ndarray]:
        """Return one array for each feature from serialized records. Raises tf.errors.OpError for a damaged record."""
        serialized = records.tolist() if isinstance(records, np.ndarray) else list(records)
        own = self.lengths[: len(self._own)]
        arrays = tuple(_aligned(len(serialized), length) for length in own)
        if decode_records(serialized, self._encoded, arrays, own, self._fills, self._exact) != len(serialized):
            parsed = self._parse(serialized)
            arrays = tuple(np.asarray(parsed[name]) for name in self._own)
        if self._pad_id is None:
            return list(arrays)
        ids = arrays[self._own.index("input_ids")]
        return [*arrays, np.not_equal(ids, self._pad_id, out=_aligned(*ids.shape))]


def _aligned(rows: int, length: int) -> np.ndarray:
    """Return room for int32[rows, length] that begins where TensorFlow and jax take an array without copying it."""
    room = np.empty(rows * length + ALIGNMENT // 4, np.int32)
    begin = -room.ctypes.data % ALIGNMENT // 4
    return room[begin : begin + rows * length].reshape(rows, length)
