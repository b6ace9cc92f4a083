"""What only a process of its own shows of devices: their threads, a profile of their steps, and two signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import pytest

CODE = """
import hashlib, os, pathlib, signal, sys
import jax, jaxlib
before = set(os.listdir("/proc/self/task"))
from t5prep.training.runtime import devices
devices._devices("cpu", "")
started = set(os.listdir("/proc/self/task")) - before
lines = [pathlib.Path(f"/proc/self/task/{one}/status").read_text() for one in started]
masks = [int(text.split("SigBlk:")[1].split()[0], 16) for text in lines]
print(len(masks), all(mask >> number - 1 & 1 for mask in masks for number in (signal.SIGTERM, signal.SIGPROF)))

from t5prep.training.loop import Signals, StepProfile
profile, values = StepProfile(sys.argv[1], steps=2, first=0), jax.numpy.zeros(8)
for number in range(1, 9):
    values = values + 1
    profile.step(number, values)
profile.finish(values)

with Signals():
    print("begun", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


class Ended(NamedTuple):
    """The folder of a run, and what a process printed: before two signals, and after each of them."""

    run: Path
    threads: str
    messages: list[str]
    after_first_signal: str
    after_second_signal: str
    exit_code: int


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A process that opens its devices, records two steps, and gets two signals in a call that takes minutes.

    The profiler would end a process in which a hundred other tests have left threads and devices. All three are one process,
    because its start takes longest.
    """
    run = tmp_path_factory.mktemp("run")
    # TensorFlow 2.21 would print a line of it, as not from a command.
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", CODE, run], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        threads, begun = process.stdout.readline(), process.stdout.readline()
        if begun != "begun\n":
            pytest.fail(process.stderr.read())
        process.send_signal(signal.SIGINT)
        messages: list[str] = []
        while (line := process.stderr.readline()) and not line.startswith("SIGINT: "):
            messages.append(line)
        process.send_signal(signal.SIGINT)
        return Ended(run, threads, messages, line, process.stderr.read(), process.wait(300))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed by Linux alone")
def test_no_thread_of_jax_takes_a_signal(ended: Ended) -> None:
    """See t5prep/io/signals.py."""
    count, masked = ended.threads.split()
    assert int(count) > 0
    assert masked == "True"


def test_recorded_steps_are_a_trace_that_tensorboard_reads(ended: Ended) -> None:
    assert "The profile is written. See it: tensorboard --logdir" in "".join(ended.messages), ended.messages
    (trace,) = (ended.run / "tensorboard").glob("plugins/profile/*/*.xplane.pb")
    planes = [plane.name for plane in jax.profiler.ProfileData.from_file(str(trace)).planes]
    assert any("CPU" in name for name in planes), planes


def test_a_second_signal_ends_at_once(ended: Ended) -> None:
    """Also in a call that comes back to Python only after minutes, as that of an evaluation's program."""
    assert ended.after_first_signal == (
        "SIGINT: saving after the steps under way. A second one ends at once, unsaved.\n"
    )
    assert ended.after_second_signal == (
        "SIGINT: a second one, so the process ends at once. The same command resumes from the last checkpoint.\n"
    )
    assert ended.exit_code == 1
