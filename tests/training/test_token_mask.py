"""A batch goes to its device without a mask: the step computes it from the ids."""

import numpy as np
import pytest
import toy_runs

from t5prep.training.data import device_feed, open_datasets, train_batches
from t5prep.training.model.forward import token_mask, with_mask
from t5prep.training.runtime.devices import open_layout
from t5prep.training.settings.padding import Padding


@pytest.mark.parametrize(
    ("padding", "ids", "expected"),
    [
        (Padding(), [5, 6, 1, 0, 0], [1, 1, 1, 0, 0]),
        (Padding(), [5, 1, 6, 1, 0], [1, 1, 1, 1, 0]),  # two fields of a T5 are one text
        (Padding(), [1, 0, 0, 0, 0], [1, 0, 0, 0, 0]),  # a row that fills up a batch
        (Padding(0, separator=3), [2, 5, 3, 6, 3, 0, 0], [1, 1, 1, 2, 2, 0, 0]),
        (Padding(0, separator=3), [2, 5, 6, 3, 0], [1, 1, 1, 1, 0]),
        (Padding(1, separator=2), [0, 5, 2, 2, 6, 2, 1], [1, 1, 1, 2, 2, 2, 0]),  # RoBERTa: <s> a </s></s> b </s> <pad>
        (Padding(1, separator=2), [0, 5, 6, 7], [1, 1, 1, 1]),
    ],
)
def test_mask_of_ids(padding, ids, expected):
    batch = {"input_ids": np.array([ids, ids[::-1]], np.int32)}
    assert token_mask(batch, padding).numpy()[0].tolist() == expected
    masked_batch = with_mask(batch | {"attention_mask": np.ones([2, len(ids)], np.int32)}, padding)
    assert masked_batch["attention_mask"].all()


def test_packed_rows_are_masked_by_their_segments():
    batch = {"input_ids": np.array([[5, 0, 1, 0]]), "input_segment_ids": np.array([[1, 1, 2, 0]])}
    assert token_mask(batch, Padding()).numpy().tolist() == [[1, 1, 1, 0]]


def test_a_batch_is_sent_without_its_mask(tmp_path):
    data = toy_runs.classes(tmp_path / "classes")
    config = toy_runs.config(data, "tiny", tmp_path / "run")
    opened = open_datasets.open_splits([data], "train")
    sent = next(device_feed.device_batches(opened, config, layout=open_layout(), start_step=0))
    assert set(sent) == {"input_ids", "labels"}
    read = next(train_batches(data, global_batch=config.batch, seed=config.seed).as_numpy_iterator())
    np.testing.assert_array_equal(sent["input_ids"], read["input_ids"])
    mask = token_mask({"input_ids": read["input_ids"]}, Padding.of_dataset(opened[0].manifest))
    np.testing.assert_array_equal(mask, read["attention_mask"])
