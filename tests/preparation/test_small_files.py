"""Many small files: their blocks are joined, and the dataset is the same to the byte."""

from pathlib import Path

import pytest
from raised import raises

import t5prep
from t5prep.errors import TaskError
from t5prep.preparation.block_tokenizer import BlockExamples, BlockTokenizer
from t5prep.reading import blocks, text_rows

CSV = {
    "a.csv": b"id,text,label\n1,one row,0\n",
    "b.csv": b"id,text,label\r\n2,no newline at the end,1",
    "c.csv": b'id,text,label\n3,"quoted, with\na newline",0\n4,,1\n',
    "d.csv": b'id,text,label\n5,"never closed,1\n6,after it,0\n',
    "e.csv": b"id,text,label\n\n7,after a blank row,1\n8\n",
    "f.csv": b"label,text,id\n0,other columns,9\n",
    "g.csv": b"id,text,label\r10,ends with a carriage return,0\r",
    "i.csv": b"id,text,label\n",
    "j.csv": b"id;text;label\n13;semicolons;0\n",
    "k.csv": b"id,text,label\n,,\n,,\n\n,,\n17,x,1\n",
    "l.csv": b'id,text,label\n,,\n,,\n18,y,1\n,,\n"",,\n19," ",1\n',
    "large.csv": b"id,text,label\n" + b"".join(b"%d,a row of the large file,1\n" % row for row in range(100, 4000)),
    "m.csv": b"id,text,label\n14,one row,0\n15,same text,1\n",
    "n.csv": b"id,text,label\n16,same text,1\n",
}
JSONL = {
    "a.jsonl": b'{"text": "one", "label": 1}\n',
    "b.jsonl": b'{"text": "two", "label": "1"}',
    "c.jsonl": b'[{"text": "three", "label": 2}, {"text": "four", "label": 3}]',
    "d.jsonl": b'not json\n\n{"label": 4}\n{"text": "five", "label": null}\n{"text": "six", "label": 1.5}',
}


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("files", "choices"),
    [
        (CSV, {"id_column": "id", "dedup": "exact", "workers": 1}),  # only these have ids
        *((files, choices) for files in (CSV, JSONL) for choices in ({}, {"dedup": "near"}, {"limit": 7})),
    ],
    ids=lambda value: ("csv" if value is CSV else "jsonl") if "a.csv" in value or "a.jsonl" in value else str(value),
)
def test_the_rows_of_many_small_files_are_those_of_each_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], choices: dict
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, content in files.items():
        (source / name).write_bytes(content)
    common = {"task": "text2text", "inputs_column": "text", "targets_column": "label", "tokenizer": "sample:"}
    common |= {"input_length": 32, "target_length": 8, "shards": 2, "fresh": True, **choices}
    tokenized: list[blocks.Block] = []
    call = BlockTokenizer.__call__
    monkeypatch.setattr(BlockTokenizer, "__call__", lambda self, block: tokenized.append(block) or call(self, block))
    t5prep.prepare(source=source, out=tmp_path / "joined", **common)
    joined_count, tokenized[:] = len(tokenized), []
    monkeypatch.setattr(blocks, "_may_be_joined", lambda block: False)
    t5prep.prepare(source=source, out=tmp_path / "alone", **common)
    assert _files(tmp_path / "joined") == _files(tmp_path / "alone")
    if "workers" not in choices and choices.get("dedup") != "near":
        assert joined_count < len(tokenized)


def test_a_task_that_fails_names_the_file_and_the_row_there(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(3):
        (tmp_path / "source" / f"{number}.csv").write_text(f"text,label\nfine,1\nrow {number},2\n")
    task = tmp_path / "mine.py"
    task.write_text(
        "from t5prep.tasks import Columns, Example, Task\n"
        "def to_example(record, options):\n"
        "    assert record['text'] != 'row 1'\n"
        "    return Example(None, record['text'], 'x')\n"
        "TASK = Task(to_example=to_example, columns=Columns(['text']))\n"
    )
    with raises(TaskError, "task.example-failure"):
        t5prep.prepare(str(task), source=tmp_path / "source", out=tmp_path / "out", tokenizer="sample:", fresh=True)


def test_rows_with_nothing_in_them_are_rejected_together_as_python_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,text,label\n" + ",,\n" * 500 + "1,one,1\n" + '"",,\n' * 3 + "2,,1\n" + ",two,\n")
    common = {"inputs_column": "text", "targets_column": "label", "tokenizer": "sample:", "fresh": True}
    task_rows: list[object] = []
    by_task = BlockExamples._example
    monkeypatch.setattr(BlockExamples, "_example", lambda self, *row: task_rows.append(row) or by_task(self, *row))
    t5prep.prepare("text2text", source=source, out=tmp_path / "columns", **common)
    assert len(task_rows) == 3
    monkeypatch.setattr(text_rows, "csv_table", lambda *args, **kwargs: None)
    monkeypatch.setattr(BlockExamples, "_repeat_first", None)
    monkeypatch.setattr("t5prep.preparation.block_tokenizer.columns.gathered", lambda read, *args, **kwargs: read)
    t5prep.prepare("text2text", source=source, out=tmp_path / "rows", **common)
    assert len(task_rows) == 3 + 506
    assert _files(tmp_path / "columns") == _files(tmp_path / "rows")
