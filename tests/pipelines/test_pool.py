"""What can happen to the processes and the disk of a local run: it goes on, or says in a sentence why it cannot."""

import collections
import contextlib
import dataclasses
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raised import raises
from small_corpora import bytes_of, prepared, questions, write_csv

from pipelines import engines, estimates, pool, prepare
from pipelines.local_executor import LocalProgress
from pipelines.steps import Hashed, in_runs
from t5prep.errors import OutputError, T5prepError, UsageError
from t5prep.preparation import shards
from t5prep.preparation.shards import ShardSpec
from t5prep.reading import blocks
from t5prep.reading.blocks import Block
from t5prep.reading.formats import Format
from t5prep.sources import RawFile, sample

SAMPLE = sample.tokenizer_path()


def warm() -> None:
    pass


def twice(element: int) -> int:
    time.sleep(0.02)
    return 2 * element


def noted(folder: Path, element: int) -> int:
    (folder / uuid.uuid4().hex).write_text(str(element))
    return element


def deadly(element: int) -> int:
    if element == 3:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does to a process that asks for too much memory
    return element


def variable(element: int) -> str:
    return os.environ.get("T5PREP_TOLD", "nothing")


def test_workers_have_the_variables_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that they are forked from was started with others: a token, or a service's address, would be missing."""
    values = []
    for value in ("one", "two"):
        monkeypatch.setenv("T5PREP_TOLD", value)
        workers = pool.Pool(1, warm=warm)
        values.append(workers.submit(variable, 0).result())
        workers.close()
    assert values == ["one", "two"]


@pytest.fixture
def two() -> Iterator[pool.Pool]:
    started = pool.Pool(2, warm=warm)
    yield started
    started.close()


def through(two: pool.Pool, work: Any, elements: range) -> list[int]:
    return list(pool.map_ordered(two, work, elements))


def test_a_worker_that_is_killed_is_replaced_and_its_work_done_again(two: pool.Pool) -> None:
    stop = threading.Event()

    def kill() -> None:
        kills = 2
        while kills and not stop.wait(0.2):
            for process in list(two.executor._processes or ())[:1]:  # none while they are being replaced
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    kills -= 1

    killer = threading.Thread(target=kill)
    killer.start()
    assert through(two, twice, range(60)) == [2 * element for element in range(60)]
    stop.set()
    killer.join()


def patient(folder: Path, element: int) -> bool:
    """Let the first element wait for one that is far behind it."""
    (folder / str(element)).touch()
    for _ in range(30_000):
        if element or (folder / "30").exists():
            return True
        time.sleep(0.01)
    return False


def test_a_long_element_lets_others_go_on_behind_it_and_results_stay_in_order(two: pool.Pool, tmp_path: Path) -> None:
    assert through(two, functools.partial(patient, tmp_path), range(40)) == [True] * 40
    assert through(two, twice, range(90)) == [2 * element for element in range(90)]


def slow_beside_deadly(element: int) -> int:
    time.sleep(0.4 * (element == 2))
    return deadly(element)


def test_work_that_kills_every_worker_is_said_in_a_sentence(two: pool.Pool) -> None:
    """And no other work, which was lost with it each time."""
    with raises(T5prepError, "pipeline.dead-worker", "3"):
        through(two, slow_beside_deadly, range(6))
    with raises(T5prepError, "pipeline.dead-worker", "3"):
        through(two, deadly, range(6))


def test_work_is_said_in_words() -> None:
    block = Block(RawFile("a.csv", "/there/a.csv", 10), Format("csv"), ("a",), 1, 40, 0, 10)
    assert pool._in_words(block) == "rows 1 to 40 of a.csv"
    assert pool._in_words(block.file) == "a.csv"
    behind = dataclasses.replace(block, first_row=41, rows=2)
    assert pool._in_words([block, behind]) == "rows 1 to 42 of a.csv"
    assert pool._in_words([block.file]) == "a.csv"
    assert pool._in_words((ShardSpec("train", 0, 2, 9), [])) == "train.tfrecord-00000-of-00002"


