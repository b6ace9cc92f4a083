"""What an engine's workers made is kept for the same job again: blocks and shards, each under a name of what it is made of."""

import dataclasses
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raised import raises
from small_corpora import bytes_of, prepared, questions, write_csv

from pipelines import engines, flow, prepare, steps
from pipelines.job_results import JobResults
from pipelines.pieces import load, store
from t5prep.dataset import shard_files
from t5prep.errors import OutputError, T5prepError
from t5prep.preparation import output_folder
from t5prep.preparation.spills import Spill
from t5prep.sources import sample

CHOICES: dict[str, Any] = {"tokenizer": sample.tokenizer_path(), "shards": 3, "input_length": 32, "runner": "prism"}


@pytest.fixture
def job_results(tmp_path: Path) -> JobResults:
    return JobResults(str(tmp_path / "kept"), b"key")


def test_what_is_kept_is_found_again_with_the_file_that_goes_with_it(job_results: JobResults, tmp_path: Path) -> None:
    shard = tmp_path / "shard"
    shard.write_bytes(b"one")
    job_results.keep("block", [1, b"x"])
    job_results.keep("train.tfrecord-00000-of-00002", ["totals"], file=str(shard))
    assert job_results.find("block") == [1, b"x"]
    assert job_results.find("another block") is None
    assert JobResults(job_results.folder, b"another").find("block") is None
    assert job_results.find("train.tfrecord-00000-of-00002", file=str(shard)) == ["totals"]
    shard.write_bytes(b"other")
    assert job_results.find("train.tfrecord-00000-of-00002", file=str(shard)) is None
    (Path(job_results.folder) / "block").write_bytes(b"damaged")
    assert job_results.find("block") is None


def test_stored_rows_are_read_again_and_what_is_damaged_or_gone_is_said(job_results: JobResults) -> None:
    spill = Spill(0, {}, {}, data=b"some rows")
    file = job_results.rows_of("batch")
    results = [("a", dataclasses.replace(spill, data=b"others")), "totals", ("b", spill)]
    (_, first), totals, (_, second) = store(results, file, types=(Spill,))
    assert (load(first).data, totals, load(second)) == (b"others", "totals", spill)
    Path(file).write_bytes(Path(file).read_bytes()[:-1] + b"S")
    assert first.read() == b"others"
    with raises(OutputError, "output.scratch-altered"):
        second.read()
    Path(file).unlink()
    with raises(OutputError, "output.scratch-altered"):
        first.read()


def test_rows_are_found_where_their_folder_lies_now_and_if_they_were_written_twice(
    job_results: JobResults, tmp_path: Path
) -> None:
    spill = Spill(0, {}, {}, data=b"some rows")
    for _ in range(2):  # a worker that was thought to be lost writes the same bytes later
        rows = store([(3, spill)], job_results.rows_of("block"), types=(Spill,))
        if not Path(job_results.folder, "block").exists():
            job_results.keep("block", rows, file=job_results.rows_of("block"))
    Path(job_results.folder).rename(tmp_path / "moved")
    moved = JobResults(str(tmp_path / "moved"), job_results.key)
    ((number, stored_spill),) = moved.find("block", file=moved.rows_of("block")) or ()
    assert (number, load(stored_spill)) == (3, spill)
    Path(moved.rows_of("block")).unlink()
    assert moved.find("block", file=moved.rows_of("block")) is None


@pytest.fixture(scope="module", autouse=True)
def _in_this_process() -> Iterator[None]:
    """Let --runner prism be Beam's own runner in this process."""
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    engine = engines.Engine("prism", FnApiRunner(), PipelineOptions([]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "engine", lambda name, **options: engine)
        patch.setattr(prepare.engines, "require", lambda *_, **__: None)
        yield


def fails(*_: Any, **__: Any) -> None:
    raise OutputError("the disk is full", code="output.no-space")


@dataclasses.dataclass(frozen=True)
class Failed:
    """A job that failed at its end: its source, its folder, and the bytes that it should have made."""

    source: Path
    out: Path
    choices: dict[str, Any]
    expected: dict[str, bytes]

    def restore(self) -> Path:
        """Make the folder as it was after the failure, and return where its results are."""
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.out.with_name("failed"), self.out)
        (folder,) = self.out.glob(f"{output_folder.CACHE_PREFIX}*")
        return folder

    def resume(self) -> None:
        """Submit the job again, and compare what it makes."""
        prepared(self.source, self.out, **self.choices, fresh=False)
        assert bytes_of(self.out) == self.expected
        assert not list(self.out.glob(f"{output_folder.CACHE_PREFIX}*"))


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Failed:
    folder, rows = tmp_path_factory.mktemp("failed"), questions(60)
    source = write_csv(folder / "rows.csv", [*rows, *(dict(row, Id=f"{row['Id']} again") for row in rows[::5])])
    out, choices = folder / "out", {**CHOICES, "dedup": "near"}
    prepared(source, folder / "here", **{**choices, "runner": "local"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare.Finish, "__call__", fails)
        with raises(T5prepError, "output.no-space"):
            prepared(source, out, **choices)
    out.rename(folder / "failed")
    return Failed(source, out, choices, bytes_of(folder / "here"))


def test_a_job_that_failed_at_its_end_makes_no_block_and_no_shard_twice(
    failed: Failed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where all stages have other names: what is kept has the name of a shard, or a digest of what it is made of."""
    results = {path.name for path in failed.restore().iterdir() if path.suffix != ".rows"}
    assert all(shard_files.is_shard(name) or re.fullmatch(r"[0-9a-f]{32}", name) for name in results)
    in_order = flow.in_order

    def renamed(last: flow.Stage[Any]) -> list[flow.Stage[Any]]:
        for stage in in_order(last):
            object.__setattr__(stage, "name", f"Renamed{stage.name}")
        return in_order(last)

    monkeypatch.setattr(flow, "in_order", renamed)
    for name in ("PrepareBlock.sort", "WriteShard.write"):
        monkeypatch.setattr(f"pipelines.steps.{name}", fails)
    failed.resume()
    found_count, every = capsys.readouterr().err.split(" blocks and shards")[0].split()[-3::2]
    assert found_count == every == str(len(results))


@pytest.mark.parametrize("removed_kind", ["shards", "blocks"])
def test_what_is_gone_is_made_again_and_nothing_else(
    failed: Failed, removed_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, folder = list[str](), failed.restore()
    for path in folder.iterdir():
        if shard_files.is_shard(path.name) == (removed_kind == "shards"):
            path.unlink()
    for name in ("PrepareBlock.sort", "WriteShard.write"):
        owner, _, method = name.partition(".")
        step = getattr(getattr(steps, owner), method)
        monkeypatch.setattr(
            f"pipelines.steps.{name}", lambda *arguments, step=step, name=name: calls.append(name) or step(*arguments)
        )
    failed.resume()
    assert calls
    assert set(calls) == {"WriteShard.write" if removed_kind == "shards" else "PrepareBlock.sort"}


def test_another_job_takes_nothing_of_it_and_leaves_nothing_of_it(
    failed: Failed, capsys: pytest.CaptureFixture[str]
) -> None:
    failed.restore()
    prepared(failed.source, failed.out, **failed.choices | {"shards": 2, "seed": 1})
    assert "--fresh" not in capsys.readouterr().err
    shard_count = len([path for path in failed.out.iterdir() if shard_files.is_shard(path.name)])
    assert shard_count == 3  # two of train, one of validation
    assert not list(failed.out.glob(f"{output_folder.CACHE_PREFIX}*"))
