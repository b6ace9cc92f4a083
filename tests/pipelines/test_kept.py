"""What an engine's workers made is kept for the same job again; damaged or gone, it is said, and nothing is lost in silence."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from preparing import bytes_of, prepared, questions, write_csv

from pipelines import engines
from pipelines import prepare as preparing
from pipelines.kept import Kept, store
from t5prep.dataset import shard_files
from t5prep.errors import OutputError, T5prepError
from t5prep.preparation import output_folder
from t5prep.preparation.spills import Spill
from t5prep.sources import sample

CHOICES: dict[str, Any] = {"tokenizer": sample.tokenizer_path(), "shards": 3, "input_length": 32, "runner": "prism"}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(str(tmp_path / "kept"), b"key")


def test_what_is_kept_is_found_again_with_the_file_that_goes_with_it(kept: Kept, tmp_path: Path) -> None:
    shard = tmp_path / "shard"
    shard.write_bytes(b"one")
    kept.keep("FindRepeats-1", [1, b"x"])
    kept.keep("train.tfrecord-00000-of-00002", ["totals"], file=str(shard))
    assert kept.find("FindRepeats-1") == [1, b"x"]
    assert kept.find("FindRepeats-2") is None
    assert Kept(kept.folder, b"another").find("FindRepeats-1") is None
    assert kept.find("train.tfrecord-00000-of-00002", file=str(shard)) == ["totals"]
    shard.write_bytes(b"other")
    assert kept.find("train.tfrecord-00000-of-00002", file=str(shard)) is None


def test_what_a_run_counts_on_and_is_gone_is_said(kept: Kept) -> None:
    kept.keep("FindRepeats-1", [1])
    kept.keep("train.tfrecord-00001-of-00002", [2])
    kept.keep("found.1", ["FindRepeats-1", "train.tfrecord-00001-of-00002"])
    again = Kept(kept.folder, kept.key, "found.1")
    assert again.find("FindRepeats-1") == [1]
    assert again.done() == {"FindRepeats-1", "train.tfrecord-00001-of-00002"}
    (Path(kept.folder) / "FindRepeats-1").write_bytes(b"damaged")
    with pytest.raises(OutputError, match=r"FindRepeats-1 was removed, changed or damaged .* --fresh"):
        again.find("FindRepeats-1")


def test_stored_rows_are_read_again_and_what_is_damaged_or_gone_is_said(kept: Kept) -> None:
    spill = Spill(0, {}, {}, data=b"some rows")
    file = kept.rows_of("MergeBlocks-1")
    (_, first), (_, second) = store([("a", dataclasses.replace(spill, data=b"others")), ("b", spill)], file)
    assert (first.read().data, second.read()) == (b"others", spill)
    Path(file).write_bytes(Path(file).read_bytes()[:-1] + b"S")
    assert first.read().data == b"others"
    with pytest.raises(OutputError, match=r"MergeBlocks-1.rows was removed, changed or damaged .* --fresh"):
        second.read()
    Path(file).unlink()
    with pytest.raises(OutputError, match="was removed"):
        first.read()


def test_rows_are_found_where_their_folder_lies_now_and_if_they_were_written_twice(kept: Kept, tmp_path: Path) -> None:
    spill = Spill(0, {}, {}, data=b"some rows")
    for _ in range(2):  # a worker that was thought to be lost writes the same bytes later
        rows = store([(3, spill)], kept.rows_of("MergeBlocks-1"))
        if not Path(kept.folder, "MergeBlocks-1").exists():
            kept.keep("MergeBlocks-1", rows, file=kept.rows_of("MergeBlocks-1"))
    Path(kept.folder).rename(tmp_path / "moved")
    moved = Kept(str(tmp_path / "moved"), kept.key)
    ((number, found),) = moved.find("MergeBlocks-1", file=moved.rows_of("MergeBlocks-1")) or ()
    assert (number, found.read()) == (3, spill)
    Path(moved.rows_of("MergeBlocks-1")).unlink()
    assert moved.find("MergeBlocks-1", file=moved.rows_of("MergeBlocks-1")) is None


def test_a_list_of_what_was_found_that_cannot_be_read_is_said(kept: Kept) -> None:
    with pytest.raises(OutputError, match=r"found.1 was removed, changed or damaged .* --fresh"):
        Kept(kept.folder, kept.key, "found.1").done()


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let --runner prism be Beam's own runner in this process."""
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    engine = engines.Engine("prism", FnApiRunner(), PipelineOptions([]))
    monkeypatch.setattr(engines, "engine", lambda name, **how: engine)
    monkeypatch.setattr(preparing.engines, "require", lambda *_, **__: None)


