"""Everything that t5prep keeps lies in one folder, wherever the user puts it."""

import os
import time
from pathlib import Path

import pytest
from raised import raises

from pipelines import engines
from t5prep import sources
from t5prep.cli import _checks
from t5prep.errors import UsageError
from t5prep.io import paths, signed_files, store


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"T5PREP_CACHE": "own", "XDG_CACHE_HOME": "xdg"}, "own"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/t5prep"),
        ({}, "home/.cache/t5prep"),
    ],
)
def test_what_is_cleared_is_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], folder: str
) -> None:
    for name in ("T5PREP_CACHE", "XDG_CACHE_HOME", "T5PREP_ENGINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, folder_name in environment.items():
        monkeypatch.setenv(name, str(tmp_path / folder_name))
    assert store.root() == tmp_path / folder
    assert engines.folder() == tmp_path / folder / "engines"
    plans = tmp_path / folder / "plan"
    (plans / "answers").mkdir(parents=True)
    (plans / "answers" / "answer.json").write_text("{}")
    (cleared,) = store.clear(["plan"])
    assert (cleared.files, plans.exists()) == (1, False)


def test_the_sample_is_not_written_anew_under_a_run_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path))
    assert sources.resolve("sample:") == sources.resolve("sample:")


def test_a_file_that_goes_while_the_cache_is_looked_at_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path))
    (tmp_path / "plan").mkdir()
    for name in ("gone", "there"):
        (tmp_path / "plan" / name).write_text("four")
    stat, stat_paths = os.stat, list[str]()

    def going(path: object, **options: object) -> os.stat_result:
        """The first look at the file finds it, as that of `is_file` does."""
        if Path(str(path)).name == "gone":
            stat_paths.append(str(path))
        if stat_paths[1:] and stat_paths[-1] == str(path):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return stat(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", going)
    store.show()
    (usage,) = (usage for usage in store.show() if usage.kind == "plan")
    assert (usage.files, usage.bytes) == (1, 4)


def test_a_clock_that_was_ahead_keeps_nothing_for_ever(tmp_path: Path) -> None:
    """A leftover goes, and files of the future go before the one that is stored now and those that this run has used."""
    files = store.Store(str(tmp_path), ".x", signed_files.CHECKSUM)
    began, future = time.time() - 60, time.time() + 400 * 86_400
    for name in ("a", "b", "c", "used"):
        files.put(name, b"1")
    (tmp_path / ".unfinished-d.x-1-00000000").write_bytes(b"1")
    (tmp_path / ".unfinished-e.x-1-00000000").write_bytes(b"1")
    for name in ("a.x", "b.x", "c.x", ".unfinished-d.x-1-00000000"):
        os.utime(tmp_path / name, (future, future))
    assert files.trim(2, cutoff=began, weigh=lambda _: 1) == 2
    remaining_names = paths.names(tmp_path)
    assert ".unfinished-d.x-1-00000000" not in remaining_names
    assert ".unfinished-e.x-1-00000000" in remaining_names  # a living process may be writing it
    assert "used" in files.names()
    assert files.trim(1, weigh=lambda _: 1) == 1
    assert files.names() == {"used"}


def test_a_user_without_a_home_names_a_folder_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is started with the number of a user whom it does not know."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("T5PREP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with raises(UsageError, "cache.missing-home"):
        store.root()
    (finding,) = [finding for finding in _checks.disk() if finding.what == "disk of the cache"]
    assert (finding.state, finding.fix) == ("wrong", "export T5PREP_CACHE=FOLDER")
