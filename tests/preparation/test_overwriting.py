"""`--overwrite`: another dataset is replaced when the new one is whole, and nothing of anyone else's is touched."""

import errno
import fcntl
from pathlib import Path

import pytest
from raised import raises
from small_corpora import bytes_of, prepared, questions, write_csv

from pipelines import stages
from t5prep.errors import OutputError, UsageError
from t5prep.preparation import output_folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "questions.csv", questions(30))


def _prepare(source: Path, out: Path, **choices: object) -> None:
    prepared(source, out, tokenizer="sample:", **{"input_length": 64, **choices})


def test_another_dataset_is_replaced_and_kept_beside(source: Path, tmp_path: Path, capsys) -> None:
    out, fresh = tmp_path / "data", tmp_path / "fresh"
    _prepare(source, out)
    old = bytes_of(out)
    _prepare(source, out, seed=1, overwrite=True)
    _prepare(source, fresh, seed=1)
    assert bytes_of(out) == bytes_of(fresh)
    assert bytes_of(tmp_path / "data.replaced") == old
    assert "data.replaced" in capsys.readouterr().err
    _prepare(source, out, seed=2, overwrite=True)  # and once more
    assert bytes_of(tmp_path / "data.replaced") == old
    assert bytes_of(tmp_path / "data.replaced-2") == bytes_of(fresh)


def test_a_file_system_without_locks_is_no_other_run(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    _prepare(source, tmp_path / "data")
    assert (tmp_path / "data" / "manifest.json").exists()


def test_without_the_option_it_is_named(source: Path, tmp_path: Path) -> None:
    _prepare(source, tmp_path / "data")
    with raises(OutputError, "output.different-settings", "--seed 0", "30", "--overwrite", "so_quality"):
        _prepare(source, tmp_path / "data", seed=1)


def test_the_same_dataset_and_an_empty_place_need_no_folder_beside(source: Path, tmp_path: Path) -> None:
    for _ in range(2):
        _prepare(source, tmp_path / "data", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "questions.csv"]


def test_a_run_that_fails_leaves_the_old_dataset(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "data"
    _prepare(source, out)
    old = bytes_of(out)
    with monkeypatch.context() as patch:

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(stages, "of_job", killed)
        with pytest.raises(KeyboardInterrupt):
            _prepare(source, out, seed=1, overwrite=True)
    assert bytes_of(out) == old
    _prepare(source, out, seed=1, overwrite=True)
    assert bytes_of(tmp_path / "data.replaced") == old
    assert not (tmp_path / "data.t5prep-new").exists()


@pytest.mark.parametrize("moves", [0, 1])
def test_a_kill_at_a_renaming_loses_neither(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    out, renamings = tmp_path / "data", 0
    _prepare(source, out)
    old = bytes_of(out)
    move = output_folder._move

    def killed(origin: Path, to: Path) -> None:
        nonlocal renamings
        if renamings == moves:
            raise KeyboardInterrupt
        renamings += 1
        move(origin, to)

    with monkeypatch.context() as patch:
        patch.setattr(output_folder, "_move", killed)
        with pytest.raises(KeyboardInterrupt):
            _prepare(source, out, seed=1, overwrite=True)
    assert bytes_of(out if moves == 0 else tmp_path / "data.replaced") == old
    _prepare(source, out, seed=1, overwrite=True)
    _prepare(source, tmp_path / "fresh", seed=1)
    assert bytes_of(out) == bytes_of(tmp_path / "fresh")
    assert bytes_of(tmp_path / "data.replaced") == old
    assert not (tmp_path / "data.t5prep-new").exists()


def test_a_file_of_someone_else_stops_it(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    _prepare(source, out)
    (out / "notes.txt").write_text("mine")
    old = bytes_of(out)
    with raises(OutputError, "output.foreign-file", "notes.txt"):
        _prepare(source, out, seed=1, overwrite=True)
    assert bytes_of(out) == old
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"name": "an app"}')
    with raises(OutputError, "output.damaged-dataset"):
        _prepare(source, tmp_path / "other", overwrite=True)
    assert (tmp_path / "other" / "manifest.json").read_text() == '{"name": "an app"}'


def test_a_bucket_cannot_be_renamed() -> None:
    with (
        raises(UsageError, "output.unsupported-overwrite"),
        output_folder.claimed("gs://bucket/data", new_identity=None, overwrite=True),  # type: ignore[arg-type]
    ):
        pass


def test_the_root_of_the_disk_and_a_link_to_itself_are_sentences(source: Path, tmp_path: Path) -> None:
    with raises(OutputError, "output.root-folder", "/data"):
        _prepare(source, Path("/"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with raises(OutputError, "output.link-loop"):
        _prepare(source, tmp_path / "loop")


def test_lengths_that_no_memory_holds_are_refused(source: Path, tmp_path: Path) -> None:
    with raises(UsageError, "option.out-of-range", "1048576", "100000000", "input-length"):
        _prepare(source, tmp_path / "out", input_length=100_000_000)
