"""Each option of `prepare` gives the same shards, whatever the rows' order, their files and the files' format.

A new option fails `test_every_option_is_here` until it has a line in OPTIONS: the choices under which it does something.
"""

import csv
import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import encoders
import pyarrow as pa
import pyarrow.parquet
import pytest
import small_corpora

from t5prep.dataset.settings import Settings
from t5prep.tasks.corpora import text2text

LONG = " ".join(f"word{n}" for n in range(60))
ROWS: list[dict[str, Any]] = [
    {
        "id": f"r{n}",
        "text": f'Question "{n}" about <b>thing {n % 7}</b>, asked by me{n}@company.org'
        + (f" {LONG} {n}" if n % 5 == 0 else ""),
        "answer": f"answer {n % 4}",
        "kind": ["low", "high", "none"][n % 3],
        "page": f"page {n // 4}",
        "part": ["train", "test", "validation"][n % 3],
        "other": f"another text {n}",
        "tags": " ".join(["A", "B"][(n + k) % 2] for k in range(8)),
        "labels": ["good,new", "good", "new,old"][n % 3],
        "number": f"{n}.5",
        "unique": f"u{n}",
        "Id": f"u{n}",
        "Title": f"title {n}",
        "Body": f"<p>body {n % 9}</p>",
        "Y": ["HQ", "LQ_EDIT", "LQ_CLOSE"][n % 3],
        "words": " ".join(f"w{k}" for k in range(8)),
        "blank": "" if n % 4 == 0 else f"answer {n}",
    }
    for n in range(24)
]
# Texts that stand twice, nearly so, or with another case.
ROWS += [
    {**ROWS[n], "id": f"again{n}", "text": ROWS[n]["text"].upper() if n == 3 else ROWS[n]["text"]} for n in (1, 2, 3)
]
ROWS += [{**ROWS[5], "id": "nearly", "unique": "w", "Id": "w", "text": ROWS[5]["text"] + " more"}]


@dataclasses.dataclass(frozen=True)
class Case:
    """The choices under which an option does something, and what has to stay as it is in all ways of writing the rows."""

    choices: dict[str, Any] = dataclasses.field(default_factory=dict)
    target: str = "answer"  # the column; "" where `options` says all
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    kind: str = ""  # the only way of writing rows: csv, lines or document
    keeps_order: bool = False
    keeps_files: bool = False
    splits: bool = True  # drawn; otherwise they are the source's
    files: str = "rows"  # what names of files begin with


def heads(target: str, **options: Any) -> Case:
    """Targets that an encoder's head tells."""
    length = {"tags": 128, "labels": 3, "number": 1}[target]
    choices = {"target": target, "target_length": length, "tokenizer": "ENCODER"}
    return Case(choices, target="", options=options)


