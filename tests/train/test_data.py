"""The reader on real files: order, exact resume, hosts, layouts, mixtures, evaluation, refusals."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from toy_dataset import INPUT, SHA, TARGET, global_rows, write

from t5prep.dataset.manifest import Feature
from t5prep.errors import T5prepError, UsageError
from t5prep.train.data import order

pytest.importorskip("tensorflow", reason="needs the extra train")
from t5prep.train.data import eval_batches, opening, steps_per_epoch, train_batches

COUNTS = [19, 23, 0, 17, 31, 11]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    out = tmp_path_factory.mktemp("toy") / "data"
    write(out, {"train": COUNTS, "validation": [5, 0, 6]})
    return str(out)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(order, "WINDOW", 64)


def ids(batches, steps):
    """The ids of some batches, one list a step."""
    return [[i.decode() for i in batch["id"].tolist()] for batch in batches.take(steps).as_numpy_iterator()]


def expected(*, seed, global_batch, steps):
    full = [count for count in COUNTS if count]
    before = [0, *itertools.accumulate(full)]
    rows = global_rows(tuple(full), seed=seed, global_batch=global_batch, steps=steps)
    return [[f"toy/train/{before[shard] + n}" for _, shard, n in batch] for batch in rows]


@pytest.mark.parametrize("global_batch", [1, 6, 10])
def test_batches_follow_the_published_order(data, global_batch):
    steps = 2 * sum(COUNTS) // global_batch + 2
    read = ids(train_batches(data, global_batch=global_batch, seed=5, with_ids=True), steps)
    assert read == expected(seed=5, global_batch=global_batch, steps=steps)
    assert len(set(itertools.chain(*read[: sum(COUNTS) // global_batch]))) == sum(COUNTS) // global_batch * global_batch


@pytest.mark.parametrize("resumed", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_a_run_resumed_at_any_step_goes_on_as_if_it_had_not_stopped(data, resumed):
    whole = ids(train_batches(data, global_batch=8, seed=1, with_ids=True), 64)
    for step in np.random.default_rng(0).integers(0, 60, resumed).tolist():
        assert (
            ids(train_batches(data, global_batch=8, seed=1, start_step=step, with_ids=True), 2)
            == whole[step : step + 2]
        )


@pytest.mark.parametrize("hosts", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_hosts_see_together_what_one_host_sees(data, hosts):
    def of(host, hosts):
        return ids(train_batches(data, global_batch=8, seed=1, start_step=3, host=host, hosts=hosts, with_ids=True), 20)

    together = zip(*(of(host, hosts) for host in range(hosts)), strict=True)
    assert [list(itertools.chain(*step)) for step in together] == of(0, 1)


def test_a_host_opens_only_the_shards_of_its_lanes(data):
    """Two hosts, five full shards, four lanes: over an epoch a host must not need every file."""
    from t5prep.train.data import lanes
    from t5prep.train.data.opening import open_split

    opened = open_split(data, split="train")
    table = order.table(8, len(opened.counts))
    deal = order.Deal(opened.counts, 1, table.lanes, table.width)
    mine = {
        int(shard)
        for lane in range(table.lanes // 2)
        for shard, _, take in zip(*deal.pieces(np, lane, 0, 0), strict=True)
        if take
    }
    assert len(mine) < len(opened.counts)
    other = next(i for i in range(len(opened.counts)) if i not in mine)
    gone = dataclasses.replace(opened, paths=tuple(p if i != other else "/nowhere" for i, p in enumerate(opened.paths)))
    rows = lanes.rows([gone], seed=1, global_batch=8, start_step=0, shares=[table.lane_rows], host=0, hosts=2)
    assert len(list(rows.take(1))) == 1


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
@pytest.mark.parametrize(("batch", "hosts"), [(4, 2), (11, 1)])
def test_evaluation_reads_every_record_once(tmp_path, layout, batch, hosts):
    write(tmp_path, {"validation": [5, 0, 6]}, layout=layout)
    seen = []
    for host in range(hosts):
        batches = eval_batches(
            str(tmp_path), batch=batch, host=host, hosts=hosts, with_ids=True, with_references=layout == "padded"
        )
        steps = list(batches.as_numpy_iterator())
        assert len(steps) == -(-11 // batch)
        for step in steps:
            assert step["input_ids"].shape == (batch // hosts, INPUT)
            assert step["attention_mask"].sum(axis=1).min() >= 1
            names = step["id"] if layout != "packed" else [row[0] if len(row) else b"" for row in step["id"]]
            weighs = (step["labels"] != -100).any(axis=1)
            assert [bool(name) for name in names] == weighs.tolist()
            seen += [name.decode() for name in names if name]
            if layout == "padded":
                assert all(set(row) <= {b"right", b""} for row in step["references"])
    assert seen == [f"toy/validation/{n}" for n in range(11)]


def test_a_mixture_keeps_its_rates_and_can_be_resumed(tmp_path):
    write(tmp_path / "a", {"train": [40, 41]}, name="a")
    write(tmp_path / "b", {"train": [9, 8, 10]}, name="b")
    both = [str(tmp_path / "a"), str(tmp_path / "b")]

    def read(steps, **options):
        return ids(train_batches(both, global_batch=8, seed=3, rates=[3, 1], with_ids=True, **options), steps)

    whole = read(24)
    names = [name for step in whole for name in step]
    assert sum(name.startswith("b/") for name in names) == len(names) // 4
    assert sorted(name for name in names if name.startswith("a/"))[0] == "a/train/0"
    counted = [names.count(f"b/train/{n}") for n in range(27)]
    assert max(counted) - min(counted) <= 2  # 48 draws of 27: no record is repeated before the others are seen
    assert len({tuple(name[0] for name in step) for step in whole}) > 10  # mixed, not in blocks
    for step in (7, 19):
        assert read(3, start_step=step) == whole[step : step + 3]
    halves = [read(5, start_step=2, host=host, hosts=2) for host in (0, 1)]
    assert [a + b for a, b in zip(*halves, strict=True)] == whole[2:7]


def test_steps_per_epoch_rounds_up(data):
    assert steps_per_epoch(data, split="train", global_batch=8) == 13
    assert steps_per_epoch([data, data], split="train", global_batch=101) == 2


@pytest.mark.parametrize("shape", [None, [8, 8], [0], [-1], [10**9], []])
def test_features_that_are_missing_or_of_an_absurd_shape_are_one_sentence(tmp_path, shape):
    made = write(tmp_path, {"train": [4]})
    features = {name: one for name, one in made.features.items() if name != "input_ids"}
    if shape is not None:
        features["input_ids"] = Feature("int64", shape)
    (tmp_path / "manifest.json").write_text(dataclasses.replace(made, features=features).sealed().dumps())
    with pytest.raises(T5prepError, match=r"says of input_ids: (no such feature|the shape)") as error:
        opening.open_split(str(tmp_path), split="train")
    assert len(str(error.value).splitlines()) == 1


def edited(**changes):
    def edit(out):
        said = json.loads((out / "manifest.json").read_text())
        (out / "manifest.json").write_text(json.dumps(said | changes))

    return edit


REFUSED = [
    (lambda out: (out / "manifest.json").unlink(), {}, "has no manifest.json"),
    (edited(rejected={"empty text": 1}), {}, "was altered"),
    (edited(schema=3), {}, "reads schema 2"),
    (lambda out: None, {"tokenizer": "0" * 64}, "another tokenizer"),
    (lambda out: (out / "train.tfrecord-00001-of-00002").unlink(), {}, "00001-of-00002 is missing"),
    (lambda out: (out / "train.tfrecord-00000-of-00002").write_bytes(b"half"), {}, "is 4 bytes, the manifest says"),
    (lambda out: None, {"split": "trian"}, 'Did you mean "train"'),
    (lambda out: None, {"split": "empty"}, "holds no records"),
    (lambda out: None, {"hosts": 3}, "cannot be dealt to 3 hosts"),
    (lambda out: None, {"rates": [0]}, "one positive rate"),
]


@pytest.mark.parametrize(("spoil", "options", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_cannot_be_trained_on_is_refused_before_a_step(tmp_path, spoil, options, message):
    write(tmp_path, {"train": [4, 4], "empty": [0]})
    opening.open_split(str(tmp_path), split="train", tokenizer=SHA)
    spoil(tmp_path)
    with pytest.raises(T5prepError, match=message):
        train_batches(str(tmp_path), **({"global_batch": 8, "seed": 0} | options))


def test_datasets_that_do_not_fit_together_are_not_mixed(tmp_path):
    write(tmp_path / "a", {"train": [4]})
    write(tmp_path / "b", {"train": [4]}, layout="packed")
    with pytest.raises(UsageError, match="layout is padded and packed"):
        train_batches([str(tmp_path / "a"), str(tmp_path / "b")], global_batch=8, seed=0)
