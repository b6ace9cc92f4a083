"""Runs that Weights & Biases, Trackio and MLflow are told of, through modules with the functions that their documentation names."""

import importlib.util
import inspect
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import training

from t5prep.errors import UsageError
from t5prep.train import tracking
from t5prep.train.log import RunLog
from t5prep.train.settings import config as configs
from t5prep.train.settings.config import TrainConfig

SECRET = "wandb_v1_not_to_be_seen"


class Client(types.ModuleType):
    """A client that remembers what it is told, and has the signatures of the real one."""

    def __init__(self, name: str, *, broken: bool = False) -> None:
        super().__init__(name)
        self.__spec__ = importlib.util.spec_from_loader(name, loader=None)
        self.told: list[tuple[Any, ...]] = []
        self.broken = broken
        if name == "wandb":
            self.Settings, self.init = self._settings, self._wandb_init
        elif name == "trackio":
            self.init, self.log, self.finish = self._trackio_init, self._log, self._end
        else:
            self.start_run, self.log_params, self.log_metrics, self.end_run = (
                self._start_run,
                self._log_params,
                self._log,
                self._end,
            )

    def _settings(self, *, console: str) -> dict[str, str]:
        return {"console": console}

    def _wandb_init(self, *, project: str, id: str, name: str, config: dict, resume: str, settings: Any) -> Any:
        self.told.append(("begin", id, project, resume, config))
        assert settings == {"console": "off"}
        return types.SimpleNamespace(log=self._log, finish=self._end)

    def _trackio_init(self, *, project: str, name: str, config: dict, resume: str, embed: bool) -> None:
        self.told.append(("begin", name, project, resume, config))

    def _start_run(self, run_id: str | None = None, *, run_name: str | None = None) -> Any:
        id = run_id or f"{run_name}1"
        self.told.append(("begin", id, "t5prep", "allow", {}))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=id))

    def _log_params(self, params: dict) -> None:
        self.told.append(("params", params))

    def _log(self, metrics: dict, step: int | None = None) -> None:
        if self.broken:
            raise ConnectionError("no network\nhere")
        self.told.append((step, metrics))

    def _end(self) -> None:
        self.told.append(("end",))


@pytest.fixture(params=tracking.PACKAGES)
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client(request.param)
    monkeypatch.setitem(sys.modules, request.param, made)
    return made


def config_of(out: Path, client: str) -> TrainConfig:
    return configs.build({"data": ("d",), "model": "tiny", "out": str(out), "track": client})


def test_the_numbers_are_those_of_the_log_and_a_run_goes_on(tmp_path: Path, client: Client) -> None:
    said: list[str] = []
    for start, step in enumerate((1, 2)):
        with tracking.tracked(config_of(tmp_path, client.__name__), said=said.append) as tracker:
            log = RunLog(str(tmp_path), step=start, steps=9, tokens_per_step=1.0, tensorboard=False, tracker=tracker)
            log.record(step, {"loss": 0.5 * step}, prefix="")
            log.record(step, {"f1": 0.25}, prefix="validation_", device="8 × TPU")
    begins = [one for one in client.told if one[0] == "begin"]
    assert [one[1] for one in begins] == [json.loads((tmp_path / tracking.KEPT).read_text())["id"]] * 2
    assert {one[2:4] for one in begins} == {("t5prep", "allow")}
    sent = [one for one in client.told if isinstance(one[0], int)]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert sent == [
        (line["step"], {name: value for name, value in line.items() if name not in ("step", "device")})
        for line in lines
    ]
    assert [one for one in client.told if one == ("end",)] == [("end",)] * 2
    settings = begins[0][4] or client.told[1][1]
    assert (settings["model"], settings["data"], settings["batch"]) == ("tiny", "d", 128)
    assert said == []


def test_a_client_that_fails_ends_no_training(tmp_path: Path, client: Client) -> None:
    said: list[str] = []
    client.broken = True
    with tracking.tracked(config_of(tmp_path, client.__name__), said=said.append) as tracker:
        assert tracker
        for step in (1, 2):
            tracker.log(step, {"loss": 1.0})
    assert said == ["No more is sent to the tracker (ConnectionError: no network). metrics.jsonl has all numbers."]


def test_a_client_that_cannot_begin_is_a_sentence(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("not logged in\nTraceback")

    for name in ("init", "start_run"):
        monkeypatch.setattr(client, name, refuse, raising=False)
    with (
        pytest.raises(UsageError, match=r"cannot begin a run \(RuntimeError: not logged in\)\. .* --set track=none"),
        tracking.tracked(config_of(tmp_path, client.__name__), said=print),
    ):
        pass


def test_a_client_that_is_missing_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in tracking.PACKAGES:
        with pytest.raises(UsageError, match=f"pip install {name}$"):
            tracking.check(name)
    tracking.check("none")


def test_settings_of_other_trainers_are_known() -> None:
    with pytest.raises(UsageError, match="track"):
        configs.build({"report_to": "wandb"})


# What is called of each client: the function, and the names of its arguments.
CALLED = {
    "wandb": {"init": ["project", "id", "name", "config", "resume", "settings"]},
    "trackio": {"init": ["project", "name", "config", "resume", "embed"], "log": ["metrics", "step"], "finish": []},
    "mlflow": {
        "start_run": ["run_id", "run_name"],
        "log_params": ["params"],
        "log_metrics": ["metrics", "step"],
        "end_run": [],
    },
}


@pytest.mark.slow  # they take seconds to begin
def test_installed_clients_have_these_functions_and_work_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("WANDB_MODE", "offline"),
        ("WANDB_API_KEY", SECRET),
        ("WANDB_SILENT", "true"),
        ("HF_HUB_OFFLINE", "1"),
        ("TRACKIO_DIR", str(tmp_path / "trackio")),
        ("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri()),
        ("MLFLOW_ALLOW_FILE_STORE", "true"),
    ):
        monkeypatch.setenv(name, value)
    for name in filter(importlib.util.find_spec, CALLED):
        module = importlib.import_module(name)
        for function, arguments in CALLED[name].items():
            assert set(arguments) <= set(inspect.signature(getattr(module, function)).parameters)
        said: list[str] = []
        (out := tmp_path / f"run-{name}").mkdir()
        with tracking.tracked(config_of(out, name), said=said.append) as tracker:
            assert tracker
            tracker.log(1, {"loss": 2.5})
            tracker.log(2, {"loss": 1.5, "validation_f1": 0.5})
        assert said == []
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.slow
def test_a_run_is_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Client("wandb")
    monkeypatch.setitem(sys.modules, "wandb", made)
    from t5prep.train import trainer

    data, model = training.classes(tmp_path / "d"), training.shape(tmp_path / "m")
    trainer.train(training.config(data, model, tmp_path / "run", track="wandb", steps=4))
    assert made.told[0][0] == "begin"
    assert made.told[-1] == ("end",)
    assert [one[0] for one in made.told if "loss" in one[-1]] == [1, 2, 3, 4]
    assert any("validation_accuracy" in one[-1] for one in made.told)