def fails(self: Any, **_: Any) -> None:
    raise OutputError("the disk is full")


@pytest.mark.parametrize("dedup", ["near", "none"])
def test_a_job_that_failed_at_its_end_does_no_work_twice(
    in_this_process: None, dedup: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    rows = questions(60)
    source = write_csv(tmp_path / "rows.csv", [*rows, *(dict(row, Id=f"{row['Id']} again") for row in rows[::5])])
    out, choices = tmp_path / "out", {**CHOICES, "dedup": dedup}
    prepared(source, tmp_path / "here", **{**choices, "runner": "local"})
    with monkeypatch.context() as patch:
        patch.setattr(preparing.Finish, "__call__", fails)
        with pytest.raises(T5prepError, match="the disk is full"):
            prepared(source, out, **choices)
    prepared(source, out, **choices, fresh=False)
    found, every = capsys.readouterr().err.split(" blocks, groups and shards")[0].split()[-3::2]
    assert found == every
    assert bytes_of(out) == bytes_of(tmp_path / "here")
    assert not list(out.glob(f"{output_folder.KEPT}*"))


@pytest.mark.parametrize(
    ("gone", "taken"),
    [
        ("*.tfrecord-*", ["pipelines.graph.merge_blocks", "pipelines.steps.cut_bands", "pipelines.steps.group_rows"]),
        ("CutShards-*", ["pipelines.graph.merge_blocks", "pipelines.steps.cut_bands", "pipelines.steps.group_rows"]),
        ("FindRepeats-*", ["pipelines.graph.cut_shards", "pipelines.steps.cut_bands", "pipelines.steps.group_rows"]),
        ("JoinLinks-*", ["pipelines.graph.cut_shards", "pipelines.steps.link_rows"]),
        ("[CM]*s-*", ["pipelines.steps.cut_bands", "pipelines.steps.group_rows"]),
    ],
)
def test_what_was_made_whole_before_what_is_gone_is_not_begun_again(
    in_this_process: None, gone: str, taken: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = questions(60)
    source = write_csv(tmp_path / "rows.csv", [*rows, *(dict(row, Id=f"{row['Id']} again") for row in rows[::5])])
    out, choices = tmp_path / "out", {**CHOICES, "dedup": "near"}
    prepared(source, tmp_path / "here", **{**choices, "runner": "local"})
    with monkeypatch.context() as patch:
        patch.setattr(preparing.Finish, "__call__", fails)
        with pytest.raises(T5prepError, match="the disk is full"):
            prepared(source, out, **choices)
    (folder,) = out.glob(f"{output_folder.KEPT}*")
    lost = [path for pattern in ("*.tfrecord-*", gone) for path in folder.glob(pattern)]
    assert lost
    for path in set(lost):
        path.unlink()
    for step in taken:
        monkeypatch.setattr(step, fails)
    prepared(source, out, **choices)
    assert bytes_of(out) == bytes_of(tmp_path / "here")


def test_another_job_takes_nothing_of_it_and_leaves_nothing_of_it(
    in_this_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    source, out = write_csv(tmp_path / "rows.csv", questions(60)), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(preparing.Finish, "__call__", fails)
        with pytest.raises(T5prepError):
            prepared(source, out, **CHOICES)
    assert list(out.glob(f"{output_folder.KEPT}*"))
    prepared(source, out, **CHOICES | {"shards": 2, "seed": 1})
    assert "an earlier run" not in capsys.readouterr().err
    assert (
        len([path for path in out.iterdir() if shard_files.is_shard(path.name)]) == 3
    )  # two of train, one of validation
    assert not list(out.glob(f"{output_folder.KEPT}*"))
