"""Local files: nothing inside a source is passed over, and what was listed is what is read."""

import os
import time
from pathlib import Path

import pytest
from raised import raises
from small_corpora import prepared, questions, write_csv

from pipelines import steps
from t5prep import sources
from t5prep.errors import SourceError
from t5prep.reading import blocks, formats
from t5prep.sources import sample

SAMPLE = sample.tokenizer_path()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.csv", "deep/b.csv", "deep/deeper/c.csv", ".hidden/d.csv", "deep/.e.csv"):
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    return tmp_path / "source"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["a.csv", "deep/b.csv", "deep/deeper/c.csv"]),
        ("/*.csv", ["a.csv"]),
        ("/*/*.csv", ["deep/b.csv"]),
        ("/**/*.csv", ["a.csv", "deep/b.csv", "deep/deeper/c.csv"]),
        ("/deep/**", ["b.csv", "deeper/c.csv"]),
        ("/.hidden/*", ["d.csv"]),
        ("/**/.e.*", ["deep/.e.csv"]),
        ("/*/[bc].csv", ["deep/b.csv"]),
    ],
)
def test_which_files_a_pattern_names(folder: Path, pattern: str, names: list[str]) -> None:
    assert [file.name for file in sources.resolve(f"{folder}{pattern}").files] == names


def test_a_folder_that_cannot_be_read_is_not_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refuse(path: str) -> object:
        if Path(path).name == "deeper":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with raises(SourceError, "source.unreadable", "Permission denied", "deep/deeper"):
        sources.resolve(str(folder))
    assert len(sources.resolve(f"{folder}/*.csv").files) == 1


def test_a_link_to_nothing_is_not_passed_over(folder: Path) -> None:
    (folder / "gone.csv").symlink_to(folder / "nothing.csv")
    with raises(SourceError, "source.broken-link", "gone.csv"):
        sources.resolve(str(folder))


def _touch(path: Path) -> None:
    """Write the same number of other bytes."""
    time.sleep(0.02)
    path.write_bytes(path.read_bytes()[::-1])


def test_a_file_that_changes_is_not_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SMALL_BYTES", 0)  # else the rows travel in the block
    path = write_csv(tmp_path / "rows.csv", questions(30))
    (file,) = sources.resolve(str(path)).files
    cut = blocks.scan(file, formats.detect(file.name), block_bytes=64)
    block = next(cut)
    assert list(blocks.read(block))
    _touch(path)
    for read in (lambda: list(blocks.read(block)), lambda: sources.sha256(file), lambda: sources.open_stream(file)):
        with raises(SourceError, "source.concurrent-change", "rows.csv"):
            read()


@pytest.mark.parametrize("moment", ["read", "hashed", "done", "removed"])
def test_a_source_that_changes_while_it_is_prepared_gives_no_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = write_csv(tmp_path / "rows.csv", questions(900 if moment == "hashed" else 30))
    assert (path.stat().st_size < 64 << 10) == (moment != "hashed")  # a smaller file is read once
    of = {"read": (steps.sources, "content_of_small"), "hashed": (steps.sources, "checksum")}
    owner, name = of.get(moment, (steps.WriteShard, "write"))
    function = getattr(owner, name)

    def then(*arguments: object) -> object:
        result = function(*arguments)
        if moment == "removed":
            path.unlink(missing_ok=True)
        else:
            _touch(path)
        return result

    monkeypatch.setattr(owner, name, then)
    with raises(SourceError, "source.concurrent-change"):
        prepared(path, tmp_path / "out", tokenizer=SAMPLE)
    assert not (tmp_path / "out/manifest.json").exists()


def test_a_gz_and_a_zip_are_watched_too(tmp_path: Path) -> None:
    import gzip
    import zipfile

    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.writestr("rows.csv", "a,b\n1,2\n")
    for name in ("rows.csv.gz", "rows.zip"):
        (file,) = sources.resolve(str(tmp_path / name)).files
        with sources.open_stream(file) as stream:
            assert stream.read() == b"a,b\n1,2\n"
        _touch(tmp_path / name)
        with raises(SourceError, "source.concurrent-change"):
            sources.open_stream(file)
