"""A task of the user's own file: kept beside the dataset and in a run, so that raw rows are predicted by it."""

import dataclasses
import hashlib
import shutil
from pathlib import Path

import copying_model
import pytest
import small_corpora
import toy_runs
from raised import raises, refused

import t5prep
from t5prep import sources
from t5prep.dataset import manifest
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.verify import verify
from t5prep.errors import DatasetError, UsageError
from t5prep.options.fields import build
from t5prep.options.models import PredictOptions, RowOptions
from t5prep.report.dataset_page import look
from t5prep.training.predict import prediction_inputs, predictions, predictor
from t5prep.training.run import run

TASK = '''"""Headlines."""
from t5prep.tasks import Columns, Example, Reject, Task

def to_example(record, options):
    if len(record["text"].split()) < 2:
        raise Reject("short article")
    return Example(id=str(record["id"]), inputs=f"headline: {record['text']}", targets=record.get("title", ""))

def to_inputs(record, options):
    return to_example(dict(record, title=""), options)

TASK = Task(to_example=to_example, to_inputs=to_inputs, columns=Columns(inputs=["text"], targets=["title"], id="id"),
            target_length=8)
'''


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "headlines.py").write_text(TASK)
    rows = [{"id": str(n), "text": f"article number {n}", "title": f"number {n}"} for n in range(6)]
    source = small_corpora.write_csv(folder / "rows.csv", rows)
    task = str(folder / "headlines.py")
    small_corpora.prepared(
        source, folder / "data", task=task, tokenizer="sample:", splits={"train": 1.0}, input_length=16
    )
    return folder / "data"


def open_new_run(dataset: Path, out: Path) -> run.Model:
    """A run on the dataset with one checkpoint, opened."""
    return run.open_model(toy_runs.create_run(out, manifest.load(dataset), data=str(dataset)))