NEAR = {"dedup": "near"}
LEAKS = {"decontaminate": "EVALUATION"}
OPTIONS: dict[str, Case] = {
    "task": Case({"task": "so_quality"}, target=""),
    "options": Case(),
    "input_length": Case({"input_length": 16}),
    "target_length": Case({"target_length": 3}),
    "target": Case(
        {"target": "class", "target_length": 1}, target="kind", options={"label_map": "low=low,high=high,none=none"}
    ),
    "truncation": Case({"truncation": "tail", "input_length": 32}),
    "long": Case({"long": "reject", "input_length": 64}),
    "marker": Case({"marker": "none", "input_length": 32}),
    "layout": Case({"layout": "packed"}),
    "masks": Case({"masks": True}),
    "keep_newlines": Case({"keep_newlines": True}),
    "splits": Case({"splits": {"train": 0.5, "test": 0.5}}),
    "split_files": Case({"split_files": ("train=*a.*", "test=*b.*")}, keeps_files=True, splits=False),
    "split_column": Case({"split_column": "part"}, splits=False),
    "skip_files": Case({"skip_files": ("*skipped*",)}),
    "held_out": Case({"held_out": 5.0}, splits=False, files="train"),
    "group_column": Case({"group_column": "page"}),
    "dedup": Case({"dedup": "exact"}),
    "dedup_against": Case({**NEAR, "dedup_against": "EARLIER"}),
    "near_words": Case({**NEAR, "near_words": 2}),
    "near_jaccard": Case({**NEAR, "near_jaccard": 0.5}),
    "near_hashes": Case({**NEAR, "near_hashes": 32}),
    "filter": Case({"filter": ("addresses", "words:least=8")}),
    "decontaminate": Case(LEAKS),
    "decontaminate_words": Case({**LEAKS, "decontaminate_words": 5}),
    "shards": Case({"shards": 3}),
    "seed": Case({"seed": 7}),
    "limit": Case({"limit": 20}, keeps_order=True),
    "format": Case({"format": "jsonl"}, kind="lines"),
    "encoding": Case({"encoding": "utf-16"}, kind="csv"),
    "delimiter": Case({"delimiter": "|"}, kind="csv"),
    "escape": Case({"escape": "\\"}, kind="csv"),
    "columns": Case({"columns": ",".join(ROWS[0])}, kind="csv"),
    "records": Case({"records": "data[]"}, kind="document"),
}
TASK_OPTIONS: dict[str, Case] = {
    "inputs_column": Case(options={"inputs_column": "other"}),
    "targets_column": Case(target="kind"),
    "id_column": Case(options={"id_column": "unique"}),
    "inputs": Case(options={"inputs_column": "", "inputs": "ask {other}: {text}"}),
    "targets": Case(target="", options={"targets": "{kind} {answer}"}),
    "second_column": Case(
        {"target": "class", "target_length": 1, "tokenizer": "ENCODER"},
        target="kind",
        options={"second_column": "other", "label_map": "low=low,high=high,none=none"},
    ),
    "tags_column": heads("tags", tags_column="tags", inputs_column="words", label_map="A=A,B=B"),
    "labels_column": heads("labels", labels_column="labels", label_map="good=good,new=new,old=old"),
    "label_separator": heads("labels", labels_column="labels", label_separator=",", label_map="good=1,new=2,old=3"),
    "number_column": heads("number", number_column="number"),
    "label_map": Case(target="kind", options={"label_map": "low=bad,high=good"}),
    "empty_target": Case(target="blank", options={"empty_target": "nothing"}),
    "protect": Case(
        {"input_length": 32}, options={"inputs_column": "", "inputs": "{other} {text}", "protect": ["other"]}
    ),
}
# Rows without names and ids: `test_text2text` and `test_parallel_files` have them.
WITHOUT_COLUMNS = {"line_pairs"}


def test_every_option_is_here() -> None:
    """Add a line for a new option to OPTIONS (a field of Settings) or TASK_OPTIONS (one of `text2text`)."""
    assert {field.name for field in dataclasses.fields(Settings)} == OPTIONS.keys()
    assert {field.name for field in dataclasses.fields(text2text.Options)} == TASK_OPTIONS.keys() | WITHOUT_COLUMNS


Rows = list[dict[str, Any]]


def csv_file(path: Path, rows: Rows, choices: dict[str, Any]) -> Path:
    path = path.with_suffix(".csv")
    with open(path, "w", newline="", encoding=choices.get("encoding", "utf-8")) as file:
        escape = choices.get("escape")
        writer = csv.DictWriter(
            file, list(rows[0]), delimiter=choices.get("delimiter", ","), escapechar=escape, doublequote=not escape
        )
        if "columns" not in choices:
            writer.writeheader()
        writer.writerows(rows)
    return path


