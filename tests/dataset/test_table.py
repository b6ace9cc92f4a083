"""A dataset as a table of texts: each row equals what the records say when they are read one by one."""

import collections
import csv
import dataclasses
import hashlib
import itertools
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sentencepiece
from click.testing import CliRunner
from raised import raises, refused
from small_corpora import by_id, prepared, questions, records, rejected, write_csv

import t5prep
from t5prep.cli import main
from t5prep.dataset import manifest, record_table, shard_files, verify
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.errors import DatasetError, OutputError, UsageError
from t5prep.preparation.source_rows import SourceRows
from t5prep.sources import sample
from t5prep.tokens import loading, newlines

LAYOUTS = {
    "padded": {},
    "masks": {"masks": True},
    "ragged": {"layout": "ragged"},
    "packed": {"layout": "packed", "target_length": 16},
    "newlines": {"keep_newlines": True},
    "cut": {"input_length": 32},
    "head": {"input_length": 32, "truncation": "head"},
    "class": {"target": "class"},
}


def expected(data: Path, places: dict[str, tuple[str, int]]) -> list[dict[str, Any]]:
    """The rows that a dataset should have, by reading each record by itself.

    `places` are the file and the row of each id. What was cut is seen in the same rows, prepared again with more room.
    """
    dataset_manifest, rows, full_lengths = manifest.load(data), [], {}
    if len(dataset_manifest.source.files) == 1:
        choices = {
            "tokenizer": "sample:",
            "task": dataset_manifest.settings.task,
            "input_length": 4096,
            "target_length": 512,
        }
        choices["keep_newlines"] = dataset_manifest.settings.keep_newlines
        prepared(dataset_manifest.source.uri, data.parent / "whole", overwrite=True, layout="ragged", **choices)
        full_lengths = {
            id: [len(record["input_ids"]), len(record["labels"])] for id, record in by_id(data.parent / "whole").items()
        }
    tokenizer = loading.load("sample:")

    def text(ids: list[int]) -> str:
        ids = ids[:-1] if ids[-1:] == [tokenizer.eos_id] else ids
        return newlines.decode(ids, tokenizer=tokenizer, keep_newlines=dataset_manifest.settings.keep_newlines)

    for split, split_records in sorted(records(data).items()):
        split_records = iter(split_records)
        for shard in dataset_manifest.splits[split].shards:
            for record_index in range(shard.records):
                record = next(split_records)
                inputs = [entry for entry in record["input_ids"] if entry != tokenizer.pad_id]
                labels = [entry for entry in record["labels"] if entry != IGNORED_LABEL]
                ids = [entry.decode() for entry in record["id"]]
                marks = inputs.count(tokenizer.sentinel(1)) if dataset_manifest.settings.marked else 0
                uncut_lengths = [sum(full_lengths[id][side] for id in ids if id in full_lengths) for side in (0, 1)]
                cut = uncut_lengths[0] - (len(inputs) - marks) if full_lengths else 0
                of = list(zip(*map(places.get, ids), strict=True))
                rows.append(
                    {
                        "id": ids if dataset_manifest.settings.layout == "packed" else ids[0],
                        "split": split,
                        "shard": shard.name,
                        "place": record_index,
                        "input": text(inputs),
                        "target": dataset_manifest.target.classes[labels[0]]
                        if dataset_manifest.target.classes
                        else text(labels),
                        "input_tokens": len(inputs),
                        "target_tokens": len(labels),
                        "cut": cut > 0,
                        "input_cut": cut,
                        "target_cut": uncut_lengths[1] - len(labels)
                        if full_lengths and not dataset_manifest.target.classes
                        else 0,
                        "file": list(of[0]) if dataset_manifest.settings.layout == "packed" else of[0][0],
                        "row": list(of[1]) if dataset_manifest.settings.layout == "packed" else of[1][0],
                    }
                )
                if "references" in dataset_manifest.features:
                    rows[-1]["references"] = [reference.decode() for reference in record.get("references", [])]
    return rows


PLACES = {str(1000 + number): ("a.csv", number + 1) for number in range(70)}


