"""Two processes with four CPU devices each: the losses of one process with eight; killed one, both end, and go on."""

import itertools
import os
import signal
import socket
import time
from pathlib import Path

import forked_commands
import pytest
import toy_runs
import xla_flags
from click.testing import CliRunner
from forked_commands import Process
from raised import raises

from t5prep import cli
from t5prep.errors import UsageError
from t5prep.training.run import checkpoints
from t5prep.training.runtime import hosts

SECONDS = 600


def command(data: str, shape: str, out: Path, **settings: object) -> list[str]:
    values = {
        **{"weights": "random", "batch": 8, "steps": 8, "learning_rate": 0.01, "eval_every": 4, "save_every": 2},
        **{"log_every": 1, "tensorboard": "false", "dropout": 0.0},
        **settings,
    }
    typed = ["train", "--data", data, "--model", shape, "--out", str(out), "--replicas", "8"]
    return [*typed, *(f"--set={key}={value}" for key, value in values.items())]


# A host that waits for a dead one computes without end, until the heartbeat ends it: after a third of the usual time.
TRAINED = """
import sys
from t5prep import cli
from t5prep.training.runtime import hosts
hosts.HEARTBEAT_SECONDS = 20
cli.main(sys.argv[1:])
"""


def start(code: str, *arguments: str) -> list[Process]:
    """Start code in two processes that find each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "XLA_FLAGS": xla_flags.QUICK}  # each process has four devices
    environment |= {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2"}
    return [
        forked_commands.start_code(code, *arguments, environment=environment | {"JAX_PROCESS_ID": str(number)})
        for number in range(2)
    ]


def collect_stderr(processes: list[Process]) -> list[str]:
    """What each said on stderr; both must end by themselves."""
    return [process.communicate(timeout=SECONDS)[1].decode(errors="replace") for process in processes]


@pytest.mark.slow
def test_two_processes_train_as_one_does_and_end_together(tmp_path: Path) -> None:
    """Two hosts, of which one dies: no other test has a process group of jax that trains."""
    data, shape = toy_runs.classes(tmp_path / "classes"), toy_runs.shape(tmp_path / "shape")
    killed = start(TRAINED, *command(data, shape, tmp_path / "two", steps=2000))
    deadline = time.monotonic() + SECONDS
    while not checkpoints.last(str(tmp_path / "two")):
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in killed), collect_stderr(killed)
        time.sleep(0.1)
    killed[1].kill()
    collect_stderr(killed)
    assert killed[0].returncode not in (0, None)

    newest = checkpoints.last(str(tmp_path / "two"))
    assert newest
    steps = newest[1].step + 4
    processes = start(TRAINED, *command(data, shape, tmp_path / "two", steps=steps))
    outputs = collect_stderr(processes)
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "Resuming " in outputs[0]
    result = CliRunner().invoke(cli.main, command(data, shape, tmp_path / "one", steps=steps), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    expected = toy_runs.losses(tmp_path / "one")
    assert sorted(expected) == list(range(1, steps + 1))
    assert toy_runs.losses(tmp_path / "two") == pytest.approx(expected, abs=1e-5)


def test_a_directory_of_one_of_several_machines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_machines", lambda: 2)
    with raises(UsageError, "bucket.local-path", "2", "runs/a"):
        hosts.check_places("runs/a", "gs://b/data")
    hosts.check_places("gs://b/runs/a", "gs://b/data")
    monkeypatch.setattr(hosts, "_machines", lambda: 1)
    hosts.check_places("runs/a")


JOINED = """
import sys, time
from t5prep.training.runtime import hosts
hosts.HEARTBEAT_SECONDS = 20
hosts.join("cpu")
hosts.wait("joined")
print("joined", flush=True)
time.sleep(600)  # as for devices that wait for another host
"""


@pytest.mark.slow
def test_a_host_that_is_dead_or_frozen_ends_the_others() -> None:
    """All at the same time, because each waits for a heartbeat; that another one than the first is dead, see above."""
    stopped = [(signal.SIGKILL, 0), (signal.SIGSTOP, 0), (signal.SIGSTOP, 1)]
    pairs = []
    try:
        for _ in stopped:
            pairs.append(start(JOINED))
            for process in pairs[-1]:
                process.wait_for_line(b"joined", SECONDS)
        for processes, (number, process_index) in zip(pairs, stopped, strict=True):
            processes[process_index].send_signal(number)
        for processes, (_, process_index) in zip(pairs, stopped, strict=True):
            assert processes[1 - process_index].wait(timeout=SECONDS) not in (0, None)
    finally:
        for process in itertools.chain(*pairs):
            process.kill()
            process.communicate()
