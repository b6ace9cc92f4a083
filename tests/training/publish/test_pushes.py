"""Pushes of a run, while it trains and after it, with the real client against a Hub on loopback."""

import dataclasses
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import toy_runs
from click.testing import CliRunner
from raised import assert_error, raises
from servers.http import Answer, Fault
from servers.internet import Internet
from servers.writable_hub import WritableHub, writable_hub  # noqa: F401 - a fixture

from t5prep import cli
from t5prep.errors import UsageError
from t5prep.tokens import loading
from t5prep.training import trainer
from t5prep.training.model.weights import random_weights
from t5prep.training.publish import pushes
from t5prep.training.run import checkpoints, run
from t5prep.training.settings import train_config

SHAPE = dataclasses.replace(run.TINY, vocab_size=128, d_model=8, d_kv=4, d_ff=8, num_heads=2)
LOSSES = {1: 0.9, 2: 0.5, 3: 0.7, 4: 0.3}  # by step; the run has four


class Run:
    """A run of four steps whose checkpoints are written when a test says so."""

    def __init__(self, out: Path) -> None:
        self.out = str(out)
        settings = train_config.build({"model": "m", "data": ("d",), "out": self.out, "steps": 4})
        run.begin(self.out, config=settings, shape=SHAPE, tokenizer=loading.load("sample:"), datasets=())
        self._state = checkpoints.State(
            step=0, config=dataclasses.asdict(settings), data=[], tokenizer="", metric="loss"
        )

    def reach(self, step: int) -> None:
        state = dataclasses.replace(self._state, step=step, value=LOSSES[step])
        checkpoints.save(self.out, toy_runs.writer(random_weights(SHAPE, seed=step)), state=state, keep=4)


