"""A template gives what the task's own function gives of odd rows: with every option, in every format, whoever reads them."""

import csv
import io
import itertools
import json
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import random_seeds
from fuzzed_texts import fuzzed

from t5prep.dataset.settings import Settings
from t5prep.preparation import evaluation_sets
from t5prep.preparation.block_tokenizer import BlockExamples, BlockTokenizer
from t5prep.reading import blocks, columns, formats
from t5prep.reading.blocks import Block
from t5prep.sources import RawFile
from t5prep.tasks import example_table, registry
from t5prep.tokens import loading
from t5prep.tokens.tokenizer import Tokenizer
from tests.encoders import bert, roberta

WORDS = loading.load("sample:")
LEAKS = evaluation_sets.collect({"set": ["a b c d e f g", "the quick brown fox"]}, words=3)
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
    "text2text, protected": {
        "inputs": "q: {Title} c: {Body}",
        "targets_column": "Y",
        "protect": ("Title",),
        "id_column": "Id",
    },
    "sst2": {},
    "span_corruption": {"text_column": "Body", "id_column": "Id"},
}


# Rows of a file: each is made in both ways, and so are the blocks that they are cut into.
SEVERAL = 300 if random_seeds.ARE_GIVEN else 60


def rows(count: int) -> list[dict[str, str]]:
    chooser = random.Random(count)
    texts = [text.replace("\0", "") for text in fuzzed(chooser, 2 * count)]
    file_rows = []
    for i in range(count):
        title, body = texts[2 * i], texts[2 * i + 1] * chooser.choice((1, 1, 1, 30))
        label = chooser.choice(("HQ", "HQ", "LQ_EDIT", "LQ_CLOSE", "hq", ""))
        row = {"Id": str(i), "Title": title, "Body": body, "Y": label, "sentence": body, "label": str(i % 3)}
        if chooser.random() < 0.3:
            row[chooser.choice(list(row))] = chooser.choice(ODD)
        file_rows.append(row)
    return file_rows


def written(folder: Path, kind: str, file_rows: list[dict[str, str]]) -> RawFile:
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(file_rows), path, row_group_size=len(file_rows) // 3)
    elif kind == "jsonl":
        odd = [
            {**file_rows[0], "Body": None},
            {**file_rows[1], "Y": 3},
            {"Id": "x"},
            {**file_rows[2], "Title": ["a", "b"]},
        ]
        lines = [json.dumps(row, ensure_ascii=False) for row in file_rows]
        lines[5:5] = ["", "no json", *map(json.dumps, odd)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, file_rows[0], quoting=csv.QUOTE_ALL if kind == "csv" else csv.QUOTE_MINIMAL)
        writer.writeheader()
        writer.writerows(file_rows)
        path = folder / "rows.csv"
        path.write_text(text.getvalue(), encoding="utf-8", newline="")
    return RawFile(path.name, str(path), path.stat().st_size)


def table_of(settings: Settings, block: Block, words: Tokenizer = WORDS, *, one_by_one: bool) -> pa.Table:
    """The table of a block; where it is made one by one, Python reads the rows too."""
    task = registry.get(settings.task).choose(settings.options)
    tokenize = BlockTokenizer(settings, task, words, leaks=LEAKS if settings.decontaminate else None)
    assert tokenize._examples._template is not None
    if not one_by_one:
        return tokenize(block).table
    tokenize._examples._template = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_by_arrow", lambda block, names: None)
        return tokenize(block).table


CLASSES = {
    "so_quality": {},
    "text2text": {"inputs_column": "Body", "targets_column": "Y", "label_map": "HQ=good,LQ_EDIT=bad"},
    "sst2": {},
}


@pytest.fixture(scope="module")
def encoders_words(tmp_path_factory) -> dict[str, Tokenizer]:
    """The tokenizers that classes are prepared with: a T5's, BERT's and RoBERTa's."""
    folder = tmp_path_factory.mktemp("tokenizers")
    encoder_tokenizers = {
        kind: loading.load(str(make(folder / kind))) for kind, make in (("bert", bert), ("roberta", roberta))
    }
    return {"t5": WORDS, **encoder_tokenizers}


KINDS, MODELS, LENGTHS = ("csv", "jsonl", "parquet"), ("t5", "bert", "roberta"), (64, 5, 4)


# Each pair of two of these four meets once.
@pytest.mark.parametrize(
    ("kind", "task", "model", "length"),
    [
        (KINDS[i], task, MODELS[(i + j) % 3], LENGTHS[(i + 2 * j) % 3])
        for i, (j, task) in itertools.product(range(3), enumerate(CLASSES))
    ],
)
def test_columns_of_classes_are_what_rows_are(
    tmp_path: Path, encoders_words: dict[str, Tokenizer], task: str, kind: str, model: str, length: int
) -> None:
    file_rows = rows(SEVERAL)
    if task == "sst2":
        file_rows = [
            {"sentence": f" {row['Body']} "[i % 2 :], "label": str(i % 3 - 1)} for i, row in enumerate(file_rows)
        ]
    policy = ("head_tail", "head", "tail")[length % 3]
    settings = Settings(
        task, CLASSES[task], input_length=length, target_length=1, truncation=policy, target="class", splits=None
    )
    compare(settings, written(tmp_path, kind, file_rows), words=encoders_words[model])


