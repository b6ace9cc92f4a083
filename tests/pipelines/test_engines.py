"""One corpus, many engines: every shard and the manifest have the same bytes, whatever prepared them."""

import dataclasses
import re
from pathlib import Path

import pytest
from raised import raises
from small_corpora import bytes_of, prepared, questions, write_csv

from pipelines import engines
from t5prep import sources
from t5prep.errors import SourceError, UsageError
from t5prep.io.installation import install_command
from t5prep.sources import sample
from t5prep.tasks.corpora import so_quality

SAMPLE = sample.tokenizer_path()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with long texts, duplicates, bad labels, in two files."""
    folder = tmp_path_factory.mktemp("corpus")
    rows = questions(120) + [dict(row, Id=f"long{i}") for i, row in enumerate(questions(4, words=900))]
    rows += [dict(rows[3], Body="another"), dict(rows[4]), dict(rows[5], Id="x", Y="unheard of")]
    write_csv(folder / "a.csv", rows[:60])
    write_csv(folder / "b.csv", rows[60:])
    return folder


@pytest.mark.extra("prism")
def test_workers_of_an_engine_get_a_task_of_the_users_own_file(corpus: Path, tmp_path: Path) -> None:
    """A user's file reaches other processes, and the bytes are those of a local run; Flink has one in test_quiet_workers."""
    task = tmp_path / "mine.py"
    task.write_bytes(Path(so_quality.__file__).read_bytes().replace(b"quality: ", b"judge: "))
    choices = {"task": str(task), "tokenizer": SAMPLE, "shards": 2}
    manifest = prepared(corpus, tmp_path / "near", **choices)
    assert (manifest.settings.task, manifest.task.file) == ("mine", "mine.py")
    assert manifest.rejected == {"duplicate id": 2, "unknown label": 1}
    prepared(corpus, tmp_path / "far", runner="prism", workers=2, **choices)
    assert bytes_of(tmp_path / "far") == bytes_of(tmp_path / "near")


# Each number of workers prepares one of the two.
REAL = {
    "questions": (
        "stackoverflow/questions_cp1252.csv",
        {"encoding": "cp1252", "options": {"labels": "HQ=high,LQ=low"}},
        ({"workers": 1}, {"workers": 4, "memory": 4 << 30}),
    ),
    "sst2": (
        "sst2/*.tsv",
        {"task": "sst2", "limit": 1_000},
        ({"workers": 2, "memory": 4 << 30}, {"workers": 2, "runner": "prism"}),
    ),
}


@pytest.mark.extra("prism", "seeds")
@pytest.mark.slow
@pytest.mark.parametrize("name", list(REAL))
def test_real_corpora_have_the_same_bytes_from_workers_and_prism(shared_data: Path, tmp_path: Path, name: str) -> None:
    """Of SST-2 a thousand rows of each split, in files that are splits themselves; of Stack Overflow all, without a limit."""
    source_pattern, choices, ways = REAL[name]
    choices = {"tokenizer": shared_data / "t5_tokenizer/spiece.model", "shards": 4, **choices}
    source = shared_data / source_pattern
    manifest = prepared(source, tmp_path / "alone", **choices)
    assert sum(split.records for split in manifest.splits.values()) >= 1000
    for number, way in enumerate(ways):
        prepared(source, tmp_path / str(number), **way, **choices)
        assert bytes_of(tmp_path / str(number)) == bytes_of(tmp_path / "alone"), way


@pytest.mark.extra("prism")
def test_what_a_worker_of_an_engine_raises_is_said_in_one_sentence(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", questions(3))
    (tmp_path / "b.csv").write_text("Id,Title\n1,2\n")
    with raises(SourceError, "column.missing", "b.csv"):
        prepared(f"{tmp_path}/*.csv", tmp_path / "out", tokenizer=SAMPLE, runner="prism")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_beam_options_are_not_for_the_local_runner(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv", questions(3))
    with raises(UsageError, "option.inapplicable", "--parallelism=2"):
        prepared(source, tmp_path / "out", tokenizer=SAMPLE, arguments=["--parallelism=2"])


def test_what_is_missing_comes_with_the_command_that_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T5PREP_ENGINES", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert [missing.name for missing in engines.missing()][:3] == [
        "Prism",
        "Java",
        "Flink's job server",
    ]
    assert all(re.match(r"(sudo|bash|pip) \S", missing.command) for missing in engines.missing()[:3])
    assert [missing.command for missing in engines.missing()[3:]] in ([], [install_command("dataflow")])
    with raises(UsageError, "install.missing-program", "sudo apt-get install"):
        engines.require("flink")


def test_who_has_no_clone_is_not_sent_to_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed from a package, there is no `.ci`: Beam fetches its own job server then."""
    monkeypatch.setenv("T5PREP_ENGINES", str(tmp_path))
    monkeypatch.setattr(engines, "_SCRIPT", tmp_path / ".ci" / "engines")
    of_engines = [missing for missing in engines.missing() if missing.command != install_command("dataflow")]
    assert not [missing for missing in of_engines if ".ci" in missing.command]
    assert "Flink's job server" not in [missing.name for missing in engines.missing()]


def test_a_limit_is_so_many_rows_of_all_or_of_each_split(tmp_path: Path) -> None:
    rows = questions(30)
    for folder, names in (("parts", ("a.csv", "b.csv")), ("splits", ("train.csv", "valid.csv"))):
        (tmp_path / folder).mkdir()
        write_csv(tmp_path / folder / names[0], rows[:10])
        write_csv(tmp_path / folder / names[1], rows[10:])
        manifest = prepared(tmp_path / folder, tmp_path / f"{folder}.out", tokenizer=SAMPLE, limit=12)
        counts = {name: split.records for name, split in manifest.splits.items()}
        assert sum(counts.values()) == 12 if folder == "parts" else counts == {"train": 10, "validation": 12}


def test_a_source_is_no_larger_in_the_graph_for_its_files(tmp_path: Path) -> None:
    """1,000 files and a tokenizer of 800 kB lie beside the shards; the pipeline only says where."""
    import apache_beam as beam

    from pipelines import prepare, steps
    from pipelines.stages import Finish
    from pipelines.steps import PrepareBlock
    from t5prep.dataset.settings import Settings
    from t5prep.tasks import registry
    from t5prep.tokens.tokenizer import Tokenizer

    sizes = []
    for count in (1, 1000):
        files = tuple(
            sources.RawFile(f"part-{i:05d}.csv", f"gs://bucket/folder/part-{i:05d}.csv#1", 1) for i in range(count)
        )
        source = sources.Resolved("gs://bucket/folder", "", files, "", "")
        loaded = Tokenizer(SAMPLE.read_bytes(), name="sample:")
        settings = Settings(task="so_quality", options={}, input_length=512, target_length=8, splits={"train": 1.0})
        folder, task = str(tmp_path / f"{count:05d}"), registry.get("so_quality")
        job = steps.stage(settings, task=task, source=source, tokenizer=loaded, folder=folder)
        finish = Finish(job, dataclasses.replace(source, files=()), "gs://bucket/out")
        graph = prepare.wired(beam.Pipeline(), work=PrepareBlock(job), finish=finish)
        sizes.append(graph.to_runner_api().ByteSize())
    assert abs(sizes[0] - sizes[1]) < 1000
    assert max(sizes) < 200_000
