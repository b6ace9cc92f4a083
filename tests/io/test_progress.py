"""Progress is one line on a terminal, and a line each half minute anywhere else."""

import io
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from pipelines.local_executor import LocalProgress
from t5prep.io import progress
from t5prep.io.progress import Progress
from t5prep.preparation.record_counts import Counts
from t5prep.preparation.shards import ShardSpec, ShardTotals, SplitTotals
from t5prep.preparation.sort_blocks import BlockTotals
from t5prep.reading.blocks import Block
from t5prep.reading.formats import Format
from t5prep.sources import RawFile


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_rate_share_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    terminal = Terminal()
    progress_bar = Progress("preparing", total=10_000_000, stream=terminal)
    progress_bar.add(bytes=1_000_000, rows=500)
    assert terminal.getvalue() == ""  # a run that ends at once needs no line
    now[0] += 4
    progress_bar.add(bytes=3_000_000, rows=1500)
    assert "40%  2,000 rows  500 rows/s  1.0 MB/s  6 s left" in terminal.getvalue()
    progress_bar.close()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_writing_shards_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now, terminal = [100.0], Terminal()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", terminal)
    watch = LocalProgress(SimpleNamespace(cache_folder=""), total=10)  # type: ignore[arg-type]
    block = Block(RawFile("a.csv", "a.csv", 10), Format("csv"), ("a",), 1, 40, 0, 10)
    totals = BlockTotals(record_bytes=Counter(train=4_000_000))
    watch([block], [totals])
    for number in range(3):
        spec = ShardSpec("train", number, 4, 1_000_000)
        split = SplitTotals("train", 4, 1, Counts(records=10))
        watch((spec.name, [spec]), [ShardTotals({"train": split})])
        now[0] += 4
    assert terminal.getvalue().endswith("writing shards   67%  20 rows  2 rows/s  0.2 MB/s  4 s left")
    watch.close()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_where_there_are_no_rows_bytes_are_counted() -> None:
    sending = Progress("uploading", total=8_500_000_000, stream=Terminal())
    sending.add(bytes=2_125_000_000)
    assert sending.line(100.0) == "uploading   25%  2,125.0 of 8,500.0 MB  21.2 MB/s  5 min left"


def test_a_file_sees_a_line_each_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    progress_bar, silent = (
        Progress("preparing", total=1000, stream=stream),
        Progress("x", stream=stream, is_shown=False),
    )
    for _ in range(12):
        now[0] += 10
        progress_bar.add(bytes=10, rows=1)
        silent.add(bytes=10)
    progress_bar.close()
    lines = stream.getvalue().splitlines()
    assert [line.split()[:2] for line in lines] == [["preparing", "4%"], ["preparing", "8%"], ["preparing", "12%"]]
    assert lines[0].endswith("16 min left")
