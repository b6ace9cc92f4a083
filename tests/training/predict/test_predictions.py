"""Raw rows through the task of a run: one answer for each row, in its order, whatever stands in it."""

import csv
import dataclasses
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import copying_model
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import small_corpora
from click.testing import CliRunner
from raised import raises

from t5prep import cli
from t5prep.dataset.manifest import Manifest
from t5prep.errors import OutputError, SourceError, UsageError
from t5prep.io import signals
from t5prep.options.fields import build
from t5prep.options.models import PredictOptions
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.predict import answer_files, predictions, predictor
from t5prep.training.run import run


def prepare_manifest(folder: Path, task: str, rows: list[dict[str, str]], **choices: Any) -> Manifest:
    """The manifest of a dataset of some rows."""
    source = small_corpora.write_csv(folder / f"{task}.csv", rows)
    return small_corpora.prepared(
        source, folder / task, task=task, tokenizer="sample:", splits={"train": 1.0}, shards=1, **choices
    )


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    folder = tmp_path_factory.mktemp("manifests")
    return {
        "so_quality": prepare_manifest(folder, "so_quality", small_corpora.questions(6), input_length=64),
        "diacritics_ro": prepare_manifest(folder, "diacritics_ro", [{"text": "Soarele răsare."}], input_length=32, target_length=32),
        "translate_en_ro": prepare_manifest(folder, "translate_en_ro", [{"en": "The sun", "ro": "Soarele"}], input_length=64),
        "text2text": prepare_manifest(
            folder, "text2text", [{"q": "why so", "c": "because", "a": "so"}], input_length=32,
            options={"inputs": "question: {q} context: {c}", "targets_column": "a"},
        ),
    }  # fmt: skip


@pytest.fixture
def copies(manifests: dict[str, Manifest], monkeypatch: pytest.MonkeyPatch) -> None:
    """Models named after a task answer with their inputs; `none` has no manifest, `both` has two."""
    model_manifests = {name: (manifest,) for name, manifest in manifests.items()}
    model_manifests |= {"none": (), "both": (manifests["so_quality"], manifests["diacritics_ro"])}

    def opened(name: str, checkpoint: str) -> run.Model:
        model = copying_model.model(None)
        return run.Model(name, model.config, {}, model.tokenizer, model_manifests[name])

    monkeypatch.setattr(run, "open_model", opened)
    monkeypatch.setattr(predictor, "Device", copying_model.Copies)
    copying_model.Copies.batches.clear()


def start_predictions(model: str, source: Path | str, **options: Any) -> predictions.Predictions:
    """Answers of a model that are still to come."""
    return predictions.Predictions(model, str(source), build(PredictOptions, options))


def predict_all(model: str, source: Path | str, *, max_length: int = 200, **options: Any) -> list[predictor.Answer]:
    """All answers of a model."""
    return list(start_predictions(model, source, max_length=max_length, **options))


def test_a_signal_that_a_library_dropped_ends_the_answers(copies: None, tmp_path: Path) -> None:
    """Seen once in a thousand signals, before any answer; the loop went on for minutes."""
    table = small_corpora.write_csv(tmp_path / "rows.csv", small_corpora.questions(3))
    signals.note("SIGINT")
    try:
        with pytest.raises(KeyboardInterrupt):
            predict_all("so_quality", table)
    finally:
        signals.forget()
    assert len(predict_all("so_quality", table)) == 3


def test_a_table_is_answered_row_by_row(copies: None, tmp_path: Path) -> None:
    table = tmp_path / "valid.csv"
    table.write_text('Id,Title,Body\n7,Why?,"a\nb"\n\n8,,\n9,x,y,z\n,"no ""id""",body\n7,Again?,c\n', encoding="utf-8")
    answers = predict_all("so_quality", table)
    assert [answer.id for answer in answers] == ["7", "valid.csv:2", "8", "valid.csv:4", "valid.csv:5", "7"]
    assert [answer.prediction for answer in answers] == [
        "quality: Why? a b", None, None, None, 'quality: no "id" body', "quality: Again? c"
    ]  # fmt: skip
    assert [answer.reason for answer in answers if answer.prediction is None] == [
        "empty row", "empty text: neither title nor body", "wrong number of fields: 4 where there are 3 columns"
    ]  # fmt: skip


