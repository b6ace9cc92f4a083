"""What a task or a filter of the user's makes of rows goes into a table, or is a reason: no row ends the run."""

from pathlib import Path

import pytest
from preparing import prepared, rejected

from t5prep.dataset.manifest import Manifest
from t5prep.errors import SourceError
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
    made = prepared(
        tmp_path / "rows.jsonl",
        tmp_path / "out",
        tokenizer=sample.tokenizer_path(),
        task=str(tmp_path / "mine.py"),
        dedup=dedup,
    )
    assert sum(split.records for split in made.splits.values()) == 1
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
    made = filtered(tmp_path, "half")
    assert made.rejected == {"no text": 1}


def test_reasons_of_several_lines_are_one_line_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from t5prep.tasks import Reject\ndef no(text):\n    raise Reject('not\\nthis')\n")
    (tmp_path / "rows.csv").write_text("text,label\na,yes\n")
    with pytest.raises(SourceError, match=r"all rejected \(own\.no not this 1\)"):
        filtered(tmp_path, "no")
