"""Pushing a run while it trains: each better checkpoint once, failures tried again, and the end of it."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.errors import OutputError, UsageError
from t5prep.train.publish import best
from t5prep.train.run import checkpoint as checkpoints
from t5prep.train.run.checkpoint import State
from t5prep.train.run.run import SETTINGS as SETTINGS_FILE
from t5prep.train.settings import config as configs

SETTINGS = dataclasses.asdict(configs.build({"data": "d", "out": "o", "model": "m", "steps": 30}))


@pytest.fixture(autouse=True)
def _run_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / SETTINGS_FILE).write_text("{}")
    monkeypatch.chdir(tmp_path)


def a_state(step: int, **values: Any) -> State:
    return State(step=step, config=SETTINGS, data=[], tokenizer="", metric="loss", **values)


class Run:
    """A run whose newest and best checkpoints are those of the next look."""

    def __init__(self, looks: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks, self.pushed, self.fails = looks, [], 0
        monkeypatch.setattr(checkpoints, "last", lambda name: self._last())
        monkeypatch.setattr(checkpoints, "best", lambda name: (f"{name}/checkpoints/{looks[0][1]:08d}", None))
        monkeypatch.setattr(best, "export_hf", self._export)
        monkeypatch.setattr(best, "push", self._push)
        monkeypatch.setattr(best.time, "sleep", lambda seconds: self.looks.pop(0))

    def _last(self) -> tuple[str, State] | None:
        newest = self.looks[0][0]
        return (f"run/checkpoints/{newest:08d}", a_state(newest)) if newest else None

    def _export(self, name: str, *, out: str, which: str) -> None:
        Path(out).mkdir()
        (Path(out) / "step").write_text(which)

    def _push(self, directory: str, *, repo: str, private: bool, message: str) -> str:
        if self.fails:
            self.fails -= 1
            raise OutputError("The Hub is away.")
        self.pushed.append((Path(directory).name, (Path(directory) / "step").read_text(), message))
        return f"https://hub/{repo}"


def test_each_better_checkpoint_is_pushed_once_until_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run([(0, 0), (10, 10), (15, 10), (20, 20), (30, 20)], monkeypatch)
    assert best.push_best("run", repo="me/model", follow=True) == "https://hub/me/model"
    assert [step for _, step, _ in run.pushed] == ["10", "20"]
    assert run.pushed[0] == ("model", "10", "Step 10, exported by t5prep")
    assert run.looks == [(30, 20)]


def test_a_run_is_waited_for_before_its_folder_exists(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run([(0, 0), (0, 0), (30, 30)], monkeypatch)
    shutil.rmtree("run")
    with pytest.raises(UsageError, match="is not a run"):
        best.push_best("run", repo="me/model")
    sleep = best.time.sleep

    def begins(seconds: float) -> None:
        if len(run.looks) == 2:
            Path("run").mkdir()
            (Path("run") / SETTINGS_FILE).write_text("{}")
        sleep(seconds)

    monkeypatch.setattr(best.time, "sleep", begins)
    best.push_best("run", repo="me/model", follow=True)
    assert [step for _, step, _ in run.pushed] == ["30"]
    assert capsys.readouterr().err.count("waiting for the run to begin") == 1


def test_an_exported_model_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(UsageError, match="is an exported model, and --follow is for a run"):
        best.push_best(str(tmp_path), repo="me/model", follow=True)


def test_a_push_that_fails_is_tried_again_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run([(10, 10), (30, 30), (30, 30), (30, 30)], monkeypatch)
    run.fails = 2
    best.push_best("run", repo="me/model", follow=True)
    assert [step for _, step, _ in run.pushed] == ["30"]
    run.fails, run.looks[0] = 1, (30, 30)
    with pytest.raises(OutputError, match="away"):
        best.push_best("run", repo="me/model")


def test_a_run_without_a_checkpoint_and_a_run_that_stopped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    Run([(0, 0)], monkeypatch)
    with pytest.raises(UsageError, match="has no checkpoint yet: wait for its first, or add --follow"):
        best.push_best("run", repo="me/model")
    stopped = dataclasses.replace(a_state(10, stale=3), config={**SETTINGS, "patience": 3})
    assert best.finished("run", stopped)
    assert not best.finished("run", a_state(29))