def test_what_is_asked_is_what_the_task_prepares(copies: None, tmp_path: Path) -> None:
    """The ids that reach the device are those of the records: prefix, EOS between the fields, both ends of a long one."""
    rows = small_corpora.questions(12, words=60)
    table = small_corpora.write_csv(tmp_path / "rows.csv", rows)
    small_corpora.prepared(table, tmp_path / "data", tokenizer="sample:", input_length=64, splits={"train": 1.0})
    records = small_corpora.by_id(tmp_path / "data")
    without = small_corpora.write_csv(
        tmp_path / "new.csv", [{k: row[k] for k in ("Body", "Title", "Id")} for row in rows]
    )
    tokenizer = copying_model.model(None).tokenizer
    assert tokenizer
    answers = predict_all("so_quality", without)
    assert len(answers) == 12
    for answer in answers:
        assert answer.prediction == predictor.answer(records[answer.id]["input_ids"], tokenizer)
        assert (
            answer.tokens_lost == answer.tokens - 63
        )  # 255 + 256 of 512 in the small: a marker stands for what was cut


def test_rows_inside_a_json_document(copies: None, tmp_path: Path) -> None:
    rows = [{"Id": str(i), "Title": f"why {i}", "Body": "b"} for i in range(3)]
    document = tmp_path / "rows.json"
    document.write_text(json.dumps({"version": 1, "data": [{"items": rows[:2]}, {"items": rows[2:]}]}))
    answers = predict_all("so_quality", document, records="data[].items[]")
    assert [(answer.id, answer.input) for answer in answers] == [(str(i), f"quality: why {i} b") for i in range(3)]
    table = small_corpora.write_csv(tmp_path / "rows.csv", rows)
    with raises(UsageError, "option.inapplicable", "csv", "rows.csv"):
        predict_all("so_quality", table, records="data[]")


@pytest.mark.parametrize(
    "kind", ["csv.gz", "tsv", "jsonl", "parquet", "utf-16", "cp1252", "directory", "piped", "json"]
)
def test_whatever_prepare_reads(copies: None, tmp_path: Path, kind: str) -> None:
    rows = [{"Id": str(i), "Title": f"café {i}", "Body": "b"} for i in range(5)]
    text = "Id,Title,Body\n" + "".join(f"{r['Id']},{r['Title']},{r['Body']}\n" for r in rows)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path, options = tmp_path / "rows.csv", {}
    if kind == "csv.gz":
        (path := tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text.encode()))
    elif kind == "tsv":
        (path := tmp_path / "rows.tsv").write_text(text.replace(",", "\t"), encoding="utf-8")
    elif kind == "jsonl":
        (path := tmp_path / "rows.jsonl").write_text(lines, encoding="utf-8")
    elif kind == "json":
        (path := tmp_path / "rows").write_text(lines, encoding="utf-8")
        options = {"format": "jsonl"}
    elif kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path := tmp_path / "rows.parquet")
    elif kind == "directory":
        path = tmp_path / "folder"
        path.mkdir()
        (path / "a.csv").write_text(text, encoding="utf-8")
    elif kind in ("utf-16", "cp1252"):
        path.write_text(text, encoding=kind)
        options = {"encoding": "utf-8" if kind == "utf-16" else kind}
    if kind == "piped":
        result = CliRunner().invoke(
            cli.main, ["predict", "--model", "so_quality", "--format", "csv", "--to", "jsonl"], catch_exceptions=False,
            input=gzip.compress(text.encode()),
        )  # fmt: skip
        assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [row["Id"] for row in rows]
        return
    answers = predict_all("so_quality", path, max_length=64, **options)
    assert [(answer.id, answer.input) for answer in answers] == [(str(i), f"quality: café {i} b") for i in range(5)]


def test_lines_of_text_are_the_one_column_that_a_task_needs(copies: None, tmp_path: Path) -> None:
    (lines := tmp_path / "a.txt").write_text("Tara mea.\n\nÎn tara ta.\n", encoding="utf-8")
    assert [(answer.id, answer.input, answer.reason) for answer in predict_all("diacritics_ro", lines)] == [
        ("a.txt:1", "Tara mea.", ""), ("a.txt:2", "", "empty row"), ("a.txt:3", "In tara ta.", "")
    ]  # fmt: skip
    (source := tmp_path / "test.source").write_text("The sun rises.\n", encoding="utf-8")
    (tmp_path / "test.target").write_text("Soarele răsare.\n", encoding="utf-8")
    for path in (source, tmp_path / "test.*"):
        (answer,) = predict_all("translate_en_ro", path)
        assert answer.input == "translate English to Romanian: The sun rises."
    (answer, _, _) = predict_all("diacritics_ro", lines, as_text=True)
    assert answer.input == "Tara mea."