@pytest.mark.parametrize("choices", LAYOUTS.values(), ids=LAYOUTS)
def test_every_row_is_its_record(choices: dict[str, Any], tmp_path: Path) -> None:
    choices = {"input_length": 64, **choices}
    prepared(write_csv(tmp_path / "a.csv", questions(70)), tmp_path / "d", tokenizer="sample:", shards=3, **choices)
    rows = t5prep.table(tmp_path / "d").read_all().to_pylist()
    assert rows == expected(tmp_path / "d", PLACES)
    if choices["input_length"] == 32:
        assert {row["cut"] for row in rows} != {False}


def test_each_record_says_where_it_comes_from_and_what_was_cut(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    rows = [{"id": f"q{n}", "text": "why " * (n % 23 + 1), "answer": "so " * (n % 13 + 1)} for n in range(300)]
    for name, file_rows in (("a.jsonl", rows[:100]), ("b.jsonl", rows[100:])):
        (tmp_path / "source" / name).write_text("".join(json.dumps(row) + "\n" for row in file_rows))
    options = {"inputs_column": "text", "targets_column": "answer", "id_column": "id"}
    lengths = {"input_length": 12, "target_length": 8}
    dataset_manifest = prepared(
        tmp_path / "source", tmp_path / "d", task="text2text", tokenizer="sample:", options=options, **lengths
    )
    assert dataset_manifest.origins
    assert dataset_manifest.origins.widths == [1, 1, 1, 1]
    rows_by_id = {row["id"]: row for row in t5prep.table(tmp_path / "d").read_all().to_pylist()}
    encode = loading.load("sample:").encode
    for number, row in enumerate(rows):
        source_row, full_length = rows_by_id[row["id"]], len(encode(row["text"])) + 1
        assert (source_row["file"], source_row["row"]) == (
            ("a.jsonl", number + 1) if number < 100 else ("b.jsonl", number - 99)
        )
        assert source_row["cut"] == (full_length > 12)
        assert source_row["input_cut"] == (
            full_length - 11 if full_length > 12 else 0
        )  # one of the twelve is the marker
        assert source_row["target_cut"] == max(0, len(encode(row["answer"])) + 1 - 8)
    assert sum(row["input_cut"] for row in rows_by_id.values()) == dataset_manifest.ledger["inputs"]["tokens_lost"] > 0
    assert (
        sum(row["target_cut"] for row in rows_by_id.values()) == dataset_manifest.ledger["targets"]["tokens_lost"] > 0
    )
    # A dataset of before has no such file.
    (tmp_path / "d" / shard_files.ORIGINS).unlink()
    with raises(DatasetError, "dataset.unreadable", "shards.origins"):
        t5prep.table(tmp_path / "d").read_all()
    (tmp_path / "d" / manifest.NAME).write_text(dataclasses.replace(dataset_manifest, origins=None).sealed().dumps())
    for row in t5prep.table(tmp_path / "d").read_all().to_pylist():
        assert row == rows_by_id[row["id"]] | dict.fromkeys(("input_cut", "target_cut", "file", "row"))


def test_a_record_of_joined_texts_comes_from_the_row_of_its_first_token(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    prepared(tmp_path / "source", tmp_path / "d", tokenizer="sample:", **sources_of(tmp_path / "source", "spans", 300))
    rows = t5prep.table(tmp_path / "d").read_all().to_pylist()
    assert [f"{row['file']}:{row['row']}" for row in rows] == [row["id"].rpartition("@")[0] for row in rows]
    assert {(row["cut"], row["input_cut"], row["target_cut"]) for row in rows} == {(False, 0, 0)}
    assert len({row["row"] for row in rows}) > 50


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        *(
            ({"widths": widths}, ("dataset.altered", "shards.origins"))
            for widths in ([1, 4, 1], [1, 4, 1, 9], [4, 4, 4, 4], [0, 0, 0, 0])
        ),
        ({"records": {"train": 1}}, ("dataset.altered", "shards.origins")),
        ({"records": {"train": -1, "validation": 41}}, ("dataset.invalid-manifest", "origins.records")),
    ],
)
def test_origins_that_cannot_be_are_refused(spoil: dict[str, Any], error: tuple[str, ...], tmp_path: Path) -> None:
    dataset_manifest = prepared(
        write_csv(tmp_path / "a.csv", questions(40)), tmp_path / "d", tokenizer="sample:", input_length=64
    )
    assert dataset_manifest.origins
    dataset_manifest = dataclasses.replace(
        dataset_manifest, origins=dataclasses.replace(dataset_manifest.origins, **spoil)
    ).sealed()
    (tmp_path / "d" / manifest.NAME).write_text(dataset_manifest.dumps())
    for read in (verify.verify, lambda data: t5prep.table(data).read_all()):
        with raises(DatasetError, *error):
            read(tmp_path / "d")