def compare(settings: Settings, file: RawFile, *, words: Tokenizer = WORDS) -> None:
    """The tables of a file's blocks, in both ways."""
    cut = list(blocks.scan(file, formats.detect(file.name), block_bytes=20_000))
    for block in [*cut, cut[0].head(7)]:
        table, expected = (table_of(settings, block, words, one_by_one=slow) for slow in (False, True))
        assert table.schema == expected.schema
        assert table.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    ("kind", "task", "policy"),
    [
        (kind, task, ("head_tail", "head")[(i + j) % 2])
        for (i, kind), (j, task) in itertools.product(enumerate(("csv", "minimal", *KINDS[1:])), enumerate(TASKS))
    ],
)
def test_columns_are_what_rows_are(tmp_path: Path, task: str, kind: str, policy: str) -> None:
    settings = Settings(
        task.partition(",")[0],
        TASKS[task],
        input_length=64,
        target_length=14 if task == "span_corruption" else 4,
        splits=None,
        truncation=policy,
    )
    compare(settings, written(tmp_path, kind, rows(SEVERAL)))


OPTIONS: dict[str, dict] = {
    "filters": {"filter": ("words:least=2", "addresses", "tokens:least=4,most=60")},
    "exact": {"dedup": "exact"},
    "near": {"dedup": "near", "near_words": 2},
    "groups": {"group_column": "Y"},
    "newlines": {"keep_newlines": True},
    "leaks": {"decontaminate": ("set",), "decontaminate_words": 3},
    "all": {
        "filter": ("words:least=2",),
        "dedup": "near",
        "group_column": "Y",
        "keep_newlines": True,
        "truncation": "tail",
        "decontaminate": ("set",),
        "decontaminate_words": 3,
    },
}


@pytest.mark.parametrize(
    ("task", "option", "kind"),
    [
        (task, option, KINDS[(i + j) % 3])
        for (i, task), (j, option) in itertools.product(
            enumerate(name for name in TASKS if name not in ("sst2", "span_corruption")), enumerate(OPTIONS)
        )
    ],
)
def test_every_option_goes_the_same_way(tmp_path: Path, task: str, option: str, kind: str) -> None:
    settings = Settings(
        task.partition(",")[0], TASKS[task], input_length=24, target_length=4, splits=None, **OPTIONS[option]
    )
    file_rows = rows(SEVERAL)
    for number, row in enumerate(file_rows):
        row["Title"] = row["Title"].replace(" ", "\n") if number % 3 else f"me@example.org {row['Title']}"
    compare(settings, written(tmp_path, kind, file_rows))


def test_numbers_are_the_texts_that_python_makes_of_them(tmp_path: Path) -> None:
    """In JSON and in Parquet, as ids, labels, groups and inside of a template."""
    file_rows = [
        {"Id": i, "Title": f"title {i}", "Body": i / 8 if i % 5 else None, "Y": i % 3, "grp": -i // 10}
        for i in range(200)
    ]
    options = {"inputs": "q: {Title} n: {Body}", "targets": "{Y}!", "id_column": "Id"}
    labels = {"inputs_column": "Title", "targets_column": "Y", "label_map": "0=no,1=yes", "id_column": "Id"}
    for task_options in (options, labels):
        settings = Settings("text2text", task_options, 24, 4, splits=None, group_column="grp")
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in file_rows))
        compare(settings, RawFile(path.name, str(path), path.stat().st_size))
        compare(settings, written(tmp_path, "parquet", file_rows))


def test_all_white_space_of_python_is_known() -> None:
    assert "".join(filter(str.isspace, map(chr, range(sys.maxunicode + 1)))) == example_table.SPACES


def test_most_rows_are_made_by_the_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would compare rows with rows."""
    one_by_one: list[int] = []
    plain = BlockExamples._by_task
    monkeypatch.setattr(
        BlockExamples,
        "_by_task",
        lambda self, source_rows, block: one_by_one.append(len(source_rows)) or plain(self, source_rows, block),
    )
    settings = Settings("text2text", TASKS["text2text"], input_length=64, target_length=4, splits=None)
    file_rows = [{"Id": str(i), "Title": f"title {i}", "Body": f"body {i}"} for i in range(500)]
    file_rows[7]["Title"] = " "
    for row in file_rows[20:60]:  # in any script, with white space around it
        row["Body"] = "\n漢字 \u3000"
    for kind in ("csv", "jsonl", "parquet"):
        file = written(tmp_path, kind, [*file_rows, *file_rows[-3:]] if kind == "jsonl" else file_rows)
        one_by_one.clear()
        block = next(iter(blocks.scan(file, formats.detect(file.name))))
        assert table_of(settings, block, one_by_one=False).num_rows > 70
        assert sum(one_by_one) < 12