def test_lines_that_are_no_rows_are_answered_as_they_stand(copies: None, tmp_path: Path) -> None:
    (lines := tmp_path / "a.txt").write_text("quality: so?\n", encoding="utf-8")
    prediction_run = predictions.Predictions("so_quality", str(lines))
    assert "--as-text" in prediction_run.note
    (table := tmp_path / "a.jsonl").write_text(
        '{"id": "a", "input": ["title", "body"]}\n{"input": 7}\n{"input": " "}\n'
    )
    for model in ("so_quality", "none", "text2text"):
        answer, number, space = predict_all(model, table)
        assert (answer.id, answer.input, answer.prediction) == ("a", "title body", "title body")
        assert (number.reason, space.reason) == ("no text: input is a text or a list of texts", "empty input")
    (table := tmp_path / "b.csv").write_text("Id,Headline\n1,x\n")
    with raises(SourceError, "column.missing"):
        predict_all("so_quality", table)
    (table2 := tmp_path / "c.jsonl").write_text(
        '{"Id": "1", "Title": {"a": [1]}, "Body": "x"}\n{"Id": "2", "Title": "x"}\n'
    )
    assert [answer.reason for answer in predict_all("so_quality", table2)] == [
        "not text: Title holds an object with a list in it", "missing field: Body"
    ]  # fmt: skip
    with raises(SourceError, "column.missing"):
        predict_all("none", table)


def test_a_mixture_asks_which_task(copies: None, tmp_path: Path) -> None:
    (lines := tmp_path / "a.txt").write_text("Tara mea.\n", encoding="utf-8")
    with raises(UsageError, "answer.ambiguous-task", "so_quality", "so_quality, diacritics_ro"):
        predict_all("both", lines)
    (answer,) = predict_all("both", lines, task="diacritics_ro")
    assert answer.prediction == "Tara mea."
    with raises(UsageError, "answer.unknown-task", "sst2"):
        predict_all("both", lines, task="sst2")


def test_nothing_is_cut_without_a_word(copies: None, tmp_path: Path) -> None:
    text = " ".join(f"Fraza {i} are cuvinte." for i in range(40))
    (lines := tmp_path / "a.txt").write_text(f"Scurt.\n{text}\n", encoding="utf-8")
    short, long = predict_all("diacritics_ro", lines, long="refuse")
    assert short.prediction == "Scurt."
    assert long.reason.startswith("too long: ")
    assert long.reason.endswith(" tokens, the limit is 32")
    prediction_run = start_predictions("diacritics_ro", lines, long="cut", max_length=8)
    _, cut = prediction_run
    assert cut.tokens_lost > 0
    assert cut.unfinished
    summary = " ".join(prediction_run.sentences())
    assert f"1 input longer than 32 tokens, cut: {cut.tokens_lost:,} of {cut.tokens:,} tokens are lost." in summary
    assert "1 answer reached the limit of 8 tokens" in summary
    # A task whose texts must stay whole splits by itself, and a copy of the parts is the text.
    _, split = predict_all("diacritics_ro", lines, max_length=32)
    assert split.prediction == text
    assert (split.tokens_lost, split.unfinished) == (0, False)
    assert split.parts > 5


def test_what_has_no_parts_is_not_split(copies: None, tmp_path: Path) -> None:
    table = small_corpora.write_csv(tmp_path / "a.csv", small_corpora.questions(2))
    with raises(UsageError, "option.inapplicable", "--long split"):
        predict_all("so_quality", table, long="split")
    table = small_corpora.write_csv(tmp_path / "b.csv", [{"q": "word " * 50, "c": "other " * 50}])
    (answer,) = predict_all("text2text", table, long="split")
    assert answer.reason == "too long to split: its input has 4 texts that could be taken apart"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch": 0}, ("option.out-of-range", "--batch 0", "1")),
        ({"long": "splitt"}, ("option.unknown-choice", "--long", '"splitt"', '"split"')),
        ({"limit": -1}, ("option.out-of-range", "--limit -1", "1")),
    ],
)
def test_options_from_python_are_checked(
    copies: None, tmp_path: Path, options: dict[str, Any], error: tuple[str, ...]
) -> None:
    (tmp_path / "lines.txt").write_text("a\n")
    with raises(UsageError, *error):
        start_predictions("diacritics_ro", tmp_path / "lines.txt", **options)


