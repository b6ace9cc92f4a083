"""The five published systems end in answers to a table of raw rows: each command of docs/published-systems.md, as it is."""

import csv
from pathlib import Path

import pytest
import readme
import small_corpora
import toy_runs
from click.testing import CliRunner

from t5prep import cli

(CODE,) = (
    code for code in readme.codes("sh") if code.text.startswith("# run by tests/training/test_published_systems.py")
)
COMMANDS = {command.arguments[1]: command.arguments for command in readme.commands(CODE)}
# Table → task, a row as the corpus has it, the columns of the target, and a row that makes no input.
SYSTEMS: dict[str, tuple[str, dict[str, str], set[str], dict[str, str]]] = {
    "questions.csv": (
        "so_quality", {"Id": "7", "Title": "Why, though", "Body": "<p>It\nfails</p>", "Y": "HQ"}, {"Y"},
        {"Id": "8", "Title": " ", "Body": ""},
    ),
    "causes.csv": (
        "causal_qa",
        {"id": "q1", "question_processed": "why so", "context_processed": "it rained", "answer": "rain",
         "answer_processed": "rain"},
        {"answer", "answer_processed"}, {"id": "q2", "question_processed": "", "context_processed": ""},
    ),
    "texts.csv": ("diacritics_ro", {"text": "Soarele răsare în țară."}, set(), {"text": " "}),
    "gaps.csv": ("span_corruption", {"text": "A line of text that says more. " * 40}, set(), {"input": " "}),
    "sentences.csv": ("sst2", {"sentence": "a fine film", "label": "1"}, {"label"}, {"sentence": ""}),
    "english.csv": ("translate_en_ro", {"en": "A house.", "ro": "O casă."}, {"ro"}, {"en": ""}),
}  # fmt: skip


LATE = {"texts.csv", "sentences.csv", "english.csv"}  # three others show the same in a quick run


def test_every_command_has_a_system() -> None:
    assert list(COMMANDS) == list(SYSTEMS)


@pytest.mark.parametrize(
    "table", [pytest.param(table, marks=[pytest.mark.slow] * (table in LATE)) for table in SYSTEMS]
)
def test_a_table_of_raw_rows_is_answered(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, row, target, empty = SYSTEMS[table]
    if task == "span_corruption":
        (source := tmp_path / "corpus.txt").write_text(f"{row['text']}\n" * 3)
    else:
        source = small_corpora.write_csv(tmp_path / "corpus.csv", [row] * 3)
    manifest = small_corpora.prepared(
        source, tmp_path / "data", task=task, tokenizer="sample:", splits={"train": 1.0}, shards=1, input_length=64,
        target_length=64 if task == "diacritics_ro" else 20,
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    arguments = COMMANDS[table]
    toy_runs.create_run(tmp_path / arguments[arguments.index("--model") + 1], manifest)
    input_row = {"input": "A line <extra_id_0> that says"} if task == "span_corruption" else row
    input_row = {name: value for name, value in input_row.items() if name not in target}
    small_corpora.write_csv(tmp_path / table, [input_row, empty, input_row])
    result = CliRunner().invoke(cli.main, [*arguments, "--max-length", "4", "--batch", "2"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    with (tmp_path / arguments[-1]).open(newline="", encoding="utf-8") as file:
        answers = list(csv.DictReader(file))
    assert len(answers) == 3
    for number, answer in enumerate(answers):
        assert {name: answer[name] for name in input_row} == (empty if number == 1 else input_row)
        assert bool(answer["reason"]) == (number == 1)
    assert answers[0]["prediction"] == answers[2]["prediction"]