def test_the_best_checkpoint_is_pushed(internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", internet.hub.token)
    toy_run = Run(tmp_path / "run")
    with raises(UsageError, "run.no-checkpoint"):
        pushes.push_best(toy_run.out, repo="me/model")
    for step in LOSSES:
        toy_run.reach(step)
    assert pushes.push_best(toy_run.out, repo="me/model").endswith("/me/model")
    assert internet.hub.commits["me/model"] == ["Step 4, exported by t5prep"]
    # What is there now is the best checkpoint, as any reader of the Hub gets it.
    pushed = run.open_model("me/model")
    assert all(np.array_equal(pushed.weights[name], value) for name, value in random_weights(SHAPE, seed=4).items())
    assert pushed.tokenizer is not None


def test_a_folder_that_is_no_run_is_not_pushed(tmp_path: Path) -> None:
    with raises(UsageError, "run.foreign-folder"):
        pushes.push_best(str(tmp_path), repo="me/model")


def test_a_run_is_pushed_with_its_logs_exported_and_reported_with_its_results_without_a_device(
    writable_hub: type[WritableHub],  # noqa: F811
    tmp_path: Path,
) -> None:
    """Beside a training on a TPU, whoever opens the TPU too takes its chips away: here, opening any device is an error."""
    import huggingface_hub.constants

    toy_run = Run(tmp_path / "run")
    toy_run.reach(4)
    (tmp_path / "run/tensorboard").mkdir()
    with tf.io.TFRecordWriter(str(tmp_path / "run/tensorboard/events.out.tfevents.1.host")) as events:
        for number in range(2):
            events.write(tf.compat.v1.Event(step=number).SerializeToString())
    results = {"metrics": {"accuracy": 0.75, "labels": ["low", "high"], "confusion": [[30, 10, 0], [5, 15, 0]]}}
    (tmp_path / "eval.json").write_text(json.dumps(results))  # as `eval --predictions` writes it
    environment = {"HF_ENDPOINT": huggingface_hub.constants.ENDPOINT, "JAX_PLATFORMS": "a_device_that_nobody_has"}
    code = (
        "import sys, jax\n"
        "from t5prep.cli import main\n"
        "for line in sys.argv[1:]:\n"
        "    main(line.split(), standalone_mode=False)\n"
        "try:\n"
        "    jax.devices()\n"
        "except RuntimeError:\n"
        "    print('opening a device is an error here')\n"
    )
    lines = [
        f"push --model {toy_run.out} --repo me/model --logs",
        f"export --model {toy_run.out} --out {tmp_path}/exported",
        f"report {toy_run.out} --answers {tmp_path}/eval.json --out {tmp_path}/report.html",
    ]
    command = [sys.executable, "-c", code, *lines]
    result = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.endswith("opening a device is an error here\n")
    assert "Confusion matrix" in (tmp_path / "report.html").read_text(encoding="utf-8")
    (commit,) = (body for path, body in writable_hub.requests if "/commit/" in path)
    sent = [json.loads(line)["value"].get("path") for line in commit.splitlines()]
    assert {"model.safetensors", "runs/events.out.tfevents.1.host"} < set(sent)


def test_the_command_without_a_login_is_one_sentence(internet: Internet, tmp_path: Path) -> None:
    toy_run = Run(tmp_path / "run")
    toy_run.reach(4)
    result = CliRunner().invoke(cli.main, ["push", "--model", toy_run.out, "--repo", "me/model"])
    assert result.exit_code == 1
    assert_error(result.stderr, "hub.missing-login", "hf auth login")


def test_each_checkpoint_is_a_commit_with_its_logs_however_slow_the_network(
    internet: Internet, data: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", internet.hub.token)
    out = tmp_path / "run"
    export = pushes.export_hf
    stop_event = threading.Event()

    def slow_export(name: str, **options: Any) -> str:
        """Export nothing before the last checkpoint is written: others would be deleted by then."""
        for _ in range(6000):
            if (out / "checkpoints" / "00000012" / checkpoints.MARKER).exists():
                break
            stop_event.wait(0.05)
        return export(name, **options)

    monkeypatch.setattr(pushes, "export_hf", slow_export)
    config = toy_runs.config(data, shape, out, push="me/model", save_every=4, keep=1, tensorboard=True)
    trainer.train(config)
    hub = internet.hub
    assert hub.commits["me/model"] == [f"Step {step}, exported by t5prep" for step in (4, 8, 12)]
    history = hub.history["me/model"]
    assert len({files["model.safetensors"] for files in history}) == 3
    assert all(any(name.startswith("runs/events.out.tfevents") for name in files) for files in history)
    assert all("accuracy" in files["README.md"].decode() for files in history), "its evaluation is in the card"
    pushed, last = run.open_model("me/model"), run.open_model(str(out), checkpoint="last")
    assert all(np.array_equal(pushed.weights[name], last.weights[name]) for name in last.weights)
    remaining_checkpoints = {path.name for path in (out / "checkpoints").iterdir()}
    assert remaining_checkpoints == {"00000012", Path(checkpoints.best(str(out))[0]).name}

    trainer.train(config)  # a run that has ended: all of it is there
    assert len(hub.commits["me/model"]) == 3
    hub.models["me/model"].clear()  # as where a kill came before the last push
    trainer.train(config)
    assert hub.commits["me/model"][3:] == ["Step 12, exported by t5prep"]


def test_a_push_that_fails_is_a_sentence_and_the_next_one_has_the_newer_weights(
    internet: Internet, data: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("HF_TOKEN", internet.hub.token)
    for status in (403, 500):
        internet.server.faults.append(Fault("/commit/main", answer=Answer(status), method="POST"))
    trainer.train(toy_runs.config(data, shape, tmp_path / "run", push="me/model"))
    assert internet.hub.commits["me/model"][-1] == "Step 12, exported by t5prep"
    output = capsys.readouterr().err
    assert "me/model" in output
    assert "(403)" in output
    assert internet.hub.token not in output


def test_who_may_not_push_learns_it_before_a_step_is_trained(
    internet: Internet, data: str, shape: str, tmp_path: Path
) -> None:
    with raises(UsageError, "hub.missing-login"):
        trainer.train(toy_runs.config(data, shape, tmp_path / "run", push="me/model"))
    assert checkpoints.last(str(tmp_path / "run")) is None
