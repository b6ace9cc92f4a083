"""Parse serialized records to the trainer's tensors, a whole batch at a time.

Ids are read in C; if a record is unusual, TensorFlow's parser does it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep._native import decode_rows
from t5prep.dataset import tfrecord
from t5prep.dataset.tfrecord import Records
from t5prep.train.data.opening import Opened
from t5prep.train.settings.config import Lengths
from t5prep.train.settings.padding import Padding

_PACKED = ("input_segment_ids", "input_positions", "label_segment_ids", "label_positions")

ALIGNMENT = 64  # bytes; Eigen's for the widest vectors


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
        rows, lengths = len(records.places), self.lengths[: len(self._own)]
        arrays = [_aligned(rows, length) for length in self.lengths]
        masks = arrays[len(lengths) :]
        features = tuple((how[0], ids, *how[1:]) for how, ids in zip(self._how, arrays, strict=False))
        mask, pad = (masks[0] if masks else None), self._pad_id or 0
        pages, places = tuple(records.pages), np.ascontiguousarray(records.places)
        if decode_rows(pages, places, features, mask, pad) == rows:
            return arrays
        parsed = self._parse(records.serialized())
        read = [np.asarray(parsed[name])[:, :length] for name, length in zip(self._own, lengths, strict=True)]
        return [*read, *(np.not_equal(read[0], pad, out=mask) for mask in masks)]


def _aligned(rows: int, length: int) -> np.ndarray:
    """Return room for int32[rows, length] that begins where TensorFlow and jax take an array without copying it."""
    room = np.empty(rows * length + ALIGNMENT // 4, np.int32)
    begin = -room.ctypes.data % ALIGNMENT // 4
    return room[begin : begin + rows * length].reshape(rows, length)


def decoder(datasets: Sequence[Opened], *, masks: bool = True, bucket: Lengths | None = None) -> RecordDecoder:
    """Return a reader in C of the ids of records.

    `input_ids` have `input_length` places, `labels` `target_length`, with -100 where there is no target. Packed datasets
    have segment ids and positions too. Rows of datasets of different lengths are padded to the longest, those of a `bucket`
    to its lengths. Of `masks` it makes the plain ones: those of packed rows and of pairs are left to `with_mask`.
    """
    dataset = datasets[0].manifest
    padding, packed = Padding.of_dataset(dataset), dataset.settings.layout == "packed"
    plain = masks and padding.separator is None and not packed
    parse = tf.function(_parser(datasets, text=()), input_signature=[tf.TensorSpec([None], tf.string)])
    lengths = _lengths(datasets)
    return RecordDecoder(
        lengths=dict(zip(("input_ids", "labels"), bucket, strict=True)) if bucket else lengths,
        fills=fills_of(datasets[0]),
        counts={} if _ragged(datasets) else lengths,
        parse=parse,
        pad_id=padding.pad_id if plain else None,
    )


def texts(opened: Opened, names: Sequence[str]) -> Any:
    """Return a function from `string[n]` to the byte features of these names: `string[n]`, or `string[n, most]` of several."""
    return _parser([opened], text=names, ids=False)


def _lengths(datasets: Sequence[Opened]) -> dict[str, int]:
    """Return the features that are lists of ids, and how many ids a row of each has."""
    packed = datasets[0].manifest.settings.layout == "packed"
    lengths = {
        "input": max(one.input_length for one in datasets),
        "label": max(one.target_length for one in datasets),
    }
    names = ["input_ids", "labels", *(_PACKED if packed else ())]
    return {name: lengths[name.removesuffix("s").partition("_")[0]] for name in names}


def fills_of(opened: Opened) -> dict[str, int]:
    """Return what rows are filled up with, by feature, if that is not 0."""
    return {"input_ids": opened.manifest.tokenizer.pad_id, "labels": tfrecord.IGNORED_LABEL}


def _ragged(datasets: Sequence[Opened]) -> bool:
    """Return whether records may have fewer ids than a row."""
    shapes = {(one.manifest.settings.layout, one.input_length, one.target_length) for one in datasets}
    return len(shapes) > 1 or datasets[0].manifest.settings.layout == "ragged"


def _parser(datasets: Sequence[Opened], *, text: Sequence[str], ids: bool = True) -> Any:
    """Return a function from `string[n]` to `ids` by name, int32[n, length], and to the byte features named in `text`."""
    dataset, ragged, fills = datasets[0].manifest, _ragged(datasets), fills_of(datasets[0])
    lengths = _lengths(datasets) if ids else {}
    single = [name for name in text if dataset.features[name].shape in ([1], [])]
    spec: dict[str, Any] = {
        name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
        if ragged
        else tf.io.FixedLenFeature([length], tf.int64)
        for name, length in lengths.items()
    }
    spec |= {
        name: tf.io.FixedLenFeature([], tf.string) if name in single else tf.io.RaggedFeature(tf.string)
        for name in text
    }

    def parse(records: Any) -> dict[str, Any]:
        read = tf.io.parse_example(records, spec)
        batch = {}
        for name, length in lengths.items():
            dense = read[name].to_tensor(fills.get(name, 0), shape=[None, length]) if ragged else read[name]
            batch[name] = tf.cast(dense, tf.int32)
        for name in text:
            batch[name] = read[name] if name in single else read[name].to_tensor("")
        return batch

    return parse
