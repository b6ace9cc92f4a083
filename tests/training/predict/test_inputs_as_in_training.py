"""`predict` and `embed` give the model the token ids that `prepare` made of the same rows: filters, delimiter, encoding."""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import copying_model
import numpy as np
import pytest
import small_corpora
import toy_runs
from raised import raises

import t5prep
from t5prep.dataset import manifest
from t5prep.dataset.verify import verify
from t5prep.errors import SourceError, T5prepError, UsageError
from t5prep.options.fields import build
from t5prep.options.models import EmbedOptions
from t5prep.training.predict import predictor
from t5prep.training.publish import export
from t5prep.training.run import run

FILTER_CODE = """
import re
from t5prep.tasks import Reject

def without_tags(text):
    if "advertisement" in text:
        raise Reject("advertisement")
    return re.sub("<[^>]*>", " ", text)
"""
ROWS = [
    {"id": "tags", "q": "<p>one <b>bold</b> word</p>", "a": "one"},
    {"id": "mail", "q": "write to me@company.org or 8.8.8.8", "a": "two"},
    {"id": "plain", "q": "naïve café words", "a": "three"},
    {"id": "advert", "q": "an advertisement", "a": "four"},
]


class Recorder(copying_model.Copies):
    """Remember the ids of every input that reaches the device."""

    recorded_ids: list[list[int]] = []  # noqa: RUF012 - of the class: the test reads it

    def __call__(self, inputs: Any, length: int) -> tuple[np.ndarray, np.ndarray]:
        self.recorded_ids += [ids.tolist() for ids in inputs]
        return super().__call__(inputs, length)


def prepared(folder: Path, rows: Path, **choices: Any) -> Path:
    options = {"inputs": "ask: {q}", "targets_column": "a", "id_column": "id"}
    small_corpora.prepared(
        rows,
        folder / "data",
        task="text2text",
        options=options,
        tokenizer="sample:",
        input_length=32,
        target_length=8,
        splits={"train": 1.0},
        **choices,
    )
    return folder / "data"


def create_run(data: Path, out: Path) -> str:
    """A run on the dataset with one checkpoint."""
    toy_runs.create_run(out, manifest.load(data), data=str(data))
    return str(out)


def prepared_ids(data: Path) -> dict[str, list[int]]:
    return {id: [token for token in record["input_ids"] if token] for id, record in small_corpora.by_id(data).items()}


def predicted_ids(model: str, rows: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, Any]:
    """The ids that a prediction gives to the device, or the reason of a row without an answer, by the row's id."""
    monkeypatch.setattr(predictor, "Device", Recorder)
    Recorder.recorded_ids = []
    answers = list(t5prep.predict(model, rows, max_length=32, **options))
    inputs = {tuple(ids): ids for ids in Recorder.recorded_ids}
    words = copying_model.WORDS
    by_text = {words.decode([token for token in ids if token != words.eos_id]): ids for ids in inputs.values()}
    return {answer.id: answer.reason or by_text[answer.prediction] for answer in answers}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of a filter of the user's and one of ours, and a run on it."""
    tmp_path = tmp_path_factory.mktemp("once")
    (tmp_path / "mine.py").write_text(FILTER_CODE)
    rows = small_corpora.write_csv(tmp_path / "rows.csv", ROWS)
    filter_spec = f"{tmp_path / 'mine.py'}:without_tags"
    data = prepared(tmp_path, rows, filter=(filter_spec, "addresses", "words:least=2"))
    assert (data / "filter-0.py").read_text() == FILTER_CODE
    create_run(data, tmp_path / "run")
    (tmp_path / "mine.py").unlink()  # the run has its own copy
    return tmp_path


@pytest.fixture
def filtered(once: Path, tmp_path: Path) -> tuple[Path, str]:
    """The dataset and the run, to change."""
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "data", str(tmp_path / "run")


@pytest.mark.parametrize("shape", ["table", "dicts", "texts", "as_text"])
def test_filters_change_what_is_asked(
    filtered: tuple[Path, str], shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = filtered
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"ask: {row['q']}\n" for row in ROWS))
    rows: Any = {
        "table": tmp_path / "rows.csv",
        "dicts": [{"id": row["id"], "q": row["q"]} for row in ROWS],
        "texts": [f"ask: {row['q']}" for row in ROWS],
        "as_text": lines,
    }[shape]
    actual = predicted_ids(model, rows, monkeypatch, trust_code=True, as_text=shape == "as_text")
    expected: Mapping[str, Any] = {**prepared_ids(data), "advert": "mine.without_tags advertisement"}
    assert list(actual.values()) == [expected[row["id"]] for row in ROWS]


