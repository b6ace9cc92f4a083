"""A local run sorts any number of blocks through few runs, and an engine through pieces of a bounded size."""

import functools
import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from raised import raises
from small_corpora import bytes_of, prepared, questions, rejected, write_csv

from pipelines import engines, prepare, sorting, steps
from t5prep.dataset import manifest, rejected_rows
from t5prep.dataset.verify import verify
from t5prep.errors import DatasetError
from t5prep.preparation import memory_budget, output_folder, shards
from t5prep.preparation.memory_budget import Budget
from t5prep.preparation.spills import Spill
from t5prep.sources import sample

SAMPLE = sample.tokenizer_path()
CHOICES: dict[str, Any] = {"tokenizer": SAMPLE, "shards": 5, "input_length": 32}


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one or two rows, on one machine and on engines."""
    monkeypatch.setattr(memory_budget, "share", lambda memory, *, workers: Budget(workers, 400))
    monkeypatch.setattr(prepare, "_run", functools.partial(prepare._run, shared=Budget(1, 400)))


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let --runner prism be Beam's own runner in this process, with the steps of an engine; the results of its runs."""
    results: list[Any] = []

    class Remembering(FnApiRunner):
        def run_pipeline(self, pipeline: Any, options: Any) -> Any:
            self.proto = pipeline.to_runner_api() if isinstance(pipeline, beam.Pipeline) else pipeline
            results.append((self.proto, super().run_pipeline(pipeline, options)))
            return results[-1][1]

    engine = engines.Engine("prism", Remembering(), PipelineOptions([]))
    monkeypatch.setattr(engines, "engine", lambda name, **engine_options: engine)
    monkeypatch.setattr(prepare.engines, "require", lambda *_, **__: None)
    return results


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("source") / "rows", rows=60)


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Layout → a dataset of the source that is made of few blocks."""
    folder = tmp_path_factory.mktemp("expected")
    for layout in ("padded", "packed"):
        prepared(source, folder / layout, layout=layout, **CHOICES)
    return {layout: folder / layout for layout in ("padded", "packed")}


def corpus(folder: Path, *, rows: int) -> Path:
    """Some files of questions, of which some are duplicates and some have no label."""
    folder.mkdir()
    every = questions(rows)
    for number, row in enumerate(every):
        if number % 9 == 4:
            row["Y"] = "unheard of"
        if number % 10 == 3:
            row["Id"] = every[number - 3]["Id"]
    write_csv(folder / "a.csv", every[: rows // 3])
    write_csv(folder / "b.csv", every[rows // 3 :])
    return folder


@pytest.mark.parametrize("fan_in", [2, 3, 7])
def test_runs_that_are_merged_again_and_again_make_the_same_bytes(
    fan_in: int, source: Path, expected: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_budget, "share", lambda memory, *, workers: Budget(workers, 400, 2000))
    remaining_spills: list[set[Path]] = []
    write = steps.WriteShard.write

    def noted(self: steps.WriteShard, spec: shards.ShardSpec, spilled: list[Spill], repeats: Any) -> Any:
        remaining_spills.append({Path(spill.path) for spill in spilled})
        files = {path for path in (tmp_path / "out" / output_folder.SPOOL).iterdir() if len(path.name) in (31, 32)}
        assert files == remaining_spills[-1]  # what was merged is gone
        return write(self, spec, spilled, repeats)

    monkeypatch.setattr(sorting, "FAN_IN", fan_in)
    monkeypatch.setattr(steps.WriteShard, "write", noted)
    prepared(source, tmp_path / "out", **CHOICES)
    assert all(0 < len(spilled) <= fan_in for spilled in remaining_spills)
    assert any(path.name.startswith("merged-") for path in remaining_spills[0])
    assert bytes_of(tmp_path / "out") == bytes_of(expected["padded"])


def test_an_engine_that_cuts_and_merges_in_every_way_makes_the_same_bytes(
    source: Path,
    expected: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_blocks: None,
    spread: list[Any],
) -> None:
    monkeypatch.setattr(shards, "for_source", lambda _: shards.MergePlan(groups=4, lanes=3, batches=7))
    for name, value in (("LARGEST_BATCH", 3000), ("SMALLEST_BATCH", 3000), ("PIECE_BYTES", 500)):
        monkeypatch.setattr(shards, name, value)
    monkeypatch.setattr(sorting, "HELD_BYTES", 1000)
    prepared(source, tmp_path / "out", layout="packed", runner="prism", **CHOICES)
    assert spread
    assert bytes_of(tmp_path / "out") == bytes_of(expected["packed"])


def test_many_rejected_rows_are_many_files_from_every_engine(
    source: Path,
    expected: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_blocks: None,
    spread: list[Any],
) -> None:
    expected_manifest = manifest.load(expected["padded"])
    monkeypatch.setattr(rejected_rows, "LARGEST_BYTES", 200)
    monkeypatch.setattr(rejected_rows, "PART_BYTES", 200)
    monkeypatch.setattr(rejected_rows, "_ROWS_A_GROUP", 4)
    local_manifest = prepared(source, tmp_path / "local", **CHOICES)
    prepared(source, tmp_path / "engine", runner="prism", **CHOICES)
    assert bytes_of(tmp_path / "local") == bytes_of(tmp_path / "engine")
    assert local_manifest.rejected_file
    assert expected_manifest.rejected_file
    assert (local_manifest.rejected, local_manifest.rows, local_manifest.rejected_file.lines) == (
        expected_manifest.rejected,
        expected_manifest.rows,
        expected_manifest.rejected_file.lines,
    )
    names = rejected_rows.names_of(local_manifest.rejected_file.name)
    assert len(names) > 4
    lines = [json.loads(line) for name in names for line in (tmp_path / "local" / name).read_text().splitlines()]
    assert sorted(lines, key=repr) == sorted(rejected(expected["padded"]), key=repr)
    assert verify(tmp_path / "local") == local_manifest
    (tmp_path / "local" / names[1]).write_bytes(b"")
    with raises(DatasetError, "dataset.altered", "rejected.jsonl@8"):
        verify(tmp_path / "local")
    prepared(source, tmp_path / "local", **CHOICES)  # a dataset of ours, which is made again in place
    assert verify(tmp_path / "local") == local_manifest


def side_inputs(proto: Any) -> set[str]:
    """The PCollections that some step reads as a side input."""
    pcollections = set()
    for transform in proto.components.transforms.values():
        if transform.spec.urn == "beam:transform:pardo:v1":
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            pcollections |= {transform.inputs[name] for name in payload.side_inputs}
    return pcollections


def element_counts(result: Any) -> dict[str, int]:
    """PCollection → how many elements it had."""
    counts: dict[str, int] = {}
    for info in result.monitoring_infos():
        if info.urn == "beam:metric:element_count:v1":
            name = info.labels["PCOLLECTION"]
            counts[name] = max(counts.get(name, 0), beam.coders.VarIntCoder().decode(info.payload))
    return counts


@pytest.mark.parametrize("rows", [40, pytest.param(1_000, marks=pytest.mark.slow)])
def test_what_an_engine_hands_to_every_worker_does_not_grow_with_blocks(
    rows: int, tmp_path: Path, tiny_blocks: None, spread: list[Any]
) -> None:
    """Of everything that is read as a side input there is one element, whether there are 20 blocks or 500."""
    prepared(corpus(tmp_path / "rows", rows=rows), tmp_path / "out", runner="prism", **CHOICES)
    ((proto, result),) = spread
    sides, counts = side_inputs(proto), element_counts(result)
    assert len(sides) >= 6
    blocks = max(counts.values())
    assert blocks >= rows // 2
    side_counts = {name: counts[name] for name in sides if name in counts}
    assert side_counts
    assert set(side_counts.values()) == {1}
    assert manifest.load(tmp_path / "out").rows


@pytest.mark.parametrize("dedup", ["near", "none"])
def test_rejected_rows_stand_in_one_order_however_shards_are_written_in_parts(
    dedup: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are left out for several reasons in each part, and how large a part is follows from the memory there is."""
    rows = questions(60)
    (tmp_path / "rows").mkdir()
    same_id_rows = [dict(row, Body=f"another {n}") for n, row in enumerate(rows[::4])]
    same_text_rows = [dict(row, Id=f"other {n}") for n, row in enumerate(rows[::3])]
    write_csv(tmp_path / "rows" / "train.csv", [*rows, *same_id_rows, *same_text_rows])
    write_csv(tmp_path / "rows" / "test.csv", rows[::5])
    choices = {**CHOICES, "shards": 1, "dedup": dedup, "splits": None}
    dataset_manifest = prepared(tmp_path / "rows", tmp_path / "whole", **choices)
    assert len({row["reason"].partition(": ")[0] for row in rejected(tmp_path / "whole")}) == 1 + (dedup == "near")
    assert dataset_manifest.splits["test"].examples == 12
    monkeypatch.setattr(memory_budget, "share", lambda memory, *, workers: Budget(workers, 2 << 20, 1 << 10))
    prepared(tmp_path / "rows", tmp_path / "parts", **choices)
    assert bytes_of(tmp_path / "parts") == bytes_of(tmp_path / "whole")


@pytest.mark.parametrize("dedup", ["exact", "none"])
@pytest.mark.parametrize("layout", ["ragged", "packed"])
def test_rows_of_one_position_are_sorted_on_the_disk_to_the_same_bytes(
    layout: str, dedup: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text or an id that stands in a third of all rows, where no range may have a byte: all of them are divided."""
    rows = questions(90)
    for number, row in enumerate(rows[::3]):
        row |= {"Title": "one", "Body": "text"} if dedup == "exact" else {"Id": "one", "Body": f"text {number % 7}"}
    source = write_csv(tmp_path / "rows.csv", rows)
    choices = {**CHOICES, "shards": 3, "dedup": dedup, "layout": layout}
    dataset_manifest = prepared(source, tmp_path / "whole", **choices)
    assert dataset_manifest.rejected[f"duplicate {'text' if dedup == 'exact' else 'id'}"] >= 29
    monkeypatch.setattr(shards, "LINES_BYTES", 100)
    for name, value in (("RIVALS", 4), ("CROWDED", 0)):
        monkeypatch.setattr(shards, name, value)
        prepared(source, tmp_path / name, **choices)
        assert bytes_of(tmp_path / name) == bytes_of(tmp_path / "whole")
