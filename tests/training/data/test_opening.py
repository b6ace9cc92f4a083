"""The reader on real files: layouts, evaluation, refusals. (`test_page_rows`: order, exact resume, hosts, mixtures.)"""

import dataclasses
import json
import os

import pytest
import records_in_python
from raised import raises
from toy_dataset import INPUT, SHA, TARGET, write

from t5prep.dataset import tfrecord
from t5prep.dataset.manifest import Feature
from t5prep.dataset.prepared import Dataset
from t5prep.errors import DatasetError, T5prepError, UsageError
from t5prep.training.data import eval_batches, open_datasets, train_batches

COUNTS = [19, 23, 0, 17, 31, 11]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    out = tmp_path_factory.mktemp("toy") / "data"
    write(out, {"train": COUNTS, "validation": [5, 0, 6]})
    return str(out)


@pytest.mark.parametrize("layout", ["padded", "ragged", "packed"])
def test_batches_are_what_a_step_needs(tmp_path, layout):
    write(tmp_path, {"train": [30]}, layout=layout)
    batches = train_batches(str(tmp_path), global_batch=4, seed=0)
    names = {"input_ids": INPUT, "attention_mask": INPUT, "labels": TARGET}
    if layout == "packed":
        names |= {"input_segment_ids": INPUT, "input_positions": INPUT}
        names |= {"label_segment_ids": TARGET, "label_positions": TARGET}
    assert {name: (spec.shape.as_list(), spec.dtype.name) for name, spec in batches.element_spec.items()} == {
        name: ([4, length], "int32") for name, length in names.items()
    }
    for batch in batches.take(7).as_numpy_iterator():
        for row in range(4):
            used = int(batch["attention_mask"][row].sum())
            token = batch["input_ids"][row, 0]
            assert 3 <= used <= INPUT
            assert batch["input_ids"][row].tolist() == [token] * (used - 1) + [1] + [0] * (INPUT - used)
            assert batch["labels"][row].tolist() == [token, 1, -100, -100]