def test_workers_that_end_before_all_have_begun_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine of many cores the first may have ended before the last is asked for."""

    class EndedWorkers:
        def submit(self, *_: Any) -> None:
            raise BrokenProcessPool("a worker has ended")

        def shutdown(self, **_: Any) -> None:
            pass

    monkeypatch.setattr(pool.concurrent.futures, "ProcessPoolExecutor", lambda *_, **__: EndedWorkers())
    workers = pool.Pool(2, warm=int)
    with raises(T5prepError, "pipeline.dead-worker", "3", "7"):
        list(pool.map_ordered(workers, twice, [7]))
    workers.close()


def hungry(element: int) -> int:
    return int(np.empty(1 << 56).size) + element


def test_a_worker_out_of_memory_is_a_sentence(two: pool.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = ("pipeline.out-of-memory",)
    with raises(T5prepError, *message), engines.explained("local", out="out"):
        through(two, hungry, range(6))
    source = write_csv(tmp_path / "rows.csv", questions(9))
    monkeypatch.setattr(shards, "write", lambda *_, **__: hungry(1))
    with raises(T5prepError, *message):
        prepared(source, tmp_path / "out", tokenizer=SAMPLE)
    monkeypatch.undo()
    assert not (tmp_path / "out" / "manifest.json").exists()
    prepared(source, tmp_path / "out", tokenizer=SAMPLE)


def no_thread(element: int) -> int:
    raise RuntimeError("Resource temporarily unavailable")  # as SentencePiece says it


def test_a_worker_that_can_start_no_thread_is_a_sentence(two: pool.Pool) -> None:
    with raises(T5prepError, "pipeline.out-of-memory"), engines.explained("local", out="out"):
        through(two, no_thread, range(6))


# A worker that fails as it begins, as where no thread can be started.
FAILS_AT_FIRST = """
import threading
from pipelines import pool

def fail(*_, **__):
    raise RuntimeError("can't start new thread")

if __name__ != "__main__":
    threading.Thread.start = fail
else:
    try:
        list(pool.Window(pool.Pool(1, warm=print).name).put(len, [1]) or ())
    except Exception as error:
        print(type(error).__name__)
"""


def test_a_worker_that_cannot_begin_prints_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(FAILS_AT_FIRST)
    result = subprocess.run([sys.executable, tmp_path / "fails.py"], capture_output=True, text=True, timeout=600)
    assert "Traceback" not in result.stderr


def test_a_process_that_ends_at_once_lets_no_tracker_of_semaphores_warn() -> None:
    """As a second Ctrl-C ends it."""
    code = (
        "import os; from pipelines import pool\npool.begin_loading()\n"
        "kept = pool.multiprocessing.get_context('forkserver').Semaphore(); os._exit(1)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.parametrize(("parts", "run"), [(1, 1), (15, 1), (16, 2), (200, 8)])
def test_a_worker_gets_some_parts_of_one_row_group_at_once(parts: int, run: int) -> None:
    file, lines = RawFile("a.parquet", "/a.parquet", 1), RawFile("a.csv", "/a.csv", 1)
    of_group = [Block(file, Format("parquet"), ("a",), 1 + part, 1, 0, 9) for part in range(parts)]
    next_group_block, rows = (
        Block(file, Format("parquet"), ("a",), parts + 1, 1, 1, 9),
        Block(lines, Format("csv"), ("a",), 1, 9, 0, 9),
    )
    elements = [file, *of_group, next_group_block, Hashed(lines, ""), lines, rows, rows]
    runs = list(in_runs(iter(elements)))
    assert [element for element_run in runs for element in element_run] == elements
    assert [len(element_run) for element_run in runs[1:-4]] == [run] * (parts // run) + [parts % run] * (
        parts % run > 0
    )
    assert [len(element_run) for element_run in (runs[0], *runs[-4:])] == [1, 1, 2, 1, 1]


def kind_of(result: Any) -> str:
    """The name of the class of the counts that are among the results of an element."""
    return next((name for name in (type(part).__name__ for part in result) if name.endswith("Totals")), "")


def test_workers_that_are_killed_while_preparing_change_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One while blocks are tokenized, one between two shards: of both there are more than are given out ahead."""
    rows = questions(240)
    (tmp_path / "rows").mkdir()
    for first in range(0, 240, 6):
        write_csv(tmp_path / "rows" / f"{first:03d}.csv", rows[first : first + 6])
    choices = {"tokenizer": SAMPLE, "shards": 48, "limit": 1000}  # with a limit nothing is begun ahead
    kind_counts, pools, restarts = collections.Counter[str](), [], []

    class Killing(LocalProgress):
        def __call__(self, element: Any, result: Any) -> None:
            super().__call__(element, result)
            kind = kind_of(result)
            kind_counts[kind] += 1
            if (kind, kind_counts[kind]) in (("BlockTotals", 3), ("ShardTotals", 2)):
                running = pools[-1]
                os.kill(next(iter(running.executor._processes)), signal.SIGKILL)
                for _ in range(30_000):
                    if running.executor._broken:
                        break
                    time.sleep(0.01)

    start, restart = pool.Pool._start, pool.Pool.restart
    monkeypatch.setattr(pool.Pool, "_start", lambda self: (pools.append(self), start(self))[1])
    monkeypatch.setattr(blocks, "SMALL_BYTES", 0)  # else all files are one block
    monkeypatch.setattr(pool.Pool, "restart", lambda self: (restarts.append(1), restart(self))[1])
    monkeypatch.setattr(prepare, "LocalProgress", Killing)
    prepared(tmp_path / "rows", tmp_path / "killed", workers=2, **choices)
    assert len(restarts) >= 2
    monkeypatch.undo()
    prepared(tmp_path / "rows", tmp_path / "out", **choices)
    assert bytes_of(tmp_path / "killed") == bytes_of(tmp_path / "out")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "t5prep", mount_point], check=True)
    yield mount_point
    subprocess.run(["umount", mount_point], check=True)


