"""Columns give the table that rows give one by one: with every task that has a template, in every format."""

import csv
import io
import json
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from fuzzed_texts import fuzzed

from t5prep.dataset.settings import Settings
from t5prep.prepare import column_tokenizer
from t5prep.prepare.block_tokenizer import BlockTokenizer
from t5prep.reading import blocks, formats
from t5prep.sources import RawFile
from t5prep.tasks import registry
from t5prep.tokens import loading
from t5prep.tokens.tokenizer import Tokenizer
from tests.encoders import bert, roberta

WORDS = loading.load("sample:")
ODD = [
    "",
    " ",
    "\u3000",
    "\u200b",
    "\x85",
    "é",
    "漢",
    "<b>x</b>",
    "< no tag",
    "\x1c",
    "a\u00a0",
    "</s>",
    "<extra_id_0>",
    "\t a\u3000",
    "\u2028\u205f \n",
    "\u1680“a”\u2003",
    "\n漢字 ",
    "x " * 900,
]
TASKS = {
    "so_quality": {},
    "text2text": {"inputs_column": "Body", "targets_column": "Title"},
    "text2text, a template": {"inputs": "q: {Title} c: {Body}", "targets": "{Y}!", "id_column": "Id"},
    "sst2": {},
    "span_corruption": {"text_column": "Body", "id_column": "Id"},
}


def rows(count: int) -> list[dict[str, str]]:
    chooser = random.Random(count)
    texts = [text.replace("\0", "") for text in fuzzed(chooser, 2 * count)]
    made = []
    for i in range(count):
        title, body = texts[2 * i], texts[2 * i + 1] * chooser.choice((1, 1, 1, 30))
        label = chooser.choice(("HQ", "HQ", "LQ_EDIT", "LQ_CLOSE", "hq", ""))
        one = {"Id": str(i), "Title": title, "Body": body, "Y": label, "sentence": body, "label": str(i % 3)}
        if chooser.random() < 0.3:
            one[chooser.choice(list(one))] = chooser.choice(ODD)
        made.append(one)
    return made


def written(folder: Path, kind: str, made: list[dict[str, str]]) -> RawFile:
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(made), path, row_group_size=150)
    elif kind == "jsonl":
        odd = [{**made[0], "Body": None}, {**made[1], "Y": 3}, {"Id": "x"}, {**made[2], "Title": ["a", "b"]}]
        lines = [json.dumps(one, ensure_ascii=False) for one in made]
        lines[5:5] = ["", "no json", *map(json.dumps, odd)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, made[0], quoting=csv.QUOTE_ALL if kind == "csv" else csv.QUOTE_MINIMAL)
        writer.writeheader()
        writer.writerows(made)
        path = folder / "rows.csv"
        path.write_text(text.getvalue(), encoding="utf-8", newline="")
    return RawFile(path.name, str(path), path.stat().st_size)


def tokenizer_of(settings: Settings, words: Tokenizer = WORDS) -> BlockTokenizer:
    """Return what tokenizes blocks with these settings."""
    return BlockTokenizer(settings, registry.get(settings.task).choose(settings.options), words)


CLASSES = {
    "so_quality": {},
    "text2text": {"inputs_column": "Body", "targets_column": "Y", "label_map": "HQ=good,LQ_EDIT=bad"},
    "sst2": {},
}


@pytest.fixture(scope="module")
def encoders_words(tmp_path_factory) -> dict[str, Tokenizer]:
    """The tokenizers that classes are prepared with: a T5's, BERT's and RoBERTa's."""
    folder = tmp_path_factory.mktemp("tokenizers")
    made = {kind: loading.load(str(make(folder / kind))) for kind, make in (("bert", bert), ("roberta", roberta))}
    return {"t5": WORDS, **made}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("task", CLASSES)
@pytest.mark.parametrize("model", ["t5", "bert", "roberta"])
@pytest.mark.parametrize("length", [64, 5, 4])
def test_columns_of_classes_are_what_rows_are(
    tmp_path: Path, encoders_words: dict[str, Tokenizer], task: str, kind: str, model: str, length: int
) -> None:
    made = rows(300)
    if task == "sst2":
        made = [{"sentence": f" {one['Body']} "[i % 2 :], "label": str(i % 3 - 1)} for i, one in enumerate(made)]
    policy = ("head_tail", "head", "tail")[length % 3]
    settings = Settings(
        task, CLASSES[task], input_length=length, target_length=1, truncation=policy, target="class", splits=None
    )
    found, expected = tables(settings, written(tmp_path, kind, made), words=encoders_words[model])
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.to_pylist() == theirs.to_pylist()


def tables(settings: Settings, file: RawFile, *, words: Tokenizer = WORDS) -> tuple[list[pa.Table], list[pa.Table]]:
    """The tables of a file's blocks, by columns and by rows."""
    cut = list(blocks.scan(file, formats.detect(file.name), block_bytes=20_000))
    cut.append(cut[0].head(7))
    by_columns, by_rows = tokenizer_of(settings, words), tokenizer_of(settings, words)
    assert by_columns._by_columns is not None
    by_rows._by_columns = None
    return [by_columns(block).table for block in cut], [by_rows(block).table for block in cut]


@pytest.mark.parametrize("kind", ["csv", "minimal", "jsonl", "parquet"])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("policy", ["head_tail", "head"])
def test_columns_are_what_rows_are(tmp_path: Path, task: str, kind: str, policy: str) -> None:
    settings = Settings(
        task.partition(",")[0],
        TASKS[task],
        input_length=64,
        target_length=14 if task == "span_corruption" else 4,
        splits=None,
        truncation=policy,
    )
    found, expected = tables(settings, written(tmp_path, kind, rows(600)))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.schema == theirs.schema
        assert ours.to_pylist() == theirs.to_pylist()


def test_all_white_space_of_python_is_known() -> None:
    assert [one for one in map(chr, range(sys.maxunicode + 1)) if one.isspace()] == column_tokenizer._SPACES


def test_most_rows_are_made_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would compare rows with rows."""
    by_rows: list[int] = []
    plain = BlockTokenizer._by_rows
    monkeypatch.setattr(
        BlockTokenizer, "_by_rows", lambda self, block, rows: by_rows.append(len(rows)) or plain(self, block, rows)
    )
    settings = Settings("text2text", TASKS["text2text"], input_length=64, target_length=4, splits=None)
    made = [{"Id": str(i), "Title": f"title {i}", "Body": f"body {i}"} for i in range(500)]
    made[7]["Title"] = " "
    for one in made[20:60]:  # in any script, with white space around it
        one["Body"] = "\n漢字 \u3000"
    tokenize = tokenizer_of(settings)
    for kind in ("csv", "jsonl", "parquet"):
        file = written(tmp_path, kind, [*made, *made[-3:]] if kind == "jsonl" else made)
        by_rows.clear()
        (table,) = [tokenize(block).table for block in blocks.scan(file, formats.detect(file.name))][:1]
        assert table.num_rows > 140
        assert sum(by_rows) < 12


@pytest.mark.parametrize(
    "choices", [{"dedup": "exact"}, {"dedup": "near"}, {"keep_newlines": True}, {"filter": ("gopher",)}]
)
def test_what_only_examples_give_is_made_of_examples(choices: dict) -> None:
    settings = Settings("text2text", TASKS["text2text"], input_length=64, target_length=4, splits=None, **choices)
    assert tokenizer_of(settings)._by_columns is None
