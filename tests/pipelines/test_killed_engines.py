"""A job of an engine that is killed in the middle of each stage, and submitted again, makes nothing again that was made.

By hand, with what each run had made: python tests/pipelines/test_killed_engines.py flink
"""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this file is run by hand, and as the process that is killed

from small_corpora import bytes_of, prepared, questions, write_csv

from pipelines import prepare
from t5prep.preparation import output_folder, shards
from t5prep.preparation.memory_budget import Budget
from t5prep.sources import sample

# About 60 blocks, and so many shards.
ROWS, BLOCK_BYTES, SHARDS = 300, 2_000, 24
STAGES: dict[str, Callable[[set[str]], bool]] = {
    "blocks": lambda names: len(names) >= 20,
    "shards": lambda names: sum(".tfrecord-" in name for name in names) >= SHARDS // 2,
}


def run(rows: str, out: str, engine: str) -> None:
    """Prepare the rows in small blocks, by an engine or here."""
    choices = {"tokenizer": sample.tokenizer_path(), "shards": SHARDS, "input_length": 32, "dedup": "near"}
    prepare._run = functools.partial(prepare._run, shared=Budget(1, BLOCK_BYTES))
    shards.for_source = lambda _: shards.MergePlan(groups=4, lanes=2, batches=6)
    prepared(Path(rows), Path(out), runner=engine, workers=2, **choices)


def corpus(folder: Path) -> Path:
    """Write rows, of which some repeat another one."""
    rows = questions(ROWS)
    return write_csv(folder / "rows.csv", [*rows, *(dict(row, Id=f"again {row['Id']}") for row in rows[::9])])


def list_results(out: Path) -> dict[str, int]:
    """What workers have made until now: each result, and when it was written. Rows are there before their result is."""
    paths = [path for path in out.glob(f"{output_folder.CACHE_PREFIX}*/*") if not path.name.startswith(".")]
    return {path.name: path.stat().st_mtime_ns for path in paths if path.suffix != ".rows"}


def killed(command: list[str], out: Path, stage: str) -> dict[str, int]:
    """Start a run, kill all of its processes in the middle of a stage, and return what it had made."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and not STAGES[stage](set(list_results(out))):
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return list_results(out)


def check(folder: Path, engine: str, stages: list[str]) -> list[str]:
    """Raise AssertionError where something is made again, or other bytes are; return in words what each run had made."""
    rows, out = corpus(folder), folder / "killed"
    run(str(rows), str(folder / "here"), "local")
    command = [sys.executable, __file__, "--run", str(rows), str(out), engine]
    previous_results: dict[str, int] = {}
    summary_lines = []
    for stage in stages:
        results = killed(command, out, stage)
        assert results, "it was done before"
        assert {name: results.get(name) for name in previous_results} == previous_results, "made again"
        summary_lines.append(
            f"{stage}: {len(results)} made, {len(results.keys() - previous_results.keys())} of them new"
        )
        previous_results = results
    process = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
    (line,) = [line for line in process.stderr.splitlines() if line.startswith("Reused ")]
    found_count, every = (int(word.replace(",", "")) for word in line.split()[1:4:2])
    assert bytes_of(out) == bytes_of(folder / "here")
    assert found_count == len(previous_results) < every
    return [*summary_lines, line]


@pytest.mark.slow
@pytest.mark.extra("prism")
def test_a_job_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """Each stage of an engine's job finds what a killed one made; test_killed_gathering kills runs without an engine.

    The stages themselves look for their results, so that the engine does not matter.
    """
    check(tmp_path, "prism", list(STAGES))


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run(*sys.argv[2:])
    else:
        with tempfile.TemporaryDirectory() as folder:
            print("\n".join(check(Path(folder), sys.argv[1], list(STAGES))))