def lines_file(path: Path, rows: Rows, choices: dict[str, Any]) -> Path:
    path = path.with_suffix("" if choices.get("format") else ".jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def document_file(path: Path, rows: Rows, choices: dict[str, Any]) -> Path:
    path = path.with_suffix(".json")
    path.write_text(json.dumps({"data": rows}))
    return path


def parquet_file(path: Path, rows: Rows, choices: dict[str, Any]) -> Path:
    """Texts are bytes, in row groups of a few rows."""
    path = path.with_suffix(".parquet")
    table = pa.table({name: pa.array([row[name].encode() for row in rows], pa.binary()) for name in rows[0]})
    pyarrow.parquet.write_table(table, path, row_group_size=5)
    return path


WRITERS: dict[str, Callable[[Path, Rows, dict[str, Any]], Path]] = {
    "csv": csv_file,
    "lines": lines_file,
    "document": document_file,
    "parquet": parquet_file,
}


def result_of(folder: Path, files: list[Rows], kind: str, choices: dict[str, Any], *, name: str) -> tuple[Any, ...]:
    """The bytes of all shards, the rejected rows' ids and reasons, and the records of each split."""
    (folder / "source").mkdir(parents=True)
    for letter, rows in zip("ab", files, strict=False):
        WRITERS[kind](folder / "source" / f"{name}-{letter}", rows, choices)
    if "skip_files" in choices:
        WRITERS[kind](
            folder / "source" / "skipped", [{**row, "id": f"skipped {row['id']}"} for row in files[0]], choices
        )
    manifest = small_corpora.prepared(folder / "source", folder / "data", **choices)
    shards = {name: content for name, content in small_corpora.bytes_of(folder / "data").items() if "tfrecord" in name}
    # Of equal rows the one whose place comes first is kept, so their own ids may differ.
    rejected = sorted(line["reason"].partition(":")[0] for line in small_corpora.rejected(folder / "data"))
    return shards, rejected, {name: split.records for name, split in manifest.splits.items()}


@pytest.fixture(scope="module")
def placeholders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What rows are compared with, an evaluation set and a dataset of an earlier time, and an encoder's tokenizer."""
    folder = tmp_path_factory.mktemp("beside")
    evaluation = lines_file(folder / "evaluation", [{"text": ROWS[n]["text"]} for n in (0, 10)], {})
    earlier = csv_file(folder / "earlier", ROWS[6:9], {})
    base_choices = {"task": "text2text", "input_length": 128, "target_length": 8, "splits": {"train": 1.0}}
    options = {"inputs_column": "text", "targets_column": "answer"}
    small_corpora.prepared(earlier, folder / "data", tokenizer="sample:", options=options, **base_choices)
    return {
        "EVALUATION": (str(evaluation),),
        "EARLIER": (str(folder / "data"),),
        "ENCODER": str(encoders.bert(folder / "encoder")),
    }


@pytest.mark.parametrize("name", [*OPTIONS, *TASK_OPTIONS])
def test_shards_do_not_depend_on_how_rows_are_written(name: str, tmp_path: Path, placeholders: dict[str, Any]) -> None:
    case = {**OPTIONS, **TASK_OPTIONS}[name]
    choices: dict[str, Any] = {"task": "text2text", "tokenizer": "sample:", "input_length": 128, "target_length": 8}
    choices |= {"splits": {"train": 0.7, "validation": 0.3}} if case.splits else {}
    choices |= {
        key: placeholders.get(value, value) if isinstance(value, str) else value for key, value in case.choices.items()
    }
    if choices["task"] == "text2text":
        options = {"inputs_column": "text", "targets_column": case.target, "id_column": "id", **case.options}
        choices["options"] = {key: value for key, value in options.items() if value != ""}
    shuffled = random.Random(name).sample(ROWS, len(ROWS))
    orders = [ROWS, ROWS, ROWS] if case.keeps_order else [ROWS, shuffled, ROWS[::-1]]
    halves = [[row for row in rows if row["part"] == "train"] for rows in orders]
    rests = [[row for row in rows if row["part"] != "train"] for rows in orders]
    files = [
        [half, remainder] if case.keeps_files else [rows]
        for half, remainder, rows in zip(halves, rests, orders, strict=True)
    ]
    if not case.keeps_files and not case.keeps_order:
        files[1] = [shuffled[:9], shuffled[9:]]
    kinds = [case.kind] * 3 if case.kind else ["csv", "lines", "parquet"]
    first, *later_outcomes = (
        result_of(tmp_path / str(number), file_rows, kind, choices, name=case.files)
        for number, (file_rows, kind) in enumerate(zip(files, kinds, strict=True))
    )
    assert first[0]
    for outcome in later_outcomes:
        assert outcome == first


@pytest.mark.parametrize("dedup", ["exact", "near"])
def test_ids_draw_the_splits_whatever_is_a_duplicate(dedup: str, tmp_path: Path) -> None:
    """A row that stays is in the split that it had without `--dedup`, and no text is in two: texts drew them anew."""
    rows = csv_file(tmp_path / "rows", ROWS, {})
    options = {"inputs_column": "text", "targets_column": "answer", "id_column": "id"}
    base_choices: dict[str, Any] = {
        "task": "text2text",
        "tokenizer": "sample:",
        "input_length": 128,
        "target_length": 8,
    }

    def split_of_ids(name: str, **choices: Any) -> dict[str, str]:
        small_corpora.prepared(rows, tmp_path / name, options=options, **base_choices, **choices)
        records_by_split = small_corpora.records(tmp_path / name)
        return {
            record["id"][0].decode(): split
            for split, split_records in records_by_split.items()
            for record in split_records
        }

    original_splits = split_of_ids("before", splits={"train": 0.6, "validation": 0.4})
    dedup_splits = split_of_ids(dedup, splits={"train": 0.6, "validation": 0.4}, dedup=dedup)
    assert 0 < len(original_splits) - len(dedup_splits) <= 4
    assert dedup_splits.items() <= original_splits.items()
    counted_splits = split_of_ids(f"{dedup}-counted", splits={"validation": 9.0, "train": 1.0}, dedup=dedup)
    if dedup == "exact":
        assert list(counted_splits.values()).count("validation") == 9
    texts = {row["id"]: " ".join(row["text"].lower().split()) for row in ROWS}
    assert len({texts[id] for id in counted_splits}) == len(counted_splits)