def test_too_few_origins_are_found(tmp_path: Path) -> None:
    dataset_manifest = prepared(
        write_csv(tmp_path / "a.csv", questions(40)), tmp_path / "d", tokenizer="sample:", input_length=64
    )
    assert dataset_manifest.origins
    content = (tmp_path / "d" / "shards.origins").read_bytes()[
        : len(dataset_manifest.origins.widths) and sum(dataset_manifest.origins.widths) * 3
    ]
    (tmp_path / "d" / "shards.origins").write_bytes(content)
    record_counts = dict.fromkeys(dataset_manifest.origins.records, 0) | {"train": 3}
    changed = {"records": record_counts, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    dataset_manifest = dataclasses.replace(
        dataset_manifest, origins=dataclasses.replace(dataset_manifest.origins, **changed)
    ).sealed()
    (tmp_path / "d" / manifest.NAME).write_text(dataset_manifest.dumps())
    with raises(DatasetError, "dataset.altered", "3", "38", "shards.origins", "train"):
        verify.verify(tmp_path / "d")
    with raises(DatasetError, "dataset.damaged"):
        t5prep.table(tmp_path / "d").read_all()


@pytest.mark.parametrize("task", ["span_corruption", "ul2"])
def test_joined_texts_that_share_an_id_come_from_their_own_rows(task: str, tmp_path: Path) -> None:
    """Documents are placed by their texts, so that it makes no difference to their order what they are called."""
    generator = random.Random(1)
    texts = [" ".join(f"word{generator.randrange(999)}" for _ in range(generator.randrange(3, 90))) for _ in range(60)]
    origins = []
    for names in ("apart", "one"):
        lines = ({"id": "k" if names == "one" else f"k{number}", "text": text} for number, text in enumerate(texts))
        (tmp_path / f"{names}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        choices = {"task": task, "dedup": "exact", "options": {"id_column": "id"}, "input_length": 64}
        choices["splits"] = {"train": 1.0}  # ids draw the split
        prepared(tmp_path / f"{names}.jsonl", tmp_path / names, tokenizer="sample:", **choices)
        rows = t5prep.table(tmp_path / names).read_all().to_pylist()
        origins.append([(row["row"], row["split"]) for row in rows])
        if names == "apart":
            assert [f"k{row['row'] - 1}" for row in rows] == [row["id"].rpartition("@")[0] for row in rows]
    if task == "span_corruption":  # ul2 draws a denoiser, and with it how many tokens a row has, from the name
        assert origins[0] == origins[1]
    assert len({row for row, _ in origins[1]}) > 15


def test_a_group_of_rows_names_only_the_files_of_its_rows(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(30):
        write_csv(tmp_path / "many" / f"{number:02}.csv", [dict(questions(31)[number], Id=f"q{number}")])
    prepared(tmp_path / "many", tmp_path / "d", tokenizer="sample:", splits={"train": 29, "validation": 1})
    file_counts = [
        (len(batch["file"].dictionary), len(set(batch["file"].to_pylist()))) for batch in t5prep.table(tmp_path / "d")
    ]
    assert sorted(file_counts) == [(1, 1), (29, 29)]


def test_near_duplicates_are_counted(tmp_path: Path) -> None:
    rows = questions(60)
    for row_index in range(3, 60, 4):
        rows[row_index] |= {
            "Title": rows[row_index - row_index % 12]["Title"],
            "Body": rows[row_index - row_index % 12]["Body"],
        }
    prepared(write_csv(tmp_path / "a.csv", rows), tmp_path / "d", tokenizer="sample:", input_length=64, dedup="near")
    rows = t5prep.table(tmp_path / "d").read_all().to_pylist()
    duplicate_counts = {row["id"]: row["near_duplicates"] for row in rows}
    retained_ids = [line["reason"].partition(", id ")[2].partition(" ")[0] for line in rejected(tmp_path / "d")]
    assert {id: number for id, number in duplicate_counts.items() if number} == dict(collections.Counter(retained_ids))
    assert max(duplicate_counts.values()) > 1
    assert {row["id"]: row["cluster"] for row in rows} == {
        id: id if number else None for id, number in duplicate_counts.items()
    }
    rejected_rows = t5prep.table(tmp_path / "d", rejected=True).read_all().to_pylist()
    assert collections.Counter(row["cluster"] for row in rejected_rows) == collections.Counter(retained_ids)


# ─────────────────────────────────────────────────────────────────────────── Read by TensorFlow, SentencePiece and other tools ──

SENTENCES = sentencepiece.SentencePieceProcessor(model_file=str(sample.tokenizer_path()))


def text_of(ids: list[int]) -> str:
    """The text of ids by SentencePiece, special tokens as T5 writes them, without the last EOS."""
    last, eos = SENTENCES.get_piece_size() + 99, SENTENCES.eos_id()
    ids = ids[:-1] if ids[-1:] == [eos] else ids
    parts = itertools.groupby(
        ids, key=lambda token_id: "text" if token_id != eos and token_id <= last - 100 else token_id
    )
    return " ".join(
        SENTENCES.decode(list(group_ids))
        if kind == "text"
        else " ".join("</s>" if kind == eos else f"<extra_id_{last - kind}>" for _ in group_ids)
        for kind, group_ids in parts
    )


def by_tensorflow(data: Path) -> Iterator[dict[str, Any]]:
    """The rows that a dataset should have, as TensorFlow reads its records."""
    import tensorflow as tf

    dataset_manifest = manifest.load(data)
    for split, split_facts in sorted(dataset_manifest.splits.items()):
        for shard in split_facts.shards:
            for record_index, record in enumerate(tf.data.TFRecordDataset(str(data / shard.name)).as_numpy_iterator()):
                features = tf.train.Example.FromString(record).features.feature
                inputs = [
                    feature_value
                    for feature_value in features["input_ids"].int64_list.value
                    if feature_value != SENTENCES.pad_id()
                ]
                labels = [
                    feature_value for feature_value in features["labels"].int64_list.value if feature_value != -100
                ]
                ids = [feature_value.decode() for feature_value in features["id"].bytes_list.value]
                row = {
                    "id": ids if dataset_manifest.settings.layout == "packed" else ids[0],
                    **{"split": split, "shard": shard.name, "place": record_index, "input": text_of(inputs)},
                    "target": dataset_manifest.target.classes[labels[0]]
                    if dataset_manifest.target.classes
                    else text_of(labels),
                    **{"input_tokens": len(inputs), "target_tokens": len(labels)},
                }
                if "references" in dataset_manifest.features:
                    row["references"] = [
                        feature_value.decode() for feature_value in features["references"].bytes_list.value
                    ]
                yield row


def sources_of(folder: Path, kind: str, count: int) -> dict[str, Any]:
    """A source of so many rows, and the choices of its preparation."""
    if kind == "references":
        for split, share in (("train", 0.8), ("validation", 0.2)):
            rows = [
                {"concepts": [f"thing{n // 2}", split], "target": f"Sentence {n} of it."}
                for n in range(int(share * count))
            ]
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {"task": "common_gen"}
    if kind == "spans":
        (folder / "a.txt").write_text(
            "".join(f"A line {n} that tells of {n * 7919 % 1009} things.\n" * 3 for n in range(count))
        )
        return {"task": "span_corruption", "input_length": 32}
    write_csv(folder / "a.csv", questions(count, words=12))
    return {"input_length": 64, **{"ragged": {"layout": "ragged"}, "class": {"target": "class"}}.get(kind, {})} | (
        {"layout": "packed", "target_length": 8} if kind == "packed" else {}
    )


KINDS = ("padded", "ragged", "packed", "class", "spans", "references")


# Ten thousand rows are several batches of a table, whatever is in them.
@pytest.mark.parametrize(
    ("kind", "count"), [*((kind, 400) for kind in KINDS), pytest.param("ragged", 10_000, marks=pytest.mark.slow)]
)
def test_rows_are_what_tensorflow_reads(kind: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    prepared(tmp_path / "source", tmp_path / "d", tokenizer="sample:", **sources_of(tmp_path / "source", kind, count))
    rows = (
        t5prep.table(tmp_path / "d")
        .read_all()
        .drop_columns(["cut", "input_cut", "target_cut", "file", "row"])
        .to_pylist()
    )
    assert rows == list(by_tensorflow(tmp_path / "d"))
    assert len(rows) > count / 20


@pytest.mark.extra("datasets", "duckdb", "pandas", "polars")
def test_other_tools_read_it(data: Path, tmp_path: Path) -> None:
    import datasets
    import duckdb
    import pandas
    import polars

    rows = t5prep.table(data).read_all().to_pylist()
    for end in ("parquet", "csv"):
        run("table", data, tmp_path / f"t.{end}")
    parquet, texts = str(tmp_path / "t.parquet"), str(tmp_path / "t.csv")
    selected_rows = duckdb.sql(f"SELECT id, split, input, cut FROM '{parquet}'").fetchall()
    assert selected_rows == [(row["id"], row["split"], row["input"], row["cut"]) for row in rows]
    trained = duckdb.sql(f"SELECT id FROM '{texts}' WHERE split = 'train'").fetchall()
    assert [str(id) for (id,) in trained] == [row["id"] for row in rows if row["split"] == "train"]
    assert polars.read_parquet(parquet).to_dicts() == rows
    assert pandas.read_parquet(parquet).to_dict("records") == rows
    assert datasets.Dataset.from_parquet(parquet, cache_dir=str(tmp_path / "cache")).to_list() == rows


def test_references_are_lists(tmp_path: Path) -> None:
    for split, first in (("train", 0), ("validation", 5)):
        rows = [
            {"concepts": [f"thing{number}", "rain"], "target": f"Sentence {sentence_number} of {number}."}
            for number in range(first, first + 5)
            for sentence_number in range(3)
        ]
        (tmp_path / "source").mkdir(exist_ok=True)
        (tmp_path / "source" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepared(tmp_path / "source", tmp_path / "d", tokenizer="sample:", task="common_gen")
    # The first row of an input in its file; for training, a row is a record of its own.
    places = {
        record["id"][0].decode(): (f"{row['split']}.jsonl", row["row"])
        for row in t5prep.table(tmp_path / "d").read_all().to_pylist()
        for record in [{"id": [row["id"].encode()]}]
    }
    expected_rows = expected(tmp_path / "d", places)
    assert t5prep.table(tmp_path / "d").read_all().to_pylist() == expected_rows
    validation = t5prep.table(tmp_path / "d", splits=["validation"]).read_all().to_pylist()
    assert validation == [row for row in expected_rows if row["split"] == "validation"]
    assert {len(row["references"]) for row in validation} == {3}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    rows = questions(40)
    rows[3] |= {"Title": "", "Body": ""}
    prepared(write_csv(folder / "a.csv", rows), folder / "d", tokenizer="sample:", input_length=64)
    return folder / "d"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_three_formats_have_the_same_rows(data: Path, tmp_path: Path) -> None:
    expected_rows = expected(data, PLACES)
    for end in ("parquet", "csv", "jsonl"):
        assert json.loads(run("table", data, tmp_path / f"t.{end}", "--json"))["rows"] == len(expected_rows)
    assert pq.read_table(tmp_path / "t.parquet").to_pylist() == expected_rows
    assert [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()] == expected_rows
    with open(tmp_path / "t.csv", newline="") as file:
        assert [row["input"] for row in csv.DictReader(file)] == [row["input"] for row in expected_rows]
    assert pq.read_schema(tmp_path / "t.parquet").field("split").type.equals(record_table._NAME)


def test_rejected_rows_have_their_reasons_and_the_texts_they_had(data: Path, tmp_path: Path) -> None:
    run("table", data, tmp_path / "t.jsonl", "--rejected")
    (row,) = map(json.loads, (tmp_path / "t.jsonl").read_text().splitlines())
    (line,) = rejected(data)
    run("table", data, tmp_path / "t.jsonl", "--rejected", "--tokenizer", tmp_path / "gone")  # no text is encoded
    values = {"Id": "1003", "Title": "", "Body": "", "Y": "LQ_CLOSE"}
    assert row == {**line, "input": row["input"], "target": None}
    assert json.loads(row["input"]) == values
    command = ("table", data, tmp_path / "t.csv", "--rejected", "--split", "train")
    refused("option.conflict", "--split", command=command)


def test_a_table_removes_what_a_killed_one_left(data: Path, tmp_path: Path) -> None:
    (tmp_path / ".unfinished-t.csv-abcdefgh").write_bytes(b"half")
    (tmp_path / ".unfinished-other.csv-abcdefgh").write_bytes(b"half")
    record_table.write(record_table.records(Dataset(data)), tmp_path / "t.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".unfinished-other.csv-abcdefgh", "t.csv"]


def test_a_place_that_cannot_be_written_is_said_without_an_option_that_table_lacks(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises(OutputError, "output.unwritable", str(tmp_path / "file" / "t.csv")):
        record_table.write(record_table.records(Dataset(data)), tmp_path / "file" / "t.csv")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this machine")
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_a_full_disk_is_a_sentence(data: Path, tmp_path: Path, name: str) -> None:
    """Whatever the library that writes; tests/faults.py puts a full disk at drawn calls."""
    (tmp_path / name).symlink_to("/dev/full")
    refused("output.no-space", str(tmp_path / name), command=["table", data, tmp_path / name])


def test_the_source_is_not_replaced(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(10))
    prepared(source, tmp_path / "d", tokenizer="sample:")
    original_bytes = source.read_bytes()
    (tmp_path / "link.csv").hardlink_to(source)
    prepared(f"{tmp_path}/ro*.csv", tmp_path / "of_pattern", tokenizer="sample:")
    for dataset_manifest, out in (("d", source), ("d", tmp_path / "link.csv"), ("of_pattern", source)):
        refused("output.source-overwrite", str(out), command=("table", tmp_path / dataset_manifest, out))
    assert source.read_bytes() == original_bytes
    for _ in range(2):  # a table of its own is replaced
        run("table", tmp_path / "d", tmp_path / "t.csv")


def test_no_room_for_the_texts_of_rejected_rows_is_said(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Iterator[Any]:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(SourceRows, "texts", full)
    with raises(OutputError, "output.temporary-folder-unwritable", "/tmp"):
        t5prep.table(data, rejected=True).read_all()


@pytest.mark.parametrize(
    "line",
    [
        '{"file": "a.csv", "row": 1, "id": "e1"}',
        '{"file": "a.csv", "row": 1e400, "id": "e1", "reason": "x"}',
        '{"file": "a.csv", "row": 99999999999999999999, "id": "e1", "reason": "x"}',
        '{"file": {"a": 1}, "row": 1, "id": "e1", "reason": "x"}',
        "null",
        "[]",
    ],
)
def test_a_rejected_row_without_a_reason_is_damage(data: Path, tmp_path: Path, line: str) -> None:
    shutil.copytree(data, tmp_path / "d")
    (path,) = (tmp_path / "d").glob("rejected.jsonl*")
    path.write_text(f"{line}\n")
    with raises(DatasetError, "dataset.damaged", path.name):
        record_table.rejected(Dataset(tmp_path / "d")).read_all()


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two files, of which rows are rejected by the task and by filters, as repeated and as nearly the same."""
    folder = tmp_path_factory.mktemp("filtered")
    (folder / "source").mkdir()
    rows = questions(90)
    for row_index in range(3, 90, 4):
        rows[row_index] |= {
            "Title": rows[row_index - row_index % 12]["Title"],
            "Body": rows[row_index - row_index % 12]["Body"] + f" me{row_index}@mine.org",
        }
    for row_index in range(5, 90, 10):
        rows[row_index] |= {"Body": "Secret text, which is left out.", "Title": f"{row_index}"}
    rows[7], rows[8] = rows[6], rows[8] | {"Title": "", "Body": ""}
    write_csv(folder / "source" / "a.csv", rows[:50])
    write_csv(folder / "source" / "b.csv", rows[50:])
    choices = {"input_length": 64, "dedup": "near", "filter": ("pattern:drop=Secret", "addresses")}
    prepared(folder / "source", folder / "d", tokenizer="sample:", **choices)
    return folder


def test_rejected_rows_of_every_step_have_their_texts(
    filtered: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    source_rows = {}
    for file in ("a.csv", "b.csv"):
        with open(filtered / "source" / file, newline="") as opened:
            source_rows[file] = list(csv.DictReader(opened))
    rows = t5prep.table(filtered / "d", rejected=True).read_all().to_pylist()
    assert [{name: row[name] for name in ("file", "row", "id", "reason")} for row in rows] == rejected(filtered / "d")
    steps = collections.Counter(row["reason"].partition(":")[0] for row in rows)
    assert len(steps) >= 4, steps
    for row in rows:
        source = source_rows[row["file"]][row["row"] - 1]
        if source["Body"]:
            assert row["input"] == f"quality: {source['Title']}\n{source['Body']}"
            assert row["target"] in ("high", "low", "none")
        else:
            assert (json.loads(row["input"]), row["target"]) == (source, None)
    assert not capfd.readouterr().err
    without = [row | {"input": None, "target": None} for row in rows]
    assert t5prep.table(filtered / "d", rejected=True, source=str(tmp_path)).read_all().to_pylist() == without
    assert "*.csv" in capfd.readouterr().err
    write_csv(tmp_path / "a.csv", source_rows["b.csv"])
    write_csv(tmp_path / "b.csv", source_rows["b.csv"])
    assert t5prep.table(filtered / "d", rejected=True, source=str(tmp_path)).read_all().to_pylist() == without
    assert "a.csv" in capfd.readouterr().err


def test_predictions_are_joined_by_id(data: Path, tmp_path: Path) -> None:
    records = by_id(data)
    predicted_ids = random.Random(1).sample(sorted(records), 9)
    answers = [
        {"id": id, "prediction": f"answer {number}", "references": ["answer 2"], "scores": {"f1": 0.5}}
        for number, id in enumerate(predicted_ids)
    ]
    (tmp_path / "p.json").write_text(json.dumps({"predictions": answers}))
    rows = t5prep.table(data, predictions=tmp_path / "p.json").read_all().to_pylist()
    by = {row["id"]: row for row in rows}
    assert {id for id, row in by.items() if row["prediction"] is not None} == set(predicted_ids)
    for number, id in enumerate(predicted_ids):
        assert (by[id]["prediction"], by[id]["right"], by[id]["scores"]) == (
            f"answer {number}",
            number == 2,
            {"f1": 0.5},
        )
    for wrong in ("", "[]", '{"predictions": []}', '{"predictions": [{"id": 1}]}', '{"predictions": [7]}'):
        (tmp_path / "p.json").write_text(wrong)
        with raises(UsageError, "answer.missing", "p.json"):
            t5prep.table(data, predictions=tmp_path / "p.json")


def test_what_cannot_be_done_is_said(data: Path, tmp_path: Path) -> None:
    refused("output.unknown-format", "t.txt", ".parquet, .csv, .jsonl", command=("table", data, tmp_path / "t.txt"))
    command = ("table", data, tmp_path / "t.csv")
    refused("split.unknown", '"trian"', '"train"', command=(*command, "--split", "trian"))
    shard = data / next(iter(manifest.load(data).splits.values())).shards[0].name
    original_bytes = shard.read_bytes()
    try:
        for broken in (original_bytes[:100], original_bytes[:50] + b"\xff" + original_bytes[51:], b""):
            shard.write_bytes(broken)
            with raises(DatasetError, "dataset.damaged"):
                t5prep.table(data).read_all()
        refused("dataset.damaged", f"t5prep verify {data} ", command=command)
        assert not (tmp_path / "t.csv").exists()
    finally:
        shard.write_bytes(original_bytes)


def test_the_tokenizer_of_the_sample_is_used_by_name(data: Path) -> None:
    assert t5prep.table(data, tokenizer=str(sample.tokenizer_path())).read_all().num_rows == len(by_id(data))


def test_a_length_that_is_a_lie_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's manifest may say a million tokens: a table of 2,048 rows of them took 16 GB."""
    prepared(write_csv(tmp_path / "rows.csv", questions(300)), tmp_path / "d", tokenizer="sample:", layout="ragged")
    right = t5prep.table(tmp_path / "d").read_all().to_pylist()
    dataset_manifest = manifest.load(tmp_path / "d")
    settings = dataclasses.replace(dataset_manifest.settings, input_length=1 << 20, target_length=1 << 20)
    dataset_manifest = dataclasses.replace(dataset_manifest, settings=settings).sealed()
    (tmp_path / "d" / manifest.NAME).write_text(dataset_manifest.dumps())
    monkeypatch.setattr(record_table, "_MOST_IDS", 5000)  # and a few records at a time, as if one of them were large
    tracemalloc.start()
    try:
        read = t5prep.table(tmp_path / "d").read_all().to_pylist()
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert [row["input"] for row in read] == [row["input"] for row in right]


# Both splits have many groups of rows. What /proc says is of this process alone; `getrusage` begins with the peak of its parent.
WRITE = """
import re, sys
from t5prep.dataset import record_table
from t5prep.dataset.prepared import Dataset
record_table._BATCH_RECORDS, record_table._GROUP_BATCHES = 64, 2
rows = record_table.write(record_table.records(Dataset(sys.argv[1]), splits=[sys.argv[2]]), sys.argv[3])
print(rows, re.search("VmHWM:[^0-9]*([0-9]+)", open("/proc/self/status").read())[1])
"""


def test_a_table_is_written_without_pandas(data: Path, tmp_path: Path) -> None:
    """With its first `pa.array`, pyarrow imports it: a third of a second and 40 MB for nothing."""
    code = (
        "import sys, t5prep; from t5prep.dataset import record_table; record_table.write(t5prep.table(sys.argv[1]), sys.argv[2]); "
        "print('pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(data), str(tmp_path / "t.parquet")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "False\n"
    # To compress the texts takes as long as all else together.
    assert pq.ParquetFile(tmp_path / "t.parquet").metadata.row_group(0).column(4).compression == "UNCOMPRESSED"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    """The peak memory of a process that writes a table, in each format."""
    with open(tmp_path / "rows.jsonl", "w") as file:
        for number in range(10_000):
            file.write(json.dumps({"id": str(number), "text": f"word {number} " * 400, "label": "a"}) + "\n")
    options = {"inputs_column": "text", "targets_column": "label", "id_column": "id"}
    choices = {
        "task": "text2text",
        "layout": "ragged",
        "input_length": 2048,
        "options": options,
        "splits": {"train": 0.8, "validation": 0.2},
    }
    prepared(tmp_path / "rows.jsonl", tmp_path / "d", tokenizer="sample:", **choices)
    for end in ("parquet", "csv", "jsonl"):
        peaks = {}
        for split in ("validation", "train"):
            command = [sys.executable, "-c", WRITE, str(tmp_path / "d"), split, str(tmp_path / f"{split}.{end}")]
            rows, peak = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
            peaks[rows] = peak << 10
        few_rows, many_rows = sorted(peaks)
        assert many_rows > 3 * few_rows
        # The text of a record has more than 4,000 bytes.
        assert peaks[many_rows] - peaks[few_rows] < (many_rows - few_rows) * 2500, end