@pytest.mark.parametrize("layout", ["padded", "ragged", "packed"])
@pytest.mark.parametrize(("batch", "limit"), [(4, 0), (11, 0), (5, 9)])
def test_evaluation_reads_every_record_once(tmp_path, layout, batch, limit):
    write(tmp_path, {"validation": [5, 0, 6]}, layout=layout)
    opened, tokens = open_datasets.open_split(Dataset(str(tmp_path)), "validation"), []
    steps = list(eval_batches(opened, batch=batch, limit=limit))
    assert len(steps) == -(-(limit or 11) // batch)
    for step in steps:
        assert step["input_ids"].shape == (batch, INPUT)
        assert (step["input_ids"] != 0).sum(axis=1).min() >= 1
        weighs = (step["labels"] != -100).any(axis=1)
        tokens += step["input_ids"][weighs, 0].tolist()
        if layout == "packed":
            assert step["input_segment_ids"].shape == (batch, INPUT)
            continue
        assert [bool(name) for name in step["id"]] == weighs.tolist()
        assert [name.decode() for name in step["id"] if name] == [
            f"toy/validation/{number - 3}" for number in step["input_ids"][weighs, 0].tolist()
        ]
        assert all(set(row) <= {b"right", b""} for row in step["references"])
    assert tokens == list(range(3, 3 + (limit or 11)))


@pytest.mark.parametrize("shape", [None, [8, 8], [0], [-1], [10**9], []])
def test_features_that_are_missing_or_of_an_absurd_shape_are_one_sentence(tmp_path, shape):
    manifest = write(tmp_path, {"train": [4]})
    features = {name: feature for name, feature in manifest.features.items() if name != "input_ids"}
    if shape is not None:
        features["input_ids"] = Feature("int64", shape)
    (tmp_path / "manifest.json").write_text(dataclasses.replace(manifest, features=features).sealed().dumps())
    with raises(T5prepError, "dataset.invalid-manifest") as error:
        open_datasets.open_split(Dataset(str(tmp_path)), "train")
    assert len(str(error.value).splitlines()) == 1


def edited(**changes):
    def edit(out):
        document = json.loads((out / "manifest.json").read_text())
        (out / "manifest.json").write_text(json.dumps(document | changes))

    return edit


REFUSED = [
    (lambda out: (out / "manifest.json").unlink(), {}, ("dataset.missing-manifest", "manifest.json")),
    (edited(rejected={"empty text": 1}), {}, ("dataset.altered",)),
    (edited(schema=3), {}, ("dataset.unsupported-schema", "2")),
    (lambda out: None, {"tokenizer": "0" * 64}, ("dataset.tokenizer-mismatch",)),
    (
        lambda out: (out / "train.tfrecord-00001-of-00002").unlink(),
        {},
        ("dataset.altered", "00001-of-00002"),
    ),
    (lambda out: (out / "train.tfrecord-00000-of-00002").write_bytes(b"half"), {}, ("dataset.altered", "4 bytes")),
    (lambda out: None, {"split": "trian"}, ("split.unknown",)),
    (lambda out: None, {"split": "empty"}, ("dataset.empty-split",)),
    (lambda out: None, {"hosts": 3}, ("device.indivisible-batch", "8", "3")),
    (lambda out: None, {"hosts": 2, "host": 2}, ("option.out-of-range", "host 2")),
    (lambda out: None, {"hosts": 0}, ("option.out-of-range", "of 0")),
    (lambda out: None, {"global_batch": 0}, ("option.out-of-range", "global_batch 0")),
    (lambda out: None, {"rates": [0]}, ("setting.invalid-rates",)),
]


@pytest.mark.parametrize(("spoil", "options", "message"), REFUSED, ids=[row[2][-1] for row in REFUSED])
def test_what_cannot_be_trained_on_is_refused_before_a_step(tmp_path, spoil, options, message):
    write(tmp_path, {"train": [4, 4], "empty": [0]})
    open_datasets.open_split(Dataset(str(tmp_path)), "train", tokenizer=SHA)
    spoil(tmp_path)
    with raises(T5prepError, *message):
        train_batches(str(tmp_path), **({"global_batch": 8, "seed": 0} | options))


def test_a_dataset_without_an_index_is_one_sentence(tmp_path):
    write(tmp_path, {"train": [4]}, every=0)
    with raises(T5prepError, "dataset.missing-index"):
        train_batches(str(tmp_path), global_batch=2, seed=0)


def test_datasets_that_do_not_fit_together_are_not_mixed(tmp_path):
    write(tmp_path / "a", {"train": [4]})
    write(tmp_path / "b", {"train": [4]}, layout="packed")
    with raises(UsageError, "dataset.mixed-settings", "layout", "packed", "padded"):
        train_batches([str(tmp_path / "a"), str(tmp_path / "b")], global_batch=8, seed=0)


def relabel(shard):
    """Give the records a feature by another name, under right checksums, as another program may write them."""
    with shard.open("rb") as file:
        records = [record.replace(b"input_ids", b"input_abc") for record in tfrecord.read(file)]
    shard.write_bytes(b"".join(map(records_in_python.frame, records)))


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda shard: shard.write_bytes(shard.read_bytes()[:-200] + bytes(200)), "dataset.altered"),
        (lambda shard: os.truncate(shard, 300), "dataset.altered"),
        (lambda shard: shard.unlink(), "dataset.unreadable"),
        (relabel, "dataset.damaged"),
    ],
    ids=["zeros", "truncated", "deleted", "layout"],
)
def test_a_shard_that_changes_while_it_is_read_is_an_error_of_the_dataset_and_not_of_tensorflow(tmp_path, spoil, code):
    write(tmp_path, {"train": [30]})
    (shard,) = tmp_path.glob("train.tfrecord-*")
    batches = train_batches(str(tmp_path), global_batch=4, seed=0)
    spoil(shard)
    assert batches.take(1).element_spec == batches.element_spec
    for read in (
        lambda: list(batches),
        lambda: list(batches.as_numpy_iterator()),
        lambda: [batch for iterator in [iter(batches)] for _ in range(20) for batch in [iterator.get_next()]],
    ):
        with raises(DatasetError, code) as caught:
            read()
        assert "\n" not in str(caught.value)
        assert caught.value.__suppress_context__  # TensorFlow's


def test_a_dataset_may_be_named_by_its_manifest(tmp_path):
    write(tmp_path, {"train": [4, 4]})
    (by_folder,) = open_datasets.open_splits([str(tmp_path)], "train")
    (by_manifest,) = open_datasets.open_splits([str(tmp_path / "manifest.json")], "train")
    assert by_manifest.paths == by_folder.paths
    assert next(iter(train_batches(str(tmp_path / "manifest.json"), global_batch=2, seed=0)))["labels"].shape[0] == 2
