"""Parse serialized records into the trainer's arrays, a batch at a time: in C, or in Python if a record is unusual."""

from collections.abc import Mapping, Sequence

import numpy as np

from t5prep._native import decode_rows
from t5prep.dataset import tfrecord
from t5prep.dataset.prepared import DatasetSplit
from t5prep.dataset.tfrecord import Records
from t5prep.errors import DatasetError
from t5prep.training.settings.padding import Padding
from t5prep.training.settings.train_config import Lengths

_PACKED = ("input_segment_ids", "input_positions", "label_segment_ids", "label_positions")

ALIGNMENT = 64  # bytes; Eigen's alignment for the widest vectors, without which TensorFlow copies an array


class RecordDecoder:
    """Read features of records as int32[records, length of the feature], in the order of `lengths`.

    Args:
        lengths: The length of a row, by the feature's name.
        fills: The value that fills up a row, by the feature's name; 0 by default.
        counts: The exact number of ids that a record must have, by the feature's name. A row takes the first of them. A
            feature without a count may have fewer ids than a row.
        pad_id: Add the `attention_mask` of the first feature, which is 0 where an id is `pad_id`. This equals
            `forward.token_mask` for rows that are neither packed nor pairs. None adds no mask.
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
        """Return one array for each feature of `names`. Raises DatasetError for a damaged record."""
        rows = len(records.places)
        arrays = [_aligned(rows, length) for length in self.lengths]
        features = tuple((spec[0], ids, *spec[1:]) for spec, ids in zip(self._how, arrays, strict=False))
        mask, pad = (None, 0) if self._pad_id is None else (arrays[-1], self._pad_id)
        pages, places = tuple(records.pages), np.ascontiguousarray(records.places)
        if decode_rows(pages, places, features, mask, pad) == rows:
            return arrays
        # The C code stops at the first record that `prepare` would not have written so. Python reads any valid
        # tf.train.Example, and names the fault of an invalid one.
        for row, record in enumerate(records.serialized()):
            _read_one(record, row, features)
        if mask is not None:
            np.not_equal(arrays[0], pad, out=mask)
        return arrays


def _read_one(record: bytes, row: int, features: Sequence[tuple[bytes, np.ndarray, int, int, int]]) -> None:
    """Read a serialized tf.train.Example of any form into row `row` of each feature's array. Raises DatasetError.

    features: name, array, length, fill and count of each, as in `RecordDecoder`; a count of -1 is none.
    """
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
        raise DatasetError(
            f"A record cannot be read ({error}). Check the data: t5prep verify DATA", code="dataset.damaged"
        ) from error


def texts_of(records: Records, *names: str, one_id: bool, data: str = "DATA") -> list[list[list[bytes]]]:
    """Return for each of the byte features `names` the texts of each record; an empty list where a record lacks the feature.

    `data` is the dataset's name for errors. Raises DatasetError, with `one_id` also for a record without exactly one id.
    """
    try:
        raw = [tfrecord.raw_features(record, names=names) for record in records.serialized()]
        if one_id and any(len(raw_record.get("id", [])) != 1 for raw_record in raw):
            raise ValueError("a record without one id")
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise DatasetError(
            f"A record of {data} cannot be read ({error}). Check the data: t5prep verify {data}", code="dataset.damaged"
        ) from error
    return [[raw_record.get(name, []) for raw_record in raw] for name in names]


def filled(texts: Sequence[Sequence[bytes]]) -> np.ndarray:
    """Return texts as an object array of bytes[rows, most], filled up with b"" where a row has fewer."""
    max_texts = max(map(len, texts))
    return np.array([[*row_texts, *[b""] * (max_texts - len(row_texts))] for row_texts in texts], object).reshape(
        len(texts), max_texts
    )


def _aligned(rows: int, length: int) -> np.ndarray:
    """Return an uninitialized int32[rows, length] at an aligned address, so that TensorFlow and jax need not copy it."""
    room = np.empty(rows * length + ALIGNMENT // 4, np.int32)
    begin = -room.ctypes.data % ALIGNMENT // 4
    return room[begin : begin + rows * length].reshape(rows, length)


def decoder(datasets: Sequence[DatasetSplit], *, masks: bool = True, bucket: Lengths | None = None) -> RecordDecoder:
    """Return the decoder of the records of `datasets`, which are mixed.

    It gives `input_ids`, int32[records, input_length], and `labels`, int32[records, target_length], with -100 where there is
    no target. Packed datasets add segment ids and positions. Rows are padded to the lengths of `bucket`, or to those of the
    longest dataset. With `masks` it adds `attention_mask`, except for packed rows and pairs: `forward.with_mask` computes
    theirs.
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
    """Return the number of ids in a row, by the name of each feature that is a list of ids."""
    longest = map(max, zip(*(dataset_split.lengths for dataset_split in datasets), strict=True))
    lengths = dict(zip(("input", "label"), longest, strict=True))
    names = ["input_ids", "labels", *(_PACKED if datasets[0].settings.is_packed else ())]
    return {name: lengths[name.removesuffix("s").partition("_")[0]] for name in names}


def fills_of(opened: DatasetSplit) -> dict[str, int]:
    """Return the value that fills up rows, by feature, for the features where it may differ from 0."""
    return {"input_ids": opened.manifest.tokenizer.pad_id, "labels": tfrecord.IGNORED_LABEL}


def _ragged(datasets: Sequence[DatasetSplit]) -> bool:
    """Return whether records may have fewer ids than a row."""
    shapes = {(dataset_split.settings.layout, dataset_split.lengths) for dataset_split in datasets}
    return len(shapes) > 1 or datasets[0].settings.layout == "ragged"