def test_rows_of_like_lengths_share_a_batch(copies: None, tmp_path: Path) -> None:
    texts = ["word " * (1 + i * 7 % 26) for i in range(64)]
    (lines := tmp_path / "a.txt").write_text("".join(text + "\n" for text in texts))
    answers = predict_all("diacritics_ro", lines, batch=4)
    assert [answer.prediction for answer in answers] == [text.strip() for text in texts]
    batches = copying_model.Copies.batches
    assert all(count == 4 for count, _ in batches)
    room, tokens = sum(count * length for count, length in batches), sum(answer.tokens for answer in answers)
    assert room < 1.5 * tokens  # 2.2 in the order of the rows


@pytest.mark.parametrize("to", ["jsonl", "csv", "tsv", "text", "json"])
def test_killed_and_started_again_the_file_is_the_same(
    copies: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    rows = [{"Id": str(i), "Title": f'title "{i}"', "Body": "a\nb" if i % 7 else ""} for i in range(200)]
    rows[50]["Title"] = rows[50]["Body"] = ""
    table = small_corpora.write_csv(tmp_path / "rows.csv", rows)

    def ask(out: Path, **options: Any) -> int:
        prediction_run = start_predictions("so_quality", table, batch=2, max_length=64)
        return prediction_run.write(out, to=to, watch=lambda _: None, **options)

    assert ask(tmp_path / "whole") == 0
    add = answer_files.AnswerFile.add

    def killed(file: answer_files.AnswerFile, text: str, **arguments: Any) -> None:
        add(file, text, **arguments)
        if arguments["answer_count"] == 96:
            file._file.write(b"half a li")  # what the disk has of a window that was never finished
            file._file.flush()
            raise KeyboardInterrupt

    monkeypatch.setattr(answer_files.AnswerFile, "add", killed)
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path / "out")
    monkeypatch.setattr(answer_files.AnswerFile, "add", add)
    assert not (tmp_path / "out").exists()
    prediction_run = start_predictions("so_quality", table, batch=2, max_length=9)
    with raises(OutputError, "output.different-settings", "options"):
        prediction_run.write(tmp_path / "out", to=to, watch=lambda _: None)
    assert ask(tmp_path / "out") == 96
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "rows.csv", "whole"]
    with raises(UsageError, "output.source-overwrite", str(table)):
        ask(table)


def ask_again(source: Path, out: Path, *, fresh: bool = False) -> predictions.Predictions:
    asking = start_predictions("so_quality", source, batch=2, max_length=64)
    asking.write(out, fresh=fresh)
    return asking


