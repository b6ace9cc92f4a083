"""Checkpoints: whole or not there, the last and the best, and never another run's."""

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf
from jax.sharding import NamedSharding, PartitionSpec
from raised import raises

from t5prep.errors import DatasetError, OutputError, UsageError
from t5prep.training.model.weight_layout import WeightLayout
from t5prep.training.run import checkpoint_tensors, checkpoints
from t5prep.training.run.checkpoints import State
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.layout import PARTS
from t5prep.training.runtime.state import Variables
from t5prep.training.settings import train_config

CONFIG = train_config.build({"data": ("d",), "model": "m", "out": "o"})
LAYOUTS = {"a.b": WeightLayout((2, 4), stacked_axes=0, stddev=1.0, tensors=("a.b",))}  # of `_variables`
DATA = [{"uri": "d", "task": "t", "digest": "1" * 64}]


def _state(step: int, **values) -> State:
    fields = {
        "config": json.loads(train_config.dumps(CONFIG)),
        "data": DATA,
        "tokenizer": "2" * 64,
        "metric": "accuracy",
    }
    return State(step=step, **{**fields, **values})


def _variables(value: float = 1.0, *, shard: int = 1, replicas: int = 1, **names: str) -> Variables:
    """Two rows of four, split by columns."""
    layout = open_layout(replicas=replicas, shard=shard)
    columns = NamedSharding(layout.mesh, PartitionSpec(None, PARTS))
    array = np.arange(8, dtype=np.float32).reshape(2, 4) + value
    slots = {"a.b": {names.get("slot", "rows"): jax.device_put(np.array([value, 2.0], np.float32), layout.everywhere)}}
    return Variables({"a.b": jax.device_put(array, columns)}, slots, jax.device_put(np.int32(3), layout.everywhere))


def _tensors(value: float = 1.0, **options: Any) -> Callable[[str], None]:
    return functools.partial(checkpoint_tensors.write, parts=checkpoint_tensors.copied(_variables(value, **options)))


def test_last_and_best_are_kept(tmp_path: Path) -> None:
    for step, value in [(1, 0.5), (2, 0.9), (3, 0.1), (4, None), (5, 0.2), (6, 0.2)]:
        checkpoints.save(str(tmp_path), _tensors(step), state=_state(step, value=value), keep=2)
    assert [state.step for _, state in checkpoints.list_checkpoints(str(tmp_path))] == [2, 5, 6]
    assert checkpoints.best(str(tmp_path))[1].step == 2
    assert checkpoints.choose(str(tmp_path), checkpoint="last")[1].step == 6
    assert checkpoints.choose(str(tmp_path), checkpoint="5")[1].step == 5
    (tmp_path / "checkpoints" / "²").mkdir()  # a digit, but no number
    for unknown in ("4", "²", "9" * 5000):
        with raises(UsageError, "checkpoint.unknown", "2, 5, 6", unknown[:60]):
            checkpoints.choose(str(tmp_path), checkpoint=unknown)


def test_what_a_user_puts_beside_checkpoints_stays(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "the one that I liked").mkdir(parents=True)
    (tmp_path / "checkpoints" / "notes.txt").write_text("the first was better")
    for step in (1, 2, 3):
        checkpoints.save(str(tmp_path), _tensors(step), state=_state(step), keep=1)
    names = ["00000003", "notes.txt", "the one that I liked"]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == names


def test_one_that_cannot_be_reached_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step, value in [(1, 0.5), (2, 0.9)]:
        checkpoints.save(str(tmp_path), _tensors(step), state=_state(step, value=value), keep=1)

    def unavailable(path: str) -> bytes:
        raise OutputError(f"{path} cannot be read: it answers 503", code="bucket.unavailable")

    monkeypatch.setattr(checkpoints.paths, "read", unavailable)
    with pytest.raises(OSError, match="it answers 503"):
        checkpoints.list_checkpoints(str(tmp_path))
    monkeypatch.undo()
    assert [state.step for _, state in checkpoints.list_checkpoints(str(tmp_path))] == [2]


