"""Nasty files are prepared: what became of each row is what an independent reader of whole files says.

The large run, by hand: python tests/pipelines/test_nasty_sources.py 10000
"""

import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this file is run by hand

from damage_kit import ENCODINGS, SNIFFED_BYTES, Nasty, generate, write
from small_corpora import by_id, prepared, rejected

from t5prep import sources
from t5prep.dataset.rejected_rows import Rows
from t5prep.dataset.verify import verify
from t5prep.preparation import memory_budget
from t5prep.reading import blocks
from t5prep.sources import sample

COLUMNS = {"inputs_column": "text", "targets_column": "text"}
BLOCK_BYTES = (64, 100, 1000, 2 << 20)


def _good(row: dict | str) -> bool:
    """Return whether text2text makes an example of a row: its text is one and not empty, or a truth value."""
    text = row.get("text") if isinstance(row, dict) else None
    return isinstance(text, bool) or (isinstance(text, str) and bool(text.strip()))


def check(files: list[Nasty], folder: Path, *, workers: int, block_bytes: int) -> int:
    """Prepare files of one encoding, hold what came out against their rows, and return how many rows there were."""
    source = folder / "source"
    source.mkdir(parents=True)
    for file in files:
        write(file, source)
    # An encoding is refused if all files are Parquet.
    has_text = any(not file.name.endswith(".parquet") for file in files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "SNIFFED_BYTES", SNIFFED_BYTES)
        share = memory_budget.share
        patch.setattr(memory_budget, "share", lambda *a, **k: share(*a, **k)._replace(block_bytes=block_bytes))
        manifest = prepared(
            sorted(source.iterdir()), folder / "out", tokenizer=sample.tokenizer_path(), workers=workers, task="text2text",
            options=COLUMNS, encoding=files[0].encoding if has_text else "utf-8", input_length=64, target_length=64, layout="ragged",
        )  # fmt: skip
    expected = {
        file.name: Rows(
            read=len(file.rows),
            examples=sum(map(_good, file.rows)),
            rejected=sum(not _good(row) and row != "blank" for row in file.rows),
            duplicates=0,
            blank=file.rows.count("blank"),
        )
        for file in files
        if file.rows
    }
    assert manifest.rows == expected
    assert by_id(folder / "out").keys() == {
        f"{file.name}:{number}" for file in files for number, row in enumerate(file.rows, 1) if _good(row)
    }
    assert {(line["file"], line["row"]) for line in rejected(folder / "out")} == {
        (file.name, number)
        for file in files
        for number, row in enumerate(file.rows, 1)
        if not _good(row) and row != "blank"
    }
    assert verify(folder / "out") == manifest
    assert len(sources.resolve(str(source)).files) == len(files)
    return sum(len(file.rows) for file in files)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_nasty_files_lose_no_row(tmp_path: Path, encoding: str, workers: int) -> None:
    files = [generate(seed, encoding=encoding) for seed in range(16 * workers, 16 * workers + 16)]
    check(files, tmp_path, workers=workers, block_bytes=BLOCK_BYTES[workers])


def large(count: int) -> None:
    """Prepare `count` files with 1, 2 and 4 workers, and say how many rows were accounted for."""
    for workers in (1, 2, 4):
        began, rows = time.monotonic(), 0
        for index, encoding in enumerate(ENCODINGS):
            files = [generate(seed, encoding=encoding) for seed in range(index, count, len(ENCODINGS))]
            with tempfile.TemporaryDirectory() as folder:
                block_bytes = BLOCK_BYTES[(index + workers) % len(BLOCK_BYTES)]
                rows += check(files, Path(folder), workers=workers, block_bytes=block_bytes)
        print(
            f"{workers} workers: {count:,} files, {rows:,} rows, all accounted for ({time.monotonic() - began:.0f} s)"
        )


if __name__ == "__main__":
    large(int(sys.argv[1]))
