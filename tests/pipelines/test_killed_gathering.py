"""A run that is killed again and again while it merges runs, searches near-duplicates or writes shards ends as an undisturbed one.

The large runs, by hand: python tests/pipelines/test_killed_gathering.py 10000 20, and with `near` behind it
"""

import contextlib
import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this file is run by hand, and as the process that is killed

from small_corpora import bytes_of, prepared

from pipelines import local_executor, pool, sorting
from t5prep.dataset.verify import verify
from t5prep.preparation import memory_budget
from t5prep.preparation.near_duplicates import clusters
from t5prep.sources import sample

ROWS_A_BLOCK = 2
# Few, so that hundreds of blocks are merged more than once.
FAN_IN = 8


def corpus(folder: Path, *, blocks: int) -> int:
    """Write rows of one length, of which some have an id twice and some no target; return the bytes of a block."""
    folder.mkdir()
    size = 0
    with open(folder / "rows.jsonl", "w", encoding="ascii") as file:
        for row in range(blocks * ROWS_A_BLOCK):
            number, target = row - 3 * (row % 10 == 3), "" if row % 9 == 4 else f"word{row % 7}"
            text = " ".join(f"word{(row * 31 + k * 7) % 997:03d}" for k in range(5))
            size = file.write(f'{{"id": "r{number:010d}", "inputs": "{text}", "targets": "{target:5}"}}\n')
    return ROWS_A_BLOCK * size


def run(rows: str, out: str, block_bytes: int, blocks: int, dedup: str) -> None:
    """Prepare the rows in blocks of so many bytes, by two processes; what is compared is in many files."""
    local_executor.HELD_BYTES = 4096
    clusters.Search.plan = staticmethod(functools.partial(clusters.Search.plan, range_bytes=8192, group_bytes=8192))
    memory_budget.LARGEST_BLOCK = memory_budget.SMALLEST_BLOCK = block_bytes
    sorting.FAN_IN = FAN_IN
    choices = {"splits": {"train": 0.9, "validation": 0.1}, "shards": max(8, blocks // 64)}
    columns = {"inputs_column": "inputs", "targets_column": "targets", "id_column": "id"}
    lengths = {
        "input_length": 32,
        "target_length": 8,
        "dedup": dedup,
        **({"near_jaccard": 0.6} if dedup == "near" else {}),
    }
    task_options = {"tokenizer": sample.tokenizer_path(), "task": "text2text", "options": columns}
    prepared(Path(rows), Path(out), workers=2, **task_options, **choices, **lengths)


def searched(out: Path) -> int:
    """Return how many files of the search for near-duplicates are there, and of what it found."""
    spool = out / ".unfinished-spool"
    return sum(len(list((spool / name).glob("*"))) for name in ("GroupBands", "GroupRows", "repeats"))


def steps(out: Path) -> int:
    """Return how many merged runs are there, at most FAN_IN; when shards are there, FAN_IN and these."""
    merged = shards = 0
    with contextlib.suppress(OSError):
        names = [path.name for path in (out / ".unfinished-spool").iterdir()]
        merged = min(FAN_IN, sum(name.startswith("merged-") for name in names))
        shards = sum(".tfrecord-" in path.name and path.name[0] != "." for path in out.iterdir())
    return FAN_IN + shards if shards else merged


def disturbed(
    out: Path,
    command: list[str],
    *,
    kills: int,
    max_spills: int,
    moments: random.Random,
    steps: Callable[[Path], int] = steps,
) -> list[int]:
    """Kill a run so often, half of the times with its workers, then let it end; return the steps after which each was killed."""
    reached = []
    while len(reached) < kills:
        target_steps = moments.randint(1, max_spills - 1)
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        swept = False  # of what the run before left
        while not (swept and steps(out) >= target_steps) and process.poll() is None:
            swept = swept or not steps(out)
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.02))
        if process.poll() is not None:  # it was done before
            continue
        if len(reached) % 2:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reached.append(target_steps)  # files of the search may be gone again by now
    subprocess.run(command, check=True)
    return reached


def check(folder: Path, *, blocks: int, kills: int, seed: int = 0, dedup: str = "none") -> list[int]:
    """Raise AssertionError where a run that was killed so often differs from one that was not; return when it was killed."""
    block_bytes = corpus(folder / "rows", blocks=blocks)
    script = [sys.executable, __file__, "--run"]
    arguments = json.dumps([str(folder / "rows"), "OUT", block_bytes, blocks, dedup])
    alone, killed = ([*script, arguments.replace("OUT", str(folder / name))] for name in ("alone", "killed"))
    subprocess.run(alone, check=True)
    manifest = verify(folder / "alone")
    assert sum(row_counts.read for row_counts in manifest.rows.values()) == blocks * ROWS_A_BLOCK
    assert set(manifest.rejected) >= {"empty target", "duplicate id"}
    shards = sum(len(split.shards) for split in manifest.splits.values())
    options = {"max_spills": FAN_IN + shards} if dedup == "none" else {"max_spills": 12, "steps": searched}
    reached = disturbed(folder / "killed", killed, kills=kills, moments=random.Random(seed), **options)
    assert bytes_of(folder / "killed") == bytes_of(folder / "alone")  # and so there is no scratch folder, nor a file
    return reached


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_gathers_ends_like_any_other(tmp_path: Path) -> None:
    """Kills while runs of rows are merged, which short corpora never are."""
    check(tmp_path, blocks=300, kills=2)


@pytest.mark.slow
def test_a_run_that_is_killed_while_near_duplicates_are_searched_ends_like_any_other(tmp_path: Path) -> None:
    """Kills while files of the search for near-duplicates are written."""
    check(tmp_path, blocks=200, kills=2, dedup="near")


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        pool.exit_if_respawned_script()
        run(*json.loads(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            print(
                "killed after",
                *check(Path(folder), blocks=int(sys.argv[1]), kills=int(sys.argv[2]), dedup=(*sys.argv[3:], "none")[0]),
                "steps.",
            )