def test_the_same_command_finds_its_finished_file(
    copies: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = small_corpora.write_csv(tmp_path / "rows.csv", small_corpora.questions(9))
    out, unlink = tmp_path / "out.jsonl", Path.unlink

    def killed(path: Path, **_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        ask_again(table, out)
    monkeypatch.setattr(Path, "unlink", unlink)
    content, status = out.read_bytes(), out.stat()
    for _ in range(2):
        asking = ask_again(table, out)
        assert asking.counts.rows == 9
        assert (out.read_bytes(), out.stat().st_mtime_ns) == (content, status.st_mtime_ns)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "rows.csv"]
    out.write_text("edited by hand\n")
    with raises(OutputError, "output.exists", str(out)):
        ask_again(table, out)
    ask_again(table, out, fresh=True)
    assert out.read_bytes() == content
    small_corpora.write_csv(table, small_corpora.questions(8))
    with raises(OutputError, "output.exists", str(out)):
        ask_again(table, out)


def test_another_model_of_the_same_name_neither_resumes_nor_finds_the_file(
    copies: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was trained again has the path and the steps of the earlier one."""
    table = small_corpora.write_csv(tmp_path / "rows.csv", small_corpora.questions(200))
    name, layout = next(iter(weight_layouts(copying_model.TINY).items()))
    open_model = run.open_model

    def train(value: float) -> None:
        weights = {name: np.full(layout.shape, value, np.float32)}
        monkeypatch.setattr(
            run, "open_model", lambda *given, **named: dataclasses.replace(open_model(*given, **named), weights=weights)
        )

    train(1.0)
    ask_again(table, tmp_path / "finished.jsonl")
    add = answer_files.AnswerFile.add

    def killed(file: answer_files.AnswerFile, text: str, **arguments: Any) -> None:
        add(file, text, **arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(answer_files.AnswerFile, "add", killed)
    with pytest.raises(KeyboardInterrupt):
        ask_again(table, tmp_path / "out.jsonl")
    monkeypatch.setattr(answer_files.AnswerFile, "add", add)
    train(2.0)
    with raises(OutputError, "output.different-settings", "model"):
        ask_again(table, tmp_path / "out.jsonl")
    with raises(OutputError, "output.exists", "finished.jsonl"):
        ask_again(table, tmp_path / "finished.jsonl")


def test_a_table_keeps_its_columns(copies: None, tmp_path: Path) -> None:
    table = tmp_path / "in.csv"
    table.write_text('Id,Title,prediction,Body\n1,"a, b",old,"x\ny"\n2,,,\n', encoding="utf-8")
    out = tmp_path / "out.csv"
    result = CliRunner().invoke(
        cli.main, ["predict", str(table), "--model", "so_quality", "--out", str(out), "--max-length", "64"],
        catch_exceptions=False,
    )  # fmt: skip
    assert result.exit_code == 0
    with open(out, newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert first == {
        "Id": "1", "Title": "a, b", "prediction": "old", "Body": "x\ny",
        "prediction_2": "quality: a, b x y", "reason": "", "tokens_lost": "0",
    }  # fmt: skip
    assert second["reason"] == "empty text: neither title nor body"
    assert ": empty text 1." in result.stderr


def test_one_json_object(copies: None, tmp_path: Path) -> None:
    table = small_corpora.write_csv(
        tmp_path / "a.csv", [{"Id": "1", "Title": "t", "Body": ""}, {"Id": "2", "Title": "", "Body": ""}]
    )
    command = ["predict", str(table), "--model", "so_quality", "--json", "--max-length", "64"]
    result = CliRunner().invoke(cli.main, command, catch_exceptions=False)
    assert json.loads(result.stdout) == {
        "predictions": [
            {"id": "1", "input": "quality: t", "prediction": "quality: t"},
            {"id": "2", "input": "", "prediction": None, "reason": "empty text: neither title nor body"},
        ]
    }
    (empty := tmp_path / "b.txt").write_text("")
    result = CliRunner().invoke(cli.main, ["predict", str(empty), "--model", "none", "--json"], catch_exceptions=False)
    assert json.loads(result.stdout) == {"predictions": []}


def test_a_table_in_memory_gives_answers_to_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DataFrame gave answers to its column names, and a dict to its keys."""
    import pyarrow as pa

    import t5prep
    from t5prep.training.predict import predictions as module

    asked_for: list[list[str]] = []

    class RecordingModel:
        def __init__(self, model: str, source: Any, options: PredictOptions) -> None:
            asked_for.append([str(options.rows.as_text), Path(source.files[0].path).read_text()])

    monkeypatch.setattr(module, "Predictions", RecordingModel)
    table = pa.table({"Title": ["Why?", "How?"], "__index_level_0__": [5, 7]})
    rows = '{"Title": "Why?"}\n{"Title": "How?"}\n'

    class Frame:  # as pandas has it from 2.2
        columns = ("Title",)

        def __arrow_c_stream__(self, schema: object = None) -> object:
            return table.__arrow_c_stream__(schema)

        def __iter__(self) -> Iterator[str]:
            return iter(self.columns)

    class OldFrame:
        columns = ("Title",)

        def to_dict(self, orient: str) -> list[dict[str, str]]:
            assert orient == "records"
            return table.select(["Title"]).to_pylist()

        def __iter__(self) -> Iterator[str]:
            return iter(self.columns)

    for source_rows in (
        Frame(),
        OldFrame(),
        table,
        table.select(["Title"]).to_pylist(),
        iter(table.select(["Title"]).to_pylist()),
    ):
        t5prep.predict("no-such-model", source_rows)
        assert asked_for.pop() == ["False", rows]
    t5prep.predict("no-such-model", (text for text in ("a", "b")))
    assert asked_for.pop() == ["True", '{"input": "a"}\n{"input": "b"}\n']
    for wrong, sentence in (
        ({"Title": "a"}, ("row.wrong-type",)),
        (7, ("row.wrong-type", "int")),
        (b"ab", ("row.wrong-type", "int")),
    ):
        with raises(UsageError, *sentence):
            t5prep.predict("no-such-model", wrong)
