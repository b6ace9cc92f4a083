"""A task of the user's own file: kept beside the dataset and in a run, so that raw rows are predicted by it."""

from pathlib import Path

import answering
import preparing
import pytest
import training

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.dataset import manifest
from t5prep.train.model.generation import Generation
from t5prep.train.predict import predictions, predictor
from t5prep.train.run import run

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
    source = preparing.write_csv(folder / "rows.csv", rows)
    task = str(folder / "headlines.py")
    preparing.prepared(source, folder / "data", task=task, tokenizer="sample:", splits={"train": 1.0}, input_length=16)
    return folder / "data"


def begun(dataset: Path, out: Path) -> run.Model:
    """A run on the dataset with one checkpoint, opened."""
    return run.open_model(training.begun(out, manifest.load(dataset), data=str(dataset)))


def test_the_file_is_kept_and_predicts(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (dataset / "task.py").read_text() == TASK
    opened = begun(dataset, tmp_path / "run")
    assert opened.own_tasks == (TASK.encode(),)
    monkeypatch.setattr(run, "open_model", lambda name, which: opened)
    monkeypatch.setattr(predictor, "Device", answering.Copies)
    table = preparing.write_csv(tmp_path / "new.csv", [{"id": "a", "text": "two words"}, {"id": "b", "text": "one"}])
    asking = predictions.Predictions("run", str(table), generation=Generation(max_length=16))
    answers = list(asking)
    assert [(one.id, one.prediction, one.reason) for one in answers] == [
        ("a", "headline: two words", ""),
        ("b", None, "short article"),
    ]


def test_another_file_in_its_place_is_not_run(dataset: Path, tmp_path: Path) -> None:
    changed = tmp_path / "data"
    changed.mkdir()
    for path in dataset.iterdir():
        (changed / path.name).write_bytes(path.read_bytes())
    (changed / "task.py").write_text("raise SystemExit('ran')")
    assert begun(changed, tmp_path / "run").own_tasks == ()
    opened = begun(dataset, tmp_path / "other")
    (tmp_path / "other" / "task-0.py").write_text("raise SystemExit('ran')")
    from t5prep.train.predict import rows

    asking = rows.by_task(opened.manifests[0], run.open_model(str(tmp_path / "other")).own_tasks)
    assert asking.name == ""  # rows are inputs unchanged


def test_it_belongs_to_the_dataset(dataset: Path, tmp_path: Path) -> None:
    """Another dataset is never prepared around it, and an installed task leaves none."""
    from t5prep.prepare import output_folder

    assert output_folder.is_of_dataset("task.py")
    source = preparing.write_csv(tmp_path / "rows.csv", preparing.questions(6))
    preparing.prepared(source, tmp_path / "data", tokenizer="sample:", splits={"train": 1.0}, input_length=32)
    assert not (tmp_path / "data" / "task.py").exists()
