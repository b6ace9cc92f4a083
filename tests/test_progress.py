"""Progress is one line on a terminal, and nothing anywhere else."""

import io

import pytest

from t5prep import progress
from t5prep.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_rate_share_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    terminal = Terminal()
    shown = Progress("preparing", total=10_000_000, stream=terminal)
    shown.add(bytes=1_000_000, rows=500)
    assert terminal.getvalue() == ""  # a run that ends at once needs no line
    now[0] += 4
    shown.add(bytes=3_000_000, rows=1500)
    assert "40%  2,000 rows  500 rows/s  1.0 MB/s  6 s left" in terminal.getvalue()
    shown.close()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_file_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    shown = Progress("preparing", stream=stream)
    now[0] += 60
    shown.add(bytes=1, rows=1)
    shown.close()
    assert stream.getvalue() == ""