def test_embeddings_are_of_filtered_texts(filtered: tuple[Path, str], tmp_path: Path) -> None:
    """The vectors of raw texts are those of the texts as the filters leave them."""
    from t5prep.training.embed.embedding import Embedding

    data, model = filtered
    embedding = Embedding(
        model,
        str(tmp_path / "rows.csv"),
        build(EmbedOptions, {"pooling": "mean", "dtype": "float32", "trust_code": True}),
    )
    texts = {row.id: row for row in embedding._ask(list(embedding.rows))}
    assert texts["advert"].reason == "mine.without_tags advertisement"
    assert {id: row.ids.tolist() for id, row in texts.items() if row.ids is not None} == prepared_ids(data)


def test_a_filter_that_is_missing_altered_or_a_strangers_is_refused(
    filtered: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = filtered
    monkeypatch.setattr(predictor, "Device", Recorder)
    with raises(UsageError, "task.untrusted-code", "run/filter-0-0.py"):
        t5prep.predict(model, ["ask: a <b>word</b>"])
    copy = Path(model) / "filter-0-0.py"
    copy.write_text(FILTER_CODE + "\n")
    with raises(T5prepError, "dataset.altered", "filter-0-0.py"):
        t5prep.predict(model, ["ask: a <b>word</b>"], trust_code=True)
    copy.unlink()
    with raises(UsageError, "filter.missing-copy", "filter-0-0.py", "mine.py"):
        t5prep.predict(model, ["ask: a <b>word</b>"], trust_code=True)
    (data / "filter-0.py").write_text(FILTER_CODE + "\n")
    with raises(T5prepError, "dataset.altered", "filter-0.py"):
        verify(data)


def test_an_export_carries_filters(filtered: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = filtered
    export.export_hf(model, out=str(tmp_path / "exported"))
    actual = predicted_ids(str(tmp_path / "exported"), tmp_path / "rows.csv", monkeypatch, trust_code=True)
    assert actual == {**prepared_ids(data), "advert": "mine.without_tags advertisement"}
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "ask: {q}" in card
    assert "mine.py:without_tags" in card


def test_datasets_are_numbered_as_numbers(tmp_path: Path) -> None:
    """The manifest 10 comes after the manifest 2, so that each dataset has its own files."""
    data = prepared(tmp_path, small_corpora.write_csv(tmp_path / "rows.csv", ROWS))
    run_folder = Path(create_run(data, tmp_path / "run"))
    text = (run_folder / "manifest-0.json").read_text()
    for number in range(1, 12):
        (run_folder / f"manifest-{number}.json").write_text(text)
    first_manifest = manifest.loads(text, location="")
    tenth_manifest = dataclasses.replace(first_manifest, warnings=["the tenth"]).sealed()
    (run_folder / "manifest-10.json").write_text(tenth_manifest.dumps())
    assert [run_manifest.warnings for run_manifest in run.manifests_of_run(str(run_folder))].index(["the tenth"]) == 10


def test_the_columns_and_the_escape_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table without names is read with those of the data; one that begins with names, by its own."""
    lines = [f'{row["id"]},"{row["q"]} \\"quoted\\"",{row["a"]}\n' for row in ROWS]
    (tmp_path / "rows.csv").write_text("".join(lines))
    data = prepared(tmp_path, tmp_path / "rows.csv", escape="\\", columns="id,q,a")
    model = create_run(data, tmp_path / "run")
    expected = prepared_ids(data)
    assert len(expected) == len(ROWS)
    assert predicted_ids(model, tmp_path / "rows.csv", monkeypatch) == expected
    (tmp_path / "named.csv").write_text("".join(["id,q,a\n", *lines]))
    assert predicted_ids(model, tmp_path / "named.csv", monkeypatch) == expected
    (tmp_path / "other.csv").write_text("".join(f"{line.rpartition(',')[0]}\n" for line in lines))
    assert predicted_ids(model, tmp_path / "other.csv", monkeypatch, columns="id,q") == expected


def test_the_delimiter_and_the_encoding_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text(
        "".join(f"{row['id']}|{row['q']}|{row['a']}\n" for row in [{"id": "id", "q": "q", "a": "a"}, *ROWS]), "cp1252"
    )
    data = prepared(tmp_path, tmp_path / "rows.csv", delimiter="|", encoding="cp1252")
    model = create_run(data, tmp_path / "run")
    expected = prepared_ids(data)
    assert predicted_ids(model, tmp_path / "rows.csv", monkeypatch) == expected
    # Rows in memory are no bytes.
    assert predicted_ids(model, ROWS, monkeypatch) == expected
    comma = small_corpora.write_csv(tmp_path / "comma.csv", ROWS)
    with raises(SourceError, "file.ambiguous-encoding", "cp1252"):
        t5prep.predict(model, comma)
    # Its first line has no "|", so its delimiter is detected.
    assert predicted_ids(model, comma, monkeypatch, encoding="utf-8") == expected
    assert predicted_ids(model, comma, monkeypatch, encoding="utf-8", delimiter=",") == expected
    shutil.copy(tmp_path / "rows.csv", tmp_path / "other.csv")
    with raises(SourceError, "file.wrong-encoding", "other.csv", "utf-8"):
        t5prep.predict(model, tmp_path / "other.csv", encoding="utf-8")
