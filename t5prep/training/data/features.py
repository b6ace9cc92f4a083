"""Parse serialized records to the trainer's arrays, a whole batch at a time: in C, or an unusual record in Python."""

from collections.abc import Mapping, Sequence

import numpy as np

from t5prep._native import decode_rows
from t5prep.dataset import tfrecord
from t5prep.dataset.prepared import DatasetSplit
from t5prep.dataset.tfrecord import Records
from t5prep.errors import DatasetError
from t5prep.training.settings.config import Lengths
from t5prep.training.settings.padding import Padding

_PACKED = ("input_segment_ids", "input_positions", "label_segment_ids", "label_positions")

ALIGNMENT = 64  # bytes; Eigen's for the widest vectors


class RecordDecoder:
    """Read features of records as int32[records, length of the feature], in the order of `lengths`.

    `lengths` and `fills` are by the features' names: a row's ids, and what it is filled up with. `counts` are the ids that
    a record must have, of which a row takes the first ones; a feature that it does not name has at most a row's. With a
    `pad_id`, the `attention_mask` of the first feature is added, as `model.token_mask` computes it for rows that are neither
    packed nor pairs.
    """

    def __init__(
        self,
        *,
        lengths: Mapping[str, int],
        fills: Mapping[str, int],
        counts: Mapping[str, int],
        pad_id: int | None = None,
    ) -> None:
        mask = {} if pad_id is None else {"attention_mask": next(iter(lengths.values()))}
        self.names, self.lengths = (*lengths, *mask), (*lengths.values(), *mask.values())
        self._how = [
            (name.encode(), length, fills.get(name, 0), counts.get(name, -1)) for name, length in lengths.items()
        ]
        self._pad_id = pad_id

    def __call__(self, records: Records) -> list[np.ndarray]:
        """Return one array for each feature from serialized records. Raises DatasetError for a damaged record."""
        rows = len(records.places)
        arrays = [_aligned(rows, length) for length in self.lengths]
        features = tuple((spec[0], ids, *spec[1:]) for spec, ids in zip(self._how, arrays, strict=False))
        mask, pad = (None, 0) if self._pad_id is None else (arrays[-1], self._pad_id)
        pages, places = tuple(records.pages), np.ascontiguousarray(records.places)
        if decode_rows(pages, places, features, mask, pad) == rows:
            return arrays
        for row, record in enumerate(records.serialized()):
            _read_one(record, row, features)
        if mask is not None:
            np.not_equal(arrays[0], pad, out=mask)
        return arrays


def _read_one(record: bytes, row: int, features: Sequence[tuple[bytes, np.ndarray, int, int, int]]) -> None:
    """Read a record that may not be as `prepare` writes it into the `row` of each feature's array. Raises DatasetError."""
    try:
        feature_values = tfrecord.parse(record)
        for key, ids, length, fill, count in features:
            values = feature_values.get(key.decode(), [])
            if not all(type(value) is int for value in values):
                raise ValueError(f"its {key.decode()} are no numbers")
            if len(values) != count if count >= 0 else len(values) > length:
                raise ValueError(f"it has {len(values)} {key.decode()}")
            ids[row], ids[row, : len(values)] = fill, values[:length]
    except ValueError as error:
        raise DatasetError(f"A record cannot be read ({error}). Check the data: t5prep verify DATA") from error


def texts_of(records: Records, *names: str, one_id: bool, data: str = "DATA") -> list[list[list[bytes]]]:
    """Return the texts that each record of a dataset has of the byte features of these names, none of one that it lacks.

    Raises DatasetError, also for a record that has not just `one_id`.
    """
    try:
        raw = [tfrecord.raw_features(record, names=names) for record in records.serialized()]
        if one_id and any(len(raw_record.get("id", [])) != 1 for raw_record in raw):
            raise ValueError("a record without one id")
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise DatasetError(
            f"A record of {data} cannot be read ({error}). Find out more: t5prep verify {data}"
        ) from error
    return [[raw_record.get(name, []) for raw_record in raw] for name in names]


def filled(texts: Sequence[Sequence[bytes]]) -> np.ndarray:
    """Return texts as bytes[rows, most], b"" where a row has fewer."""
    max_texts = max(map(len, texts))
    return np.array([[*row_texts, *[b""] * (max_texts - len(row_texts))] for row_texts in texts], object).reshape(
        len(texts), max_texts
    )


def _aligned(rows: int, length: int) -> np.ndarray:
    """Return room for int32[rows, length] that begins where TensorFlow and jax take an array without copying it."""
    room = np.empty(rows * length + ALIGNMENT // 4, np.int32)
    begin = -room.ctypes.data % ALIGNMENT // 4
    return room[begin : begin + rows * length].reshape(rows, length)


def decoder(datasets: Sequence[DatasetSplit], *, masks: bool = True, bucket: Lengths | None = None) -> RecordDecoder:
    """Return a reader in C of the ids of records.

    `input_ids` have `input_length` places, `labels` `target_length`, with -100 where there is no target. Packed datasets
    have segment ids and positions too. Rows of datasets of different lengths are padded to the longest, those of a `bucket`
    to its lengths. Of `masks` it makes the plain ones: those of packed rows and of pairs are left to `with_mask`.
    """
    dataset = datasets[0].manifest
    padding, packed = Padding.of_dataset(dataset), datasets[0].settings.is_packed
    plain = masks and padding.separator is None and not packed
    lengths = _lengths(datasets)
    return RecordDecoder(
        lengths=dict(zip(("input_ids", "labels"), bucket, strict=True)) if bucket else lengths,
        fills=fills_of(datasets[0]),
        counts={} if _ragged(datasets) else lengths,
        pad_id=padding.pad_id if plain else None,
    )


def _lengths(datasets: Sequence[DatasetSplit]) -> dict[str, int]:
    """Return the features that are lists of ids, and how many ids a row of each has."""
    longest = map(max, zip(*(dataset_split.lengths for dataset_split in datasets), strict=True))
    lengths = dict(zip(("input", "label"), longest, strict=True))
    names = ["input_ids", "labels", *(_PACKED if datasets[0].settings.is_packed else ())]
    return {name: lengths[name.removesuffix("s").partition("_")[0]] for name in names}


def fills_of(opened: DatasetSplit) -> dict[str, int]:
    """Return what rows are filled up with, by feature, if that is not 0."""
    return {"input_ids": opened.manifest.tokenizer.pad_id, "labels": tfrecord.IGNORED_LABEL}


def _ragged(datasets: Sequence[DatasetSplit]) -> bool:
    """Return whether records may have fewer ids than a row."""
    shapes = {(dataset_split.settings.layout, dataset_split.lengths) for dataset_split in datasets}
    return len(shapes) > 1 or datasets[0].settings.layout == "ragged"