def test_lower_is_better_for_losses_and_nan_is_never_best(tmp_path: Path) -> None:
    for step, value in [(1, 0.5), (2, float("nan")), (3, 0.1), (4, 0.3)]:
        checkpoints.save(str(tmp_path), _tensors(), state=_state(step, value=value, metric="loss"), keep=9)
    assert checkpoints.best(str(tmp_path))[1].step == 3
    assert _state(1, metric="loss", best=0.5).judge(0.4) == (True, 0)
    assert _state(1, metric="loss", best=0.5, stale=1).judge(0.6) == (False, 2)
    assert _state(1, best=0.5, stale=1).judge(0.5) == (False, 2)  # as good is not better, and patience goes on
    assert _state(1, metric="em").judge(0.0) == (True, 0)  # the first value is the best of one
    assert _state(1, metric="em", best=0.0).judge(0.0) == (False, 1)
    assert _state(1, best=0.5).judge(float("nan")) == (False, 1)


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    state = _state(7, value=0.25, metrics={"accuracy": 0.25}, best=0.5, stale=2)
    path = checkpoints.save(str(tmp_path), _tensors(7.0), state=state, keep=1)
    last_checkpoint = checkpoints.last(str(tmp_path))
    assert last_checkpoint
    assert last_checkpoint[0] == path
    assert dataclasses.replace(last_checkpoint[1], files={}) == state
    restored = checkpoint_tensors.restore(path, _variables(0.0))
    assert np.asarray(restored.weights["a.b"]).tolist() == [[7, 8, 9, 10], [11, 12, 13, 14]]
    assert np.asarray(restored.slots["a.b"]["rows"]).tolist() == [7.0, 2.0]
    assert int(restored.step) == 3
    assert checkpoint_tensors.read_weights(path, LAYOUTS)["a.b"][()].tolist() == [[7, 8, 9, 10], [11, 12, 13, 14]]
    deeper = {"a.b": dataclasses.replace(LAYOUTS["a.b"], shape=(3, 4))}
    with raises(OutputError, "checkpoint.model-mismatch"):
        checkpoint_tensors.read_weights(path, deeper)
    assert checkpoint_tensors.has_weight(path, "a.b")
    assert not checkpoint_tensors.has_weight(path, "a.c")
    smaller = _variables()._replace(weights={"a.b": jax.numpy.zeros(1)})
    with raises(OutputError, "checkpoint.model-mismatch"):
        checkpoint_tensors.restore(path, smaller)
    with raises(OutputError, "checkpoint.model-mismatch"):
        checkpoint_tensors.restore(path, _variables(slot="columns"))


@pytest.mark.parametrize(("written", "read"), [((1, 1), (1, 4)), ((2, 4), (1, 2)), ((1, 4), (4, 1)), ((1, 4), (2, 2))])
def test_what_some_devices_wrote_is_read_onto_others(
    tmp_path: Path, written: tuple[int, int], read: tuple[int, int]
) -> None:
    """(replicas, shard) before and after; each part is written once, by the first device that holds it."""
    write_tensors = _tensors(5.0, replicas=written[0], shard=written[1])
    path = checkpoints.save(str(tmp_path), write_tensors, state=_state(1), keep=1)
    expected = _variables(5.0, replicas=read[0], shard=read[1])
    restored = checkpoint_tensors.restore(path, _variables(0.0, replicas=read[0], shard=read[1]))
    assert np.array_equal(restored.weights["a.b"], expected.weights["a.b"])
    assert restored.weights["a.b"].sharding == expected.weights["a.b"].sharding
    assert checkpoint_tensors.read_weights(path, LAYOUTS)["a.b"][()].tolist() == [[5, 6, 7, 8], [9, 10, 11, 12]]
    assert sum(file.stat().st_size for file in Path(path).glob("state.data*")) < 2 * 44


@pytest.mark.parametrize("half", ["no marker", "no data", "nothing"])
def test_a_half_written_checkpoint_is_none(tmp_path: Path, half: str) -> None:
    checkpoints.save(str(tmp_path), _tensors(), state=_state(1), keep=3)
    path = Path(checkpoints.save(str(tmp_path), _tensors(), state=_state(2), keep=3))
    (path / "checkpoint.json").unlink()
    if half != "no marker":
        (path / "state.data-00000-of-00001").unlink()
    if half == "nothing":
        (path / "state.index").unlink()
    assert checkpoints.last(str(tmp_path))[1].step == 1  # type: ignore[index]
    checkpoints.save(str(tmp_path), _tensors(5.0), state=_state(2), keep=3)
    assert checkpoint_tensors.read_weights(str(path), LAYOUTS)["a.b"][0, 0] == 5.0


