"""Read the ids of serialized records in C; where it is not built, or a record is unusual, TensorFlow's parser does it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from t5prep.dataset.tfrecord import Records

try:
    from t5prep._native import decode_rows
except ImportError:  # there was no compiler
    decode_rows = None  # type: ignore[assignment]

ALIGNMENT = 64  # bytes; Eigen's for the widest vectors
available = decode_rows is not None


class RecordDecoder:
    """Read features of records as int32[records, length of the feature], in the order of `lengths`.

    `lengths` and `fills` are by the features' names: a row's ids, and what it is filled up with. `counts` are the ids that
    a record must have, of which a row takes the first ones; a feature that it does not name has at most a row's. `parse`
    reads records that are not as `prepare` writes them: `string[n]` → tensors by name, with the same values, or an error
    that says what is wrong. With a `pad_id`, the `attention_mask` of the first feature is added, as `model.token_mask`
    computes it for rows that are neither packed nor pairs.
    """

    def __init__(
        self,
        *,
        lengths: Mapping[str, int],
        fills: Mapping[str, int],
        counts: Mapping[str, int],
        parse: Callable[[Any], Mapping[str, Any]],
        pad_id: int | None = None,
    ) -> None:
        mask = {} if pad_id is None else {"attention_mask": next(iter(lengths.values()))}
        self.names, self.lengths = (*lengths, *mask), (*lengths.values(), *mask.values())
        self._own = tuple(lengths)
        self._how = [
            (name.encode(), length, fills.get(name, 0), counts.get(name, -1)) for name, length in lengths.items()
        ]
        self._parse, self._pad_id = parse, pad_id

    def __call__(self, records: Records) -> list[np.ndarray]:
        """Return one array for each feature from serialized records. Raises tf.errors.OpError for a damaged record."""
        rows, own = len(records.places), self.lengths[: len(self._own)]
        arrays = [_aligned(rows, length) for length in self.lengths]
        masks = arrays[len(own) :]
        features = tuple((how[0], ids, *how[1:]) for how, ids in zip(self._how, arrays, strict=False))
        mask, pad = (masks[0] if masks else None), self._pad_id or 0
        blocks, places = tuple(records.blocks), np.ascontiguousarray(records.places)
        if decode_rows(blocks, places, features, mask, pad) == rows:
            return arrays
        parsed = self._parse(records.serialized())
        read = [np.asarray(parsed[name])[:, :length] for name, length in zip(self._own, own, strict=True)]
        return [*read, *(np.not_equal(read[0], pad, out=mask) for mask in masks)]


def _aligned(rows: int, length: int) -> np.ndarray:
    """Return room for int32[rows, length] that begins where TensorFlow and jax take an array without copying it."""
    room = np.empty(rows * length + ALIGNMENT // 4, np.int32)
    begin = -room.ctypes.data % ALIGNMENT // 4
    return room[begin : begin + rows * length].reshape(rows, length)