@pytest.mark.extra("root")
@pytest.mark.parametrize(
    ("rows", "full"), [(40_000, r"out/\.unfinished-spool/\S+"), (5000, r"out/train\.tfrecord-\S+")]
)
def test_a_full_disk_is_a_sentence_and_the_next_run_goes_on(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, full: str
) -> None:
    """While blocks are spilled, and while shards are written; the estimate did not see it coming."""
    monkeypatch.setattr(estimates, "free_bytes", lambda folder: 1 << 40)
    source = write_csv(tmp_path / "rows.csv", questions(rows))
    with raises(OutputError, "output.no-space", str(small_disk)):
        prepared(source, small_disk / "out", tokenizer=SAMPLE, workers=1, cache=tmp_path / "kept", shards=4)
    assert not (small_disk / "out" / "manifest.json").exists()
    assert list((tmp_path / "kept").rglob("*.arrow"))
    small_source = write_csv(tmp_path / "few.csv", questions(100))
    prepared(small_source, small_disk / "out", tokenizer=SAMPLE)  # what the full run left is swept away
    prepared(small_source, tmp_path / "out", tokenizer=SAMPLE)
    assert bytes_of(small_disk / "out") == bytes_of(tmp_path / "out")


def test_no_room_to_keep_blocks_is_no_reason_to_stop(small_disk: Path, tmp_path: Path) -> None:
    (small_disk / "filled").write_bytes(bytes(2_900_000))
    source = write_csv(tmp_path / "rows.csv", questions(1000))
    manifest = prepared(source, tmp_path / "out", tokenizer=SAMPLE, cache=small_disk / "kept")
    assert sum(split.records for split in manifest.splits.values()) == 1000
    assert not list((small_disk / "kept").rglob("*.arrow"))


@pytest.mark.parametrize("totals_kind", ["BlockTotals", "ShardTotals"])
def test_a_scratch_folder_that_vanishes_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, totals_kind: str
) -> None:
    """When the first block is tokenized, or the first shard written."""
    source, out = write_csv(tmp_path / "rows.csv", questions(50)), tmp_path / "out"

    class Vanishing(LocalProgress):
        def __call__(self, element: Any, result: Any) -> None:
            super().__call__(element, result)
            if kind_of(result) == totals_kind:
                shutil.rmtree(out / ".unfinished-spool", ignore_errors=True)

    monkeypatch.setattr(prepare, "LocalProgress", Vanishing)
    with raises(OutputError, "output.scratch-altered"):
        prepared(source, out, tokenizer=SAMPLE, workers=1, shards=9)
    assert not (out / "manifest.json").exists()
    monkeypatch.undo()
    prepared(source, out, tokenizer=SAMPLE)
    prepared(source, tmp_path / "other", tokenizer=SAMPLE)
    assert bytes_of(out) == bytes_of(tmp_path / "other")


def test_too_little_memory_is_refused_and_little_is_shared_out(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(300))
    with raises(UsageError, "option.out-of-range", "100"):
        prepared(source, tmp_path / "out", tokenizer=SAMPLE, workers=1, memory=100 << 20)
    prepared(source, tmp_path / "small", tokenizer=SAMPLE, workers=2, memory=520 << 20)
    prepared(source, tmp_path / "large", tokenizer=SAMPLE)
    assert bytes_of(tmp_path / "small") == bytes_of(tmp_path / "large")


SCRIPT = """
import sys
import t5prep
def mine():
    t5prep.prepare("so_quality", source=sys.argv[1], tokenizer="sample:", out=sys.argv[2], input_length=64,
                   splits={"train": 1.0}, workers=2)
"""


def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    """Workers import the script, and would prepare again instead of beginning."""
    rows = write_csv(tmp_path / "rows.csv", questions(9))
    script = tmp_path / "mine.py"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "T5PREP_CACHE": str(tmp_path / "cache")}
    line = [sys.executable, str(script), str(rows), str(tmp_path / "out")]
    script.write_text(f"{SCRIPT}mine()")
    ran = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 1
    assert "pipeline.unguarded-script" in ran.stderr.splitlines()[-1]
    assert "bootstrapping phase" not in ran.stderr
    script.write_text(f"{SCRIPT}if __name__ == '__main__': mine()")
    subprocess.run(line, capture_output=True, text=True, env=environment, check=True)
    assert (tmp_path / "out" / "manifest.json").exists()
