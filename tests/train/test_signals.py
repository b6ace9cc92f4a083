"""A signal is never lost: also where Python raises it in a place that ignores exceptions."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

# A process that spends all its time where exceptions are ignored, as in a callback of jax's of the garbage collection.
IGNORING = """
import time
from t5prep.cli import _terminal
from t5prep.io import signals
from t5prep.train.signals import Signals

class Ignoring:
    def __del__(self):
        print("begun", flush=True)
        time.sleep(60)

with _terminal.stoppable():
    one = Ignoring()
    del one
    {then}
"""
THEN = {
    "train": "with Signals() as signals: print(signals.stop(1), signals.received)",
    "predict": "signals.check()",
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("then", THEN)
def test_a_signal_that_was_ignored_is_seen_by_the_loop(then: str, number: signal.Signals) -> None:
    code = IGNORING.format(then=THEN[then])
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        said, error = process.communicate(timeout=60)
    if then == "train":
        assert said.decode() == f"True {number.name}\n"
    else:
        assert error.rstrip().endswith(b"KeyboardInterrupt")


LOOP = """
from t5prep.cli import _terminal
from t5prep.train.runtime import hosts
from t5prep.train.signals import Signals
hosts.count()  # opens the devices, which takes longer than all the rest
with _terminal.stoppable():
    print("begun", flush=True)
    with Signals() as signals:
        step = 0
        while not signals.stop(step):
            step += 1
    print("saved")
"""


def test_signals_at_random_moments_end_the_loop() -> None:
    random_moment = random.Random(0)
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(random_moment.random() * 0.02)
            process.send_signal(signal.SIGINT)
            said, error = process.communicate(timeout=60)
        # Before the loop, nothing is to be saved.
        assert said == b"saved\n" or b"KeyboardInterrupt" in error, (said, error[-2000:])


def test_a_second_signal_ends_at_once() -> None:
    code = (
        "import os, signal\nfrom t5prep.train.signals import Signals\n"
        "with Signals():\n    for _ in range(2): os.kill(os.getpid(), signal.SIGINT)\n    print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=dict(os.environ), check=False)
    assert done.returncode == 1
    assert not done.stdout
    assert b"A second one ends at once" in done.stderr
