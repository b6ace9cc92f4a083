"""What only a process of its own shows of devices: their threads, and a profile of their steps."""

import subprocess
import sys
from pathlib import Path

import jax
import pytest

CODE = """
import os, pathlib, signal, sys
import jax, jaxlib
before = set(os.listdir("/proc/self/task"))
from t5prep.training.runtime import devices
devices._devices("cpu", "")
started = set(os.listdir("/proc/self/task")) - before
lines = [pathlib.Path(f"/proc/self/task/{one}/status").read_text() for one in started]
masks = [int(text.split("SigBlk:")[1].split()[0], 16) for text in lines]
print(len(masks), all(mask >> number - 1 & 1 for mask in masks for number in (signal.SIGTERM, signal.SIGPROF)))

from t5prep.training.loop import StepProfile
profile, values = StepProfile(sys.argv[1], steps=2, first=0), jax.numpy.zeros(8)
for number in range(1, 9):
    values = values + 1
    profile.step(number, values)
profile.finish(values)
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A process that opens its devices and records two steps, and the run's folder.

    The profiler would end a process in which a hundred other tests have left threads and devices.
    """
    run = tmp_path_factory.mktemp("run")
    return run, subprocess.run([sys.executable, "-c", CODE, run], capture_output=True, text=True, check=False)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed by Linux alone")
def test_no_thread_of_jax_takes_a_signal(opened: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """See t5prep/io/signals.py."""
    count, masked = opened[1].stdout.split()
    assert int(count) > 0
    assert masked == "True"


def test_recorded_steps_are_a_trace_that_tensorboard_reads(
    opened: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run, result = opened
    assert "The profile is written. See it: tensorboard --logdir" in result.stderr, result.stderr[-2000:]
    (trace,) = (run / "tensorboard").glob("plugins/profile/*/*.xplane.pb")
    planes = [plane.name for plane in jax.profiler.ProfileData.from_file(str(trace)).planes]
    assert any("CPU" in name for name in planes), planes