def test_the_file_is_kept_and_predicts(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (dataset / "task.py").read_text() == TASK
    opened = open_new_run(dataset, tmp_path / "run")
    assert opened.own_tasks == {0: run.TaskFile(f"{tmp_path}/run/task-0.py", TASK.encode())}
    monkeypatch.setattr(run, "open_model", lambda name, checkpoint: opened)
    monkeypatch.setattr(predictor, "Device", copying_model.Copies)
    table = small_corpora.write_csv(
        tmp_path / "new.csv", [{"id": "a", "text": "two words"}, {"id": "b", "text": "one"}]
    )
    prediction_run = predictions.Predictions(
        "run", str(table), build(PredictOptions, {"max_length": 16, "trust_code": True})
    )
    answers = list(prediction_run)
    assert [(answer.id, answer.prediction, answer.reason) for answer in answers] == [
        ("a", "headline: two words", ""),
        ("b", None, "short article"),
    ]


def test_an_altered_file_is_named(dataset: Path, tmp_path: Path) -> None:
    """An edited file with the old checksum is refused: beside a dataset, and in a run, also of a user who trusts it."""
    changed = tmp_path / "data"
    shutil.copytree(dataset, changed)
    (changed / "task.py").write_text("raise SystemExit('ran')")
    with raises(DatasetError, "dataset.altered"):
        open_new_run(changed, tmp_path / "run")
    with raises(DatasetError, "dataset.altered", "data/task.py"):
        verify(changed)
    open_new_run(dataset, tmp_path / "other")
    (tmp_path / "other" / "task-0.py").write_text("raise SystemExit('ran')")
    opened = run.open_model(str(tmp_path / "other"))
    with raises(DatasetError, "dataset.altered", "other/task-0.py"):
        prediction_inputs.question_builder_of(opened, opened.manifests[0], RowOptions(trust_code=True))
    (tmp_path / "other" / "task-0.py").unlink()
    opened = run.open_model(str(tmp_path / "other"))
    assert (
        prediction_inputs.question_builder_of(opened, opened.manifests[0], RowOptions()).name == ""
    )  # rows are inputs unchanged


def test_code_of_a_stranger_is_not_run_unasked(dataset: Path, tmp_path: Path) -> None:
    """A run whose task was replaced, its checksum recomputed: `predict` says what it is, and executes nothing."""
    open_new_run(dataset, tmp_path / "run")
    ran = tmp_path / "ran"
    code = f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n{TASK}"
    (tmp_path / "run" / "task-0.py").write_text(code)
    dataset_manifest = manifest.load(dataset)
    facts = dataclasses.replace(dataset_manifest.task, sha256=hashlib.sha256(code.encode()).hexdigest())
    (tmp_path / "run" / "manifest-0.json").write_text(
        dataclasses.replace(dataset_manifest, task=facts).sealed().dumps()
    )
    table = small_corpora.write_csv(tmp_path / "new.csv", [{"id": "a", "text": "two words"}])
    command = ("predict", table, "--model", tmp_path / "run")
    refused("task.untrusted-code", "run/task-0.py", "headlines", "--trust-code", command=command)
    assert not ran.exists()
    opened = run.open_model(str(tmp_path / "run"))
    assert (
        prediction_inputs.question_builder_of(opened, opened.manifests[0], RowOptions(trust_code=True)).name
        == "headlines"
    )
    assert ran.exists()


def test_what_this_user_prepared_by_is_run(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`prepare` remembers the file that it was given: a run on the dataset is opened without a word."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    open_new_run(dataset, tmp_path / "run")
    opened = run.open_model(str(tmp_path / "run"))
    with raises(UsageError, "task.untrusted-code"):
        prediction_inputs.question_builder_of(opened, opened.manifests[0], RowOptions())
    (tmp_path / "headlines.py").write_text(TASK)
    source = small_corpora.write_csv(tmp_path / "rows.csv", [{"id": "1", "text": "an article", "title": "a title"}])
    t5prep.prepare(
        str(tmp_path / "headlines.py"),
        source=str(source),
        tokenizer="sample:",
        out=tmp_path / "data",
        splits={"train": 1.0},
        workers=0,
    )
    assert prediction_inputs.question_builder_of(opened, opened.manifests[0], RowOptions()).name == "headlines"


def test_a_manifest_names_no_code_to_run(dataset: Path, tmp_path: Path) -> None:
    """A dataset's manifest whose task is the path of a file: `report` executes nothing."""
    altered = tmp_path / "data"
    shutil.copytree(dataset, altered)
    ran = tmp_path / "ran"
    (altered / "task.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n{TASK}")
    dataset_manifest = manifest.load(altered)
    settings = dataclasses.replace(dataset_manifest.settings, task=str(altered / "task.py"))
    dataset_manifest = dataclasses.replace(
        dataset_manifest, settings=settings, task=dataclasses.replace(dataset_manifest.task, file="", sha256="")
    )
    (altered / manifest.NAME).write_text(dataset_manifest.sealed().dumps())
    assert look(Dataset(altered)) is None
    assert not ran.exists()


def test_it_belongs_to_the_dataset(dataset: Path, tmp_path: Path) -> None:
    """Another dataset is never prepared around it, and an installed task leaves none."""
    from t5prep.preparation import output_folder

    assert output_folder.is_of_dataset("task.py")
    source = small_corpora.write_csv(tmp_path / "rows.csv", small_corpora.questions(6))
    small_corpora.prepared(source, tmp_path / "data", tokenizer="sample:", splits={"train": 1.0}, input_length=32)
    assert not (tmp_path / "data" / "task.py").exists()


def test_of_a_folder_the_files_of_a_split_are_read_once(tmp_path: Path) -> None:
    for name in ("train.csv", "train.tsv", "test.csv", "README.md"):
        divider = "\t" if name.endswith("tsv") else ","
        (tmp_path / name).write_text(f"id{divider}input\n1{divider}words of {name}\n")
    source = sources.resolve(str(tmp_path))
    ids = {
        split: [
            question.id
            for question in prediction_inputs.Rows(
                source, prediction_inputs.unchanged_inputs(), options=RowOptions(split=split)
            )
        ]
        for split in ("", "test", "all")
    }
    assert ids == {"": ["1", "1", "1"], "test": ["1"], "all": ["1", "1", "1"]}
    opened = prediction_inputs.Rows(source, prediction_inputs.unchanged_inputs())
    assert [file.name for file in opened.source.files] == ["test.csv", "train.csv", "train.tsv"]
    assert "README.md" in opened.note
    assert "one of them: --split test" in opened.note
    with raises(UsageError, "split.unknown", "gold"):
        prediction_inputs.Rows(source, prediction_inputs.unchanged_inputs(), options=RowOptions(split="gold"))


def test_what_a_card_says_of_reading_is_obeyed(tmp_path: Path) -> None:
    card = '---\nconfigs:\n- config_name: default\n  data_files: a.csv\n  sep: "|"\n  encoding: latin-1\n---\n'
    (tmp_path / "README.md").write_text(card)
    (tmp_path / "a.csv").write_text("id|input\n1|café, too\n", encoding="latin-1")
    read = prediction_inputs.Rows(sources.resolve(str(tmp_path)), prediction_inputs.unchanged_inputs())
    assert [question.text for question in read] == ["café, too"]