def test_a_cut_file_and_a_newer_version_are_refused(tmp_path: Path) -> None:
    path = Path(checkpoints.save(str(tmp_path), _tensors(), state=_state(1), keep=3))
    data = path / "state.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    with raises(OutputError, "checkpoint.damaged", "/checkpoints/0000000"):
        checkpoints.last(str(tmp_path))
    description = json.loads((path / "checkpoint.json").read_text())
    (path / "checkpoint.json").write_text(json.dumps({**description, "schema": 2}))
    with raises(OutputError, "checkpoint.unsupported-schema", "/checkpoints/0000000"):
        checkpoints.last(str(tmp_path))


@pytest.mark.parametrize(
    "changed",
    [{"config": None}, {"files": 5}, {"metric": ["a"], "files": []}, {"value": {"a": 5}}, {"more\n": 1}, {"step": "x"}],
)
def test_a_description_of_other_types_is_damaged(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = Path(checkpoints.save(str(tmp_path), _tensors(), state=_state(1), keep=3)) / "checkpoint.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with raises(OutputError, "checkpoint.damaged", "/checkpoints/0000000"):
        checkpoints.last(str(tmp_path))


@pytest.mark.parametrize("spoilt", ["state.data-00000-of-00001", "checkpoint.json"])
def test_a_damaged_checkpoint_that_nobody_needs_is_passed_over(tmp_path: Path, spoilt: str) -> None:
    run = str(tmp_path)
    for step, value in ((1, 0.2), (2, 0.9), (3, 0.1)):
        checkpoints.save(run, _tensors(step), state=_state(step, value=value, best=max(value, 0.2)), keep=3)
    old = tmp_path / "checkpoints" / "00000001"
    (old / spoilt).write_bytes(b"{")
    assert [state.step for _, state in checkpoints.list_checkpoints(run)] == [2, 3]
    assert (checkpoints.best(run)[1].step, checkpoints.choose(run, checkpoint="3")[1].step) == (2, 3)
    assert checkpoints.choose(run, checkpoint="last")[1].step == 3
    with raises(OutputError, "checkpoint.damaged", "/checkpoints/0000000"):
        checkpoints.choose(run, checkpoint="1")
    checkpoints.save(run, _tensors(4), state=_state(4, value=0.3, best=0.9), keep=2)
    assert [state.step for _, state in checkpoints.list_checkpoints(run)] == [2, 3, 4]
    assert not old.exists()


def test_a_damaged_checkpoint_that_is_needed_is_named_and_kept(tmp_path: Path) -> None:
    run = str(tmp_path)
    for step, value in ((1, 0.9), (2, 0.1), (3, 0.2)):
        checkpoints.save(run, _tensors(step), state=_state(step, value=value, best=0.9), keep=2)
    best = tmp_path / "checkpoints" / "00000001" / "checkpoint.json"
    content = best.read_bytes()
    best.write_bytes(content[:40])
    with raises(OutputError, "checkpoint.damaged", "00000001/checkpoint.json"):
        checkpoints.best(run)
    checkpoints.save(run, _tensors(4), state=_state(4, value=0.3, best=0.9), keep=2)  # training goes on
    best.write_bytes(content)
    assert checkpoints.best(run)[1].step == 1
    (tmp_path / "checkpoints" / "00000004" / "checkpoint.json").write_bytes(b"")
    with raises(OutputError, "checkpoint.damaged", "00000004/checkpoint"):  # the run would go on from an earlier step
        checkpoints.last(run)


@pytest.mark.parametrize(
    ("saved_processors", "now", "warns"), [(2, 4, True), (4, 2, True), (2, 2, False), (0, 2, False), (2, 0, False)]
)
def test_another_number_of_processors_is_a_warning(saved_processors: int, now: int, warns: bool) -> None:
    state = dataclasses.replace(_state(1), processors=saved_processors)
    warning = checkpoints.other_processors(state, now)
    assert bool(warning) == warns
    if warns:
        assert f"began with {saved_processors} processors" in warning


def test_another_run_is_refused() -> None:
    def check(**changed) -> None:
        arguments = {"config": CONFIG, "data": DATA, "tokenizer": "2" * 64, **changed}
        checkpoints.check(
            "RUN", _state(1, **changed.pop("state", {})), **{k: v for k, v in arguments.items() if k != "state"}
        )

    check()
    check(config=dataclasses.replace(CONFIG, out="elsewhere", keep=7))
    with raises(UsageError, "checkpoint.settings-mismatch", "RUN", "batch", "64"):
        check(config=dataclasses.replace(CONFIG, batch=64))
    advice = "--model RUN --set weights=pretrained --out NEW"  # else they stay random
    with raises(UsageError, "checkpoint.settings-mismatch", "random", advice):
        check(config=dataclasses.replace(CONFIG, weights="random"))
    with raises(DatasetError, "checkpoint.dataset-mismatch", "RUN", "9" * 12):
        check(data=[{**DATA[0], "digest": "9" * 64}])
    with raises(DatasetError, "checkpoint.tokenizer-mismatch", "RUN", "2" * 12, "3" * 12):
        check(tokenizer="3" * 64)
    with raises(UsageError, "checkpoint.version-mismatch", "RUN", "tensorflow 1.0"):
        check(state={"versions": {**checkpoints.versions(), "tensorflow": "1.0"}})


def test_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = str(tmp_path / "not" / "there")
    assert "100 bytes each, 500 bytes at most" in checkpoints.check_space(run, size=100, keep=3)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1000, 900, 100))
    with raises(OutputError, "output.no-space", "100 bytes"):
        checkpoints.check_space(run, size=100, keep=3)
    assert "gs://b/r" in checkpoints.check_space("gs://b/r", size=10**12, keep=3)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    with raises(OutputError, "output.unwritable", "/checkpoints/0000000"):
        checkpoints.save(str(tmp_path), _tensors(), state=_state(1), keep=1)


