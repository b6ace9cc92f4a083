"""A signal ends a process also while a library computes: Python would call its handlers only afterwards."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# SQLite counts for hours, without Python's lock and without a look at signals, as a compiler does.
COMPUTING = """
import signal, sqlite3, sys, time
from t5prep.io import signals

signals.GRACE_SECONDS = 0.3

def handler(number, frame):
    raise KeyboardInterrupt

for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN if number.name in sys.argv[1:] else handler)
numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 1000000000000)"
with signals.end_at_once("Stopped before the first step."):
    print("begun", flush=True)
    sqlite3.connect(":memory:").execute(f"{numbers} SELECT count(*) FROM n").fetchall()
"""


def computing(*ignored: str) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", COMPUTING, *ignored], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begun\n"
    first = processor_seconds(process)
    while processor_seconds(process) < first + 0.2:  # it computes, however long it waits for a core before
        time.sleep(0.02)
    return process


def processor_seconds(process: subprocess.Popen) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_what_computes_with_one_sentence(number: signal.Signals) -> None:
    process = computing()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (1, f"Error: {number.name}: Stopped before the first step.\n")


def test_an_ignored_signal_ends_nothing_and_the_other_one_does() -> None:
    process = computing("SIGINT")
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert stderr.startswith("Error: SIGTERM: ")


def test_after_the_beginning_a_signal_is_only_pythons() -> None:
    script = COMPUTING.replace('print("begun", flush=True)', "pass").replace("1000000000000", "10")
    waiting = (
        '\ntry:\n    print("begun", flush=True)\n    time.sleep(60)\n'
        "except KeyboardInterrupt:\n    time.sleep(0.8)\n    sys.exit(7)"
    )
    process = subprocess.Popen([sys.executable, "-c", script + waiting], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 7  # what a run saves then may take longer than the grace
