"""What a task or a filter of the user's makes of rows goes into a table, or is a reason: no row ends the run."""

from pathlib import Path

import pytest
from raised import raises
from small_corpora import prepared, rejected

from t5prep.dataset.manifest import Manifest
from t5prep.errors import SourceError, TaskError
from t5prep.sources import sample

HALF = """
import json
from t5prep.tasks import Columns, Example, Reject, Task

def to_example(record, options):
    text = json.loads(record["text"])
    {refuse}
    return Example(id={id}, inputs={inputs}, targets={targets})

TASK = Task(to_example=to_example, columns=Columns(inputs=("text",)))
"""


@pytest.mark.parametrize("dedup", ["none", "near"])
@pytest.mark.parametrize("part", ["id", "inputs", "targets", "refuse"])
def test_half_of_a_surrogate_pair_that_a_task_makes_is_a_reason(tmp_path: Path, part: str, dedup: str) -> None:
    """JSON inside a column may spell one, which no check of the column sees."""
    texts = {"id": "None", "inputs": "'fine'", "targets": "'fine'", "refuse": ""}
    texts[part] = "if len(text) < 9: raise Reject('short: ' + text)" if part == "refuse" else "text"
    (tmp_path / "mine.py").write_text(HALF.format(**texts))
    (tmp_path / "rows.jsonl").write_text('{"text": "\\"half \\\\ud83d\\""}\n{"text": "\\"whole text\\""}\n')
    manifest = prepared(
        tmp_path / "rows.jsonl",
        tmp_path / "out",
        tokenizer=sample.tokenizer_path(),
        task=str(tmp_path / "mine.py"),
        dedup=dedup,
    )
    assert sum(split.records for split in manifest.splits.values()) == 1
    (row,) = rejected(tmp_path / "out")
    reason = r"short: half \ud83d" if part == "refuse" else "no text: half of a surrogate pair (U+D83D)"
    assert (row["row"], row["reason"]) == (1, reason)


def filtered(folder: Path, rule: str) -> Manifest:
    """Prepare `rows.csv` of a folder with a filter of its `own.py`."""
    return prepared(
        folder / "rows.csv",
        folder / "out",
        tokenizer=sample.tokenizer_path(),
        task="text2text",
        options={"inputs_column": "text", "targets_column": "label"},
        filter=(f"{folder / 'own.py'}:{rule}",),
    )


def test_half_of_a_surrogate_pair_that_a_filter_makes_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def half(text):\n    return text[:4] + '\\ud800' if 'odd' in text else text\n")
    (tmp_path / "rows.csv").write_text("text,label\nodd row,yes\nplain row,yes\n")
    manifest = filtered(tmp_path, "half")
    assert manifest.rejected == {"no text": 1}


def test_reasons_of_several_lines_are_one_line_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from t5prep.tasks import Reject\ndef no(text):\n    raise Reject('not\\nthis')\n")
    (tmp_path / "rows.csv").write_text("text,label\na,yes\n")
    with raises(SourceError, "row.example-missing"):
        filtered(tmp_path, "no")


@pytest.mark.parametrize(
    ("task", "options", "long", "rejects"),
    [
        ("diacritics_ro", {}, "reject", True),
        ("diacritics_ro", {}, "cut", False),
        ("text2text", {"inputs_column": "text", "targets_column": "text"}, "auto", False),
        ("text2text", {"inputs_column": "text", "targets_column": "text"}, "reject", True),
    ],
)
def test_what_is_too_long_is_cut_or_rejected(
    tmp_path: Path, task: str, options: dict, long: str, rejects: bool
) -> None:
    (tmp_path / "rows.csv").write_text("text,n\n" + f"{'soarele rasare in tara ' * 9},1\n" + "pe scurt,2\n")
    manifest = prepared(
        tmp_path / "rows.csv",
        tmp_path / "out",
        tokenizer=sample.tokenizer_path(),
        task=task,
        options=options,
        long=long,
        input_length=32,
        target_length=32,
    )
    assert manifest.rejected == ({"too long": 1} if rejects else {})
    assert sum(split.records for split in manifest.splits.values()) == (1 if rejects else 2)


@pytest.mark.parametrize("read", ['record["extra"]', 'record.get("extra", "")'])
def test_a_column_that_the_task_does_not_name_is_never_silently_empty(tmp_path: Path, read: str) -> None:
    """Only the columns that a task names are read, of JSON lines too."""
    (tmp_path / "rows.jsonl").write_text('{"text": "why", "extra": "because"}\n' * 3)
    path = tmp_path / "mine.py"
    texts = {"refuse": "pass", "id": "None", "inputs": "text", "targets": read}
    path.write_text(HALF.replace('json.loads(record["text"])', 'record["text"]').format(**texts))
    with raises(TaskError, "task.example-failure"):
        prepared(tmp_path / "rows.jsonl", tmp_path / "out", tokenizer=sample.tokenizer_path(), task=str(path))