def _dump_config(**values: Any) -> dict[str, Any]:
    return json.loads(train_config.dumps(dataclasses.replace(CONFIG, **values)))


def test_of_equal_scores_the_first_is_the_best_as_for_patience(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoints.save(str(tmp_path), _tensors(), state=_state(step, value=0.5), keep=1)
    assert checkpoints.best(str(tmp_path))[1].step == 1
    assert _state(2, value=0.5, best=0.5, stale=4).judge(0.5) == (False, 5)


def test_scores_of_other_evaluations_are_not_compared(tmp_path: Path) -> None:
    """One record was evaluated first, whose score is no score of all records."""
    one_row_config, every = _dump_config(eval_rows=1, metric="loss"), _dump_config(metric="loss")
    for step, value, config in ((1, 0.01, one_row_config), (2, 0.9, every), (3, 0.95, every)):
        checkpoints.save(
            str(tmp_path), _tensors(), state=_state(step, value=value, metric="loss", config=config), keep=9
        )
    assert checkpoints.best(str(tmp_path))[1].step == 2
    stopped = _state(1, value=0.01, best=0.01, stale=2, metric="loss", config=one_row_config)
    now = dataclasses.replace(CONFIG, metric="loss")
    assert "eval_rows" in checkpoints.judged_anew(stopped, now)
    assert not checkpoints.judged_anew(stopped, dataclasses.replace(now, eval_rows=1, patience=7))


def test_what_a_failed_checkpoint_left_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(prefix: str) -> None:
        Path(f"{prefix}.data").write_bytes(b"half of it")
        raise tf.errors.ResourceExhaustedError(
            None, None, "{{function_node __wrapped__SaveV2}} /run/x; No space left on device [Op:SaveV2]"
        )

    with raises(OutputError, "output.unwritable", "/checkpoints/0000000") as error:
        checkpoints.save(str(tmp_path), full, state=_state(4), keep=1)
    assert "{{" not in str(error.value)
    assert not list((tmp_path / "checkpoints").iterdir())
    (tmp_path / "checkpoints" / "00000008").mkdir()  # as a kill leaves it
    (tmp_path / "checkpoints" / "mine").mkdir()
    checkpoints.check_space(str(tmp_path), size=1, keep=1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["mine"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1000, 900, 100))
    with raises(OutputError, "output.no-space"):  # keep=1 is set already
        checkpoints.check_space(str(tmp_path), size=100, keep=1)
