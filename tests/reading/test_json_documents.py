"""One JSON document as rows: arrays cut as they come, paths into objects, and what is said of what is no such document."""

import io
import json
import random
from pathlib import Path

import pytest
from raised import raises
from small_corpora import by_id, prepared, rejected

from t5prep.errors import SourceError, UsageError
from t5prep.preparation import task_settings
from t5prep.reading import blocks, formats, json_documents
from t5prep.sources import sample
from t5prep.sources.local import resolve
from t5prep.sources.raw import parse
from t5prep.tasks import registry
from t5prep.tokens.tokenizer import Tokenizer

SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": f"Page {page}",
            "paragraphs": [
                {
                    "context": f"Context {page}.{part} says that the answer is {part}.",
                    "qas": [
                        {
                            "id": f"{page}-{part}-{n}",
                            "question": f"What is the answer {n}?",
                            "is_impossible": n == 2,
                            "answers": []
                            if n == 2
                            else [{"text": str(part), "answer_start": 30}, {"text": "it", "answer_start": 1}],
                        }
                        for n in range(3)
                    ],
                }
                for part in range(4)
            ],
        }
        for page in range(6)
    ],
}
PATH = "data[].paragraphs[].qas[]"
OPTIONS = {
    "inputs": "question: {question} context: {context}", "targets_column": "answers[].text", "id_column": "id",
    "empty_target": "no answer", "protect": ("question",),
}  # fmt: skip


def _rows(path: Path, *, block_bytes: int = 1 << 20, records: str = "", encoding: str = "utf-8") -> list:
    (file,) = resolve(parse(str(path)), include=()).files
    form = formats.Format("jsonl", encoding, records=records)
    return [row for block in blocks.scan(file, form, block_bytes=block_bytes) for row in blocks.read(block, columns=())]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_an_array_is_read_as_json_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: int | None, block_bytes: int, chunk: int
) -> None:
    monkeypatch.setattr(json_documents, "_CHUNK", chunk)
    draw = random.Random(3)
    values = ["a\nb", 'quote " and ]', "ț \u2028", 1, -2.5e3, None, True, {"x": [1, {"y": "]"}]}, [], "\\"]
    records = [{f"c{k}": draw.choice(values) for k in range(draw.randrange(5))} for _ in range(60)]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(records, indent=indent, ensure_ascii=draw.random() < 0.5), encoding="utf-8")
    rows = _rows(path, block_bytes=block_bytes)
    assert [row.number for row in rows] == list(range(1, 61))
    assert [dict(row.record or {}) for row in rows] == records
    assert all(row.reason.startswith("no columns") for row, record in zip(rows, records, strict=True) if not record)


def test_squads_own_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "train-v2.0.json"
    path.write_text(json.dumps(SQUAD))
    choices = {
        "task": "text2text",
        "tokenizer": "sample:",
        "options": OPTIONS,
        "records": PATH,
        "group_column": "title",
    }
    manifest = prepared(path, tmp_path / "out", splits={"train": 0.5, "validation": 0.5}, **choices)
    assert manifest.rows["train-v2.0.json"].examples == 72
    words = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")
    record = by_id(tmp_path / "out")["3-2-0"]
    assert "question: What is the answer 0? context: Context 3.2 says" in words.decode(
        [int(token) for token in record["input_ids"] if token]
    )
    empty = by_id(tmp_path / "out")["3-2-2"]
    assert words.decode([int(token) for token in empty["labels"] if token > 0]).startswith("no answer")
    evaluation_record = next(
        r for r in by_id(tmp_path / "out").values() if r.get("references") and len(r["references"]) == 2
    )
    assert evaluation_record["references"][1] == b"it"


def test_a_document_without_a_path_is_told_its_path(tmp_path: Path) -> None:
    for name, text in (("line.json", json.dumps(SQUAD)), ("pretty.json", json.dumps(SQUAD, indent=2))):
        (tmp_path / name).write_text(text)
        with raises(SourceError, "file.missing-records-path"):
            prepared(tmp_path / name, tmp_path / "out", task="text2text", tokenizer="sample:", options=OPTIONS)


def test_fields_of_one_name_keep_both(tmp_path: Path) -> None:
    document = {"id": "d", "data": [{"id": "p", "tags": ["a"], "n": 1, "rows": [{"id": "r", "x": "y"}, "no object"]}]}
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(document))
    first_row, second_row = _rows(path, records="data[].rows[]")
    assert first_row.record == {"id": "r", "x": "y", "data.id": "p", "tags": ["a"], "n": 1}
    assert second_row.reason == "not a JSON object: str"
    path.write_text(json.dumps([document, document]))
    assert [row.record["x"] for row in _rows(path, records="[].data[].rows[]") if row.record] == ["y", "y"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"a": 1},\n{"a": 2}', ("file.invalid-json", "2")),
        ('[{"a": 1},\n{"a": ', ("file.invalid-json", "2")),
        ('[{"a": 1} {"a": 2}]', ("file.invalid-json", "1")),
        ('[{"a": 1}\n] more', ("file.invalid-json",)),
    ],
)
def test_a_broken_array_is_a_sentence(tmp_path: Path, text: str, says: tuple[str, ...]) -> None:
    (tmp_path / "rows.json").write_text(text)
    with raises(SourceError, *says):
        _rows(tmp_path / "rows.json")


@pytest.mark.parametrize("records", ["data", "data[].x", "a[]..b[]", "data[].[]", "", "a[b]"])
def test_what_is_no_path_is_a_sentence(records: str) -> None:
    if not records:
        return
    source = resolve(parse(str(sample.tokenizer_path())), include=())
    task = registry.get("text2text").choose(OPTIONS)
    with raises(UsageError, "option.malformed"):
        task_settings.complete(task, task_settings.requested(task, {"records": records}), source=source)


def test_a_path_to_nothing_and_lines_of_arrays(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('{"data": [1]}')
    with raises(SourceError, "file.missing-records", "rows[]"):
        _rows(path, records="rows[]")
    path.write_text('[{"a": 1}]\n[{"a": 2}]\n')  # lines, of arrays
    assert [row.reason for row in _rows(path)] == ["not a JSON object: list"] * 2


def test_undecodable_bytes_reject_their_row_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SNIFFED_BYTES", 20)  # what is wrong at the very beginning refuses the file
    path = tmp_path / "rows.json"
    path.write_bytes(b'[{"text": "good"},\r\n{"text": "b\xffd"},\n{"text": "last"}]\n')
    options = {"inputs_column": "text", "targets_column": "text"}
    manifest = prepared(path, tmp_path / "out", task="text2text", tokenizer="sample:", options=options)
    assert manifest.rows["rows.json"].examples == 2
    assert [line["reason"] for line in rejected(tmp_path / "out")] == ["not utf-8: byte 0xff in text"]


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(json.dumps([{"text": "é"}, {"text": "ü"}], ensure_ascii=False).encode(encoding))
    assert [row.record for row in _rows(path, encoding=encoding)] == [{"text": "é"}, {"text": "ü"}]


def test_reading_an_array_holds_one_row_at_a_time() -> None:
    class Endless(io.RawIOBase):
        """An array that never ends."""

        sent = 0

        def read(self, size: int = -1) -> bytes:
            self.sent += 1
            return b'[{"a": 1}' if self.sent == 1 else b', {"a": 1}' * 100

    rows = json_documents.lines(Endless(), "", encoding="utf-8", name="endless.json")
    assert [next(rows) for _ in range(5000)][-1] == b'{"a": 1}\n'
