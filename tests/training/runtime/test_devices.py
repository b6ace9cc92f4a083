"""Devices are opened so that no thread of jax takes signals: see t5prep/io/signals.py."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed by Linux alone")
def test_no_thread_of_jax_takes_a_signal() -> None:
    code = (
        "import os, signal, pathlib\nimport jax, jaxlib\n"
        "before = set(os.listdir('/proc/self/task'))\n"
        "from t5prep.training.runtime import devices\n"
        "devices._devices('cpu', '')\n"
        "started = set(os.listdir('/proc/self/task')) - before\n"
        "lines = [pathlib.Path(f'/proc/self/task/{one}/status').read_text() for one in started]\n"
        "masks = [int(text.split('SigBlk:')[1].split()[0], 16) for text in lines]\n"
        "print(len(masks), all(mask >> number - 1 & 1 for mask in masks for number in (signal.SIGTERM, signal.SIGPROF)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, masked = ran.stdout.split()
    assert int(count) > 0
    assert masked == "True"
