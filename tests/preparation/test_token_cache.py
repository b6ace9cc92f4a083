"""Tokenized blocks of earlier runs: found when nothing that made them has changed, and bounded on disk."""

import contextlib
import dataclasses
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from raised import raises, refused
from small_corpora import bytes_of, prepared, questions, write_csv

from pipelines.local_executor import LocalProgress
from t5prep import cli
from t5prep.dataset.settings import Settings
from t5prep.dataset.verify import verify
from t5prep.errors import UsageError
from t5prep.io import byte_sizes, store
from t5prep.preparation import block_tokenizer, token_cache
from t5prep.preparation.sort_blocks import BlockTotals
from t5prep.preparation.token_cache import TokenCache
from t5prep.reading.blocks import Block
from t5prep.reading.formats import Format
from t5prep.sources import RawFile, sample

KILLS = 3
SAMPLE = sample.tokenizer_path()


def files_of(folder: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("??/*.arrow")}


def write_parquet(path: Path, rows: list[dict[str, str]], *, group: int) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_run_that_only_places_otherwise_tokenizes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture, kind: str
) -> None:
    rows = questions(60)
    source = (
        write_csv(tmp_path / "rows.csv", rows)
        if kind == "csv"
        else write_parquet(tmp_path / "rows.parquet", rows, group=20)
    )
    folder = tmp_path / "kept"
    prepared(source, tmp_path / "a", tokenizer=SAMPLE, cache=folder)
    cached_files = set(files_of(folder))
    assert len(cached_files) == (1 if kind == "csv" else 3)
    placement_options = {"seed": 1, "shards": 2, "splits": {"train": 0.5, "validation": 0.5}, "layout": "ragged"}
    prepared(source, tmp_path / "b", tokenizer=SAMPLE, cache=folder, workers=1, **placement_options)
    assert set(files_of(folder)) == cached_files
    assert f"{len(cached_files)} of {len(cached_files)} blocks" in capfd.readouterr().err
    prepared(source, tmp_path / "c", tokenizer=SAMPLE, cache=folder, input_length=64)
    assert len(files_of(folder)) == 2 * len(cached_files)
    prepared(source, tmp_path / "d", tokenizer=SAMPLE)
    assert bytes_of(tmp_path / "d") == bytes_of(tmp_path / "a")


