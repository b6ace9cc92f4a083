"""Two processes with four CPU devices each: the losses of one process with eight; killed one, both end, and go on."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import training
from click.testing import CliRunner

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep import cli
from t5prep.errors import UsageError
from t5prep.train.run import checkpoint as checkpoints
from t5prep.train.runtime import host_watch, hosts

SECONDS = 600


def command(data: str, shape: str, out: Path, **settings: object) -> list[str]:
    values = {
        **{"weights": "random", "batch": 8, "steps": 8, "learning_rate": 0.01, "eval_every": 4, "save_every": 2},
        **{"log_every": 1, "tensorboard": "false", "dropout": 0.0},
        **settings,
    }
    typed = ["train", "--data", data, "--model", shape, "--out", str(out), "--replicas", "8"]
    return [sys.executable, "-m", "t5prep.cli", *typed, *(f"--set={key}={value}" for key, value in values.items())]


def start(given: list[str]) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        name: value for name, value in os.environ.items() if name != "XLA_FLAGS"
    }  # each process has four devices
    environment |= {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2"}
    return [
        subprocess.Popen(
            given, env=environment | {"JAX_PROCESS_ID": str(number)}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        for number in range(2)
    ]


def ended(processes: list[subprocess.Popen]) -> list[str]:
    """What each said on stderr; both must end by themselves."""
    return [one.communicate(timeout=SECONDS)[1].decode(errors="replace") for one in processes]


@pytest.mark.slow
def test_two_processes_train_as_one_does_and_end_together(tmp_path: Path) -> None:
    data, shape = training.classes(tmp_path / "classes"), training.shape(tmp_path / "shape")
    killed = start(command(data, shape, tmp_path / "two", steps=2000))
    deadline = time.monotonic() + SECONDS
    while not checkpoints.last(str(tmp_path / "two")):
        assert time.monotonic() < deadline
        assert all(one.poll() is None for one in killed), ended(killed)
        time.sleep(0.1)
    killed[1].kill()
    began = time.monotonic()
    said = ended(killed)
    assert time.monotonic() - began < 60
    assert killed[0].returncode == 1
    assert host_watch.SENTENCE in said[0]

    newest = checkpoints.last(str(tmp_path / "two"))
    assert newest
    steps = newest[1].step + 4
    again = start(command(data, shape, tmp_path / "two", steps=steps))
    said = ended(again)
    assert [one.returncode for one in again] == [0, 0], said
    assert "Going on with" in said[0]
    one = CliRunner().invoke(cli.main, command(data, shape, tmp_path / "one", steps=steps)[3:], catch_exceptions=False)
    assert one.exit_code == 0, one.output
    expected = training.losses(tmp_path / "one")
    assert sorted(expected) == list(range(1, steps + 1))
    assert training.losses(tmp_path / "two") == pytest.approx(expected, abs=1e-5)


def test_a_directory_of_one_of_several_machines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_machines", lambda: 2)
    with pytest.raises(UsageError, match=r"runs/a is a directory of one machine, and 2 machines train together"):
        hosts.check_places("runs/a", "gs://b/data")
    hosts.check_places("gs://b/runs/a", "gs://b/data")
    monkeypatch.setattr(hosts, "_machines", lambda: 1)
    hosts.check_places("runs/a")


def test_a_host_that_ends_is_noticed_and_one_that_says_so_is_not() -> None:
    for says_so in (True, False):
        with socket.create_server(("127.0.0.1", 0)) as server:
            second = socket.create_connection(server.getsockname())
            first, _ = server.accept()
        noticed: list[bool] = []
        host_watch.Pulse([first], lambda noticed=noticed: noticed.append(True))
        if says_so:
            second.sendall(host_watch.BYE)
        second.close()
        deadline = time.monotonic() + (0.5 if says_so else 10)
        while not noticed and time.monotonic() < deadline:
            time.sleep(0.01)
        assert noticed == ([] if says_so else [True])