def test_equal_blocks_of_one_run_are_not_said_to_be_of_an_earlier_one(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    source = write_parquet(tmp_path / "rows.parquet", questions(1) * 4, group=2)
    prepared(source, tmp_path / "a", tokenizer=SAMPLE, cache=tmp_path / "kept", workers=1)
    assert "1 of 2 blocks (0.0 MB)" in capfd.readouterr().err


def test_a_changed_row_is_found_in_parquet_whatever_its_name_and_time(tmp_path: Path) -> None:
    rows, folder = questions(40), tmp_path / "kept"
    source = write_parquet(tmp_path / "rows.parquet", rows, group=20)
    prepared(source, tmp_path / "a", tokenizer=SAMPLE, cache=folder)
    old_stat = source.stat()
    rows[30]["Body"] = rows[30]["Body"].replace("word", "drow")
    write_parquet(source, rows, group=20)
    os.utime(source, ns=(old_stat.st_atime_ns, old_stat.st_mtime_ns))
    prepared(source, tmp_path / "b", tokenizer=SAMPLE, cache=folder)
    assert len(files_of(folder)) == 3  # one row group of two is another
    assert bytes_of(tmp_path / "a") != bytes_of(tmp_path / "b")


@pytest.mark.parametrize("spoil", ["flip", "cut", "empty", "pipe"])
def test_a_kept_block_that_was_altered_is_tokenized_again(tmp_path: Path, spoil: str) -> None:
    """A flipped bit in its ids would be other tokens, in a dataset that verifies."""
    source, folder = write_csv(tmp_path / "rows.csv", questions(60)), tmp_path / "kept"
    prepared(source, tmp_path / "a", tokenizer=SAMPLE, cache=folder)
    (path,) = files_of(folder)
    content = path.read_bytes()
    if spoil == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif spoil == "flip":
        ids = max(range(64, len(content) - 64), key=lambda offset: len(set(content[offset : offset + 64])))
        path.write_bytes(content[:ids] + bytes([content[ids] ^ 4]) + content[ids + 1 :])
    else:
        path.write_bytes(content[:-9] if spoil == "cut" else b"")
    prepared(source, tmp_path / "b", tokenizer=SAMPLE, cache=folder)
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    assert path.read_bytes() == content


def test_large_row_groups_become_several_blocks_of_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_parquet(tmp_path / "rows.parquet", questions(100), group=100)
    expected = prepared(source, tmp_path / "a", tokenizer=SAMPLE, cache=tmp_path / "kept1")
    monkeypatch.setattr("t5prep.reading.parquet_rows.PART_BYTES", 4000)
    several = prepared(source, tmp_path / "b", tokenizer=SAMPLE, cache=tmp_path / "kept2")
    assert expected == several
    assert len(files_of(tmp_path / "kept1")) == 1 < len(files_of(tmp_path / "kept2"))


def test_a_large_part_of_a_row_group_is_never_all_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_parquet(tmp_path / "rows.parquet", questions(100), group=100)
    expected = prepared(source, tmp_path / "a", tokenizer=SAMPLE, workers=0)
    sizes, examples = list[int](), block_tokenizer.BlockExamples.__call__

    def watched(self: block_tokenizer.BlockExamples, block: Block) -> pa.Table:
        sizes.append(block.rows)
        return examples(self, block)

    monkeypatch.setattr(block_tokenizer, "LARGEST_BLOCK", 4000)
    monkeypatch.setattr(block_tokenizer.BlockExamples, "__call__", watched)
    assert prepared(source, tmp_path / "b", tokenizer=SAMPLE, workers=0) == expected
    assert sum(sizes) == 100 > 2 * max(sizes)


def test_the_key_follows_from_what_declares_that_it_changes_tokens() -> None:
    chosen = Settings("sst2", {}, input_length=128, target_length=4, dedup="near")
    changes = {
        "task": "summarize", "options": {"a": 1}, "input_length": 64, "target_length": 8, "truncation": "tail",
        "marker": "none", "layout": "packed", "masks": True, "keep_newlines": True, "splits": {"train": 1.0},
        "dedup": "exact", "near_words": 3, "near_jaccard": 0.7, "near_hashes": 64, "filter": ("words",),
        "decontaminate": ("a",), "decontaminate_words": 8, "dedup_against": ("b",),
        "held_out": 0.1, "group_column": "page",
        "shards": 3, "seed": 1, "target": "class", "limit": 9, "records": "a[]", "format": "csv",
        "encoding": "latin-1", "delimiter": ";", "long": "reject", "escape": "\\", "columns": "a,b",
        "split_files": ("train=a",), "split_column": "fold", "skip_files": ("b",),
    }  # fmt: skip
    assert set(changes) == {field.name for field in dataclasses.fields(Settings)}
    key = token_cache.key(chosen, tokenizer="t5", code="1")
    assert (
        len({key, token_cache.key(chosen, tokenizer="t6", code="1"), token_cache.key(chosen, tokenizer="t5", code="2")})
        == 3
    )
    ignored_fields = [
        name
        for name, value in changes.items()
        if token_cache.key(dataclasses.replace(chosen, **{name: value}), tokenizer="t5", code="1") == key
    ]
    assert set(ignored_fields) == {
        *("layout", "masks", "splits", "near_jaccard", "near_hashes", "held_out", "shards", "seed", "limit"),
        *("split_files", "skip_files"),
    }


def test_fresh_uses_nothing_and_keeps_what_it_makes(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    source, folder = write_csv(tmp_path / "rows.csv", questions(30)), tmp_path / "kept"
    prepared(source, tmp_path / "a", tokenizer=SAMPLE, cache=folder)
    (path,) = files_of(folder)
    path.write_bytes(b"not a table")
    prepared(source, tmp_path / "b", tokenizer=SAMPLE, cache=folder, fresh=True, workers=1)
    assert "--fresh" not in capfd.readouterr().err
    assert path.stat().st_size > 100
    path.write_bytes(b"cut off")  # what cannot be read is made again
    prepared(source, tmp_path / "c", tokenizer=SAMPLE, cache=folder)
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b") == bytes_of(tmp_path / "c")


def test_the_longest_unused_go_first_and_what_this_run_used_stays(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(1000))})
    names = [f"{i:02d}ab" for i in range(6)]
    for age, name in enumerate(names):
        TokenCache(tmp_path, key="").keep(name, table)
        os.utime(tmp_path / name[:2] / f"{name}.arrow", (1000 + age, 1000 + age))
    size = sum(path.stat().st_size for path in files_of(tmp_path)) // 6
    assert TokenCache(tmp_path, key="").find(names[0]) is not None  # used now
    assert 0 <= token_cache.bound(tmp_path, limit=3 * size, began=time.time() - 60) < size
    assert {path.stem for path in files_of(tmp_path)} == {names[0], names[4], names[5]}
    assert token_cache.bound(tmp_path, limit=size // 2, began=time.time() - 60) == math.inf
    assert {path.stem for path in files_of(tmp_path)} == {names[0]}
    TokenCache(tmp_path, key="").keep("99zz", table)
    assert len(files_of(tmp_path)) == 1  # full: nothing more is kept
    token_cache.bound(tmp_path, limit=9 * size, began=time.time())
    TokenCache(tmp_path, key="").keep("99zz", table)
    assert len(files_of(tmp_path)) == 2


def test_a_cache_that_cannot_be_written_or_is_cleared_meanwhile_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TokenCache(tmp_path, key="").keep("00ab", pa.table({"a": list(range(1000))}))
    TokenCache(tmp_path, key="").keep("01ab", pa.table({"a": list(range(1000))}))

    def refuse(path: object, **_: object) -> None:
        raise OSError(30, "Read-only file system", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        patch.setattr(Path, "touch", refuse)
        assert token_cache.bound(tmp_path, limit=1 << 20, began=time.time()) < 1 << 20
        assert token_cache.bound(tmp_path, limit=1, began=time.time() + 9) == math.inf
    scandir, listdir = os.scandir, os.listdir

    def list_unless_removed(path: object, listed: Any) -> Any:
        if Path(str(path)).name == "00":
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", lambda path: list_unless_removed(path, scandir))
    monkeypatch.setattr(os, "listdir", lambda path: list_unless_removed(path, listdir))
    remaining_bytes = token_cache.bound(tmp_path, limit=1 << 20, began=time.time())
    assert remaining_bytes == (1 << 20) - (tmp_path / "01" / "01ab.arrow").stat().st_size


def test_what_is_kept_is_looked_through_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking takes as long as there are blocks: every so many blocks would be quadratic."""
    looks: list[int] = []
    monkeypatch.setattr(token_cache, "bound", lambda *_, limit, **__: looks.append(1) or max(0, limit - watch_bytes[0]))
    monkeypatch.setattr(store, "limit", lambda: 1_000_000)
    watch_bytes = [0]
    watch = LocalProgress(SimpleNamespace(cache_folder=str(tmp_path)), total=0)  # type: ignore[arg-type]
    block = Block(RawFile("a.csv", "a.csv", 10), Format("csv"), ("a",), 1, 1, 0, 100)
    for _ in range(10_000):  # as many bytes as the limit
        watch_bytes[0] += block.size
        watch([block], [BlockTotals()])
    assert 5 < len(looks) < 200


def test_cache_shows_and_clears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path))
    monkeypatch.setenv("T5PREP_CACHE_LIMIT", "1.5GB")
    TokenCache(store.root() / "tokenized", key="").keep("00ab", pa.table({"a": [1]}))
    summary = json.loads(CliRunner().invoke(cli.main, ["cache", "show", "--json"]).stdout)
    assert summary["limit"] == 1_500_000_000
    assert summary["tokenized"]["files"] == 1
    assert "of at most 1.5 GB" in CliRunner().invoke(cli.main, ["cache", "show"]).stdout
    assert CliRunner().invoke(cli.main, ["cache", "clear", "tokenized"]).exit_code == 0
    assert not files_of(store.root() / "tokenized")
    refused("option.unknown-choice", '"engines"', command=("cache", "clear", "engines"))
    with raises(UsageError, "option.malformed", "--memory", "lots"):
        byte_sizes.parse("lots", name="--memory")


def killed(command: list[str], env: dict[str, str], *, condition: Callable[[], bool]) -> bool:
    """Start a command and kill it and what it started as soon as `condition` holds; whether it was done before."""
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None and not condition():
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait() == 0


@pytest.mark.slow
def test_a_run_killed_again_and_again_finishes_with_the_same_bytes(tmp_path: Path) -> None:
    """Cached tokens of killed runs are used by the next run, and only whole ones."""
    rows = [dict(row, Id=str(i)) for i, row in enumerate(questions(400, words=400) * 10)]
    source = write_csv(tmp_path / "rows.csv", rows)
    env = os.environ | {"T5PREP_CACHE": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "t5prep.cli", "prepare", "so_quality", "--source", str(source), "--workers", "2"]
    command += ["--tokenizer", str(SAMPLE), "--shards", "3", "--memory", "1GiB"]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], env=env, check=True, capture_output=True)
    blocks = files_of(tmp_path / "cache" / "tokenized")
    assert len(blocks) > KILLS
    for path in blocks:
        path.unlink()
    draw, out, progress = random.Random(20), tmp_path / "out", [0]
    for _ in range(KILLS):
        min_blocks = progress[-1] + draw.randint(0, 2)

        def has_enough_blocks(min_blocks: int = min_blocks) -> bool:
            """Return whether work is under way, and so many blocks are kept."""
            return out.exists() and len(files_of(tmp_path / "cache" / "tokenized")) >= min_blocks

        assert not killed([*command, "--out", str(out)], env, condition=has_enough_blocks) or progress[-1] == len(
            blocks
        )
        progress.append(len(files_of(tmp_path / "cache" / "tokenized")))
        if (out / "manifest.json").exists():  # written just before the kill
            verify(out)
            shutil.rmtree(out)
    last = subprocess.run([*command, "--out", str(out)], env=env, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert bytes_of(out) == bytes_of(tmp_path / "whole")
    assert progress == sorted(progress)  # what was tokenized stays
    assert progress[-1] > 0


def test_every_package_that_decides_tokens_is_in_the_digest_of_code() -> None:
    """A package that was renamed would be left out without a word, and tokens of older code found again."""
    folder = Path(token_cache.__file__).parents[1]
    assert [name for name in token_cache._PACKAGES if not list((folder / name).rglob("*.py"))] == []
    assert Path(block_tokenizer.__file__).parent.name in token_cache._PACKAGES
