"""`t5prep why`: each statement about a row is recomputed here by another way: csv, json, pyarrow, hashlib, SentencePiece,
TensorFlow's reader of records. By hand, more rows: T5PREP_SEEDS=1000 pytest tests/preparation/test_row_trace.py
"""

import csv
import dataclasses
import hashlib
import io
import json
import random
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import records_in_python
import sentencepiece
import tensorflow as tf
from click.testing import CliRunner
from raised import raises, refused
from random_seeds import seeds
from small_corpora import prepared, questions, rejected, write_csv

import t5prep
from t5prep.cli import main
from t5prep.dataset import manifest
from t5prep.dataset.prepared import Dataset
from t5prep.errors import DatasetError, SourceError
from t5prep.io import addresses, trusted_code
from t5prep.preparation.row_trace import RowTracer
from t5prep.preparation.source_rows import SourceRows
from t5prep.sources import sample
from t5prep.tasks.filters.rules import EMAIL

SENTENCES = sentencepiece.SentencePieceProcessor(model_file=str(sample.tokenizer_path()))
EOS, MARKER = SENTENCES.eos_id(), SENTENCES.get_piece_size() + 98


def tracer_of(data: Path) -> RowTracer:
    return RowTracer(Dataset(data))


def draw(key: str, *, seed: int = 0) -> tuple[float, bytes]:
    """The number that draws a split, and the position, of a key."""
    digest = hashlib.blake2b(key.encode(), digest_size=24, key=seed.to_bytes(8, "big", signed=True)).digest()
    return int.from_bytes(digest[:8], "big") / 2**64, digest[8:]


def tokens_of(fields: list[str]) -> list[int]:
    return [token for field in fields for token in [*SENTENCES.encode(field), EOS]]


def cut(ids: list[int], length: int) -> tuple[list[int], list[int]]:
    """The ids that are left of an input that is cut as a whole, and those that are gone."""
    if len(ids) <= length:
        return ids, []
    head = (length - 1) // 2
    tail = length - head - 1
    return [*ids[:head], MARKER, *ids[-tail:]], ids[head:-tail]


def in_shards(data: Path) -> dict[str, tuple[str, str, int, int, int, dict[str, list[int]]]]:
    """Each record by its id, as TensorFlow reads it: split, shard, number, byte, bytes, ids."""
    records_by_id = {}
    for split, split_entry in manifest.load(data).splits.items():
        for shard in split_entry.shards:
            offset = 0
            for number, record in enumerate(tf.data.TFRecordDataset(str(data / shard.name)).as_numpy_iterator()):
                features = tf.train.Example.FromString(record).features.feature
                ids = {name: list(features[name].int64_list.value) for name in ("input_ids", "labels")}
                size = len(record) + 16
                records_by_id[features["id"].bytes_list.value[0].decode()] = (
                    split,
                    shard.name,
                    number,
                    offset,
                    size,
                    ids,
                )
                offset += size
    return records_by_id


def similarity(first_text: str, second_text: str) -> float:
    """Jaccard's, of runs of five words: of texts of lower-case words in ASCII."""
    sets = []
    for text in (first_text, second_text):
        words = "".join(char if char.isalnum() else " " for char in text.lower()).split()
        sets.append({tuple(words[start : start + 5]) for start in range(len(words) - 4)})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def check_record(life: dict[str, Any], shard_records: dict[str, Any]) -> None:
    """What is said of the place of a row's record, and of its ids."""
    split, shard, number, byte, size, ids = shard_records[life["record"]["id"]]
    record = life["record"]
    assert (record["split"], record["shard"], record["number"], record["byte"], record["bytes"]) == (
        split,
        shard,
        number,
        byte,
        size,
    )
    assert life["split"]["name"] == split
    tokens = life["tokens"]
    assert tokens["input_ids"] == [token for token in ids["input_ids"] if token != SENTENCES.pad_id()]
    assert tokens["labels"] == [token for token in ids["labels"] if token != -100]
    assert life["notes"] == []


# ──────────────────────────────────────────────────────────────────────────────────────────────────────────── CSV, near ──

COUNT, LENGTH = 220, 32


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions with newlines in quotes, equal ids, near-duplicates, addresses to mask, and rows that make no example."""
    folder, rows = tmp_path_factory.mktemp("near"), questions(COUNT)
    for index in range(0, COUNT, 3):
        rows[index]["Body"] = f"short text {index} of some words,\r\nme{index}@firm.de wrote it"
    for index in range(1, COUNT, 11):
        rows[index] = rows[index - 1] | {"Id": rows[index]["Id"], "Y": "HQ", "Body": rows[index - 1]["Body"] + " more"}
    rows[7], rows[30] = dict(rows[5]), rows[31] | {"Y": "nothing"}
    rows[40] |= {"Title": "", "Body": ""}
    rows[50] |= {"Title": "two", "Body": ""}
    write_csv(folder / "a.csv", rows)
    prepared(
        *(folder / "a.csv", folder / "d"),
        tokenizer="sample:",
        input_length=LENGTH,
        dedup="near",
        filter=("words:least=4", "addresses"),
        shards=3,
    )
    return folder


def check_question(
    life: dict[str, Any], folder: Path, shard_records: dict[str, Any], rejected_rows: list[dict[str, Any]]
) -> str:
    """Recompute the life of a question; return how it ended."""
    content, source = (folder / "a.csv").read_bytes(), life["source"]
    source_text = content[source["byte"] : source["byte"] + source["bytes"]].decode()
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    row = rows[source["row"] - 1]
    assert source["file"] == "a.csv"
    assert (
        list(row.values()) == next(csv.reader(io.StringIO(source_text, newline=""))) == list(source["values"].values())
    )
    (line,) = [entry for entry in rejected_rows if entry["row"] == source["row"]] or [None]
    assert life["rejected"] == (line and {"reason": line["reason"], "step": life["rejected"]["step"]})
    if row["Y"] == "nothing" or not row["Title"] + row["Body"]:
        assert (life["rejected"]["step"], life["record"]) == ("task", None)
        assert life["example"]["reason"] == line["reason"]
        return "task"
    prefix = "quality: "
    fields = [entry.get("text") for entry in life["example"]["inputs"]]
    assert fields[0] == prefix + row["Title"]
    assert fields[1:] == [None, row["Body"]]
    assert life["example"]["target"] == {"LQ_CLOSE": "none", "LQ_EDIT": "low", "HQ": "high"}[row["Y"]]
    words, mask = life["filters"][0], life["filters"][1:]
    if len((fields[0] + " " + (row["Body"] or "")).split()) < 4:
        assert (words["reason"], life["rejected"]["step"]) == (line["reason"], "filters")
        return "filters"
    (mask,) = mask
    assert mask["changed"] == ("@firm.de" in row["Body"])
    texts = [entry for entry in fields if entry is not None]
    if mask["changed"]:
        assert mask["before"] == "\n".join(texts)
        assert mask["after"] == re.sub(r"me\d+@firm\.de", EMAIL, mask["before"])
        texts = [texts[0], mask["after"].removeprefix(texts[0] + "\n")]
    token_ids = tokens_of(texts)
    kept_ids, cut_ids = cut(token_ids, LENGTH)
    tokens = life["tokens"]
    assert (tokens["inputs"], tokens["input_ids"]) == (len(token_ids), kept_ids)
    assert tokens["labels"] == tokens_of([life["example"]["target"]])
    parts = [SENTENCES.decode(part) for part in _between(cut_ids)]
    assert (tokens["cut_input"], tokens["cut_target"]) == (parts, [])
    assert (tokens["input_cut"], tokens["target_cut"]) == (len(cut_ids), 0)
    number, _ = draw(row["Id"])
    split = life["split"]
    assert (split["by"], split["number"], split["ranges"]) == (
        "id",
        number,
        {"train": [0, 0.9], "validation": [0.9, 1]},
    )
    assert split["name"] == ("train" if number < 0.9 else "validation")
    if line is None:
        check_record(life, shard_records)
        row_reference = f"a.csv:{source['row']}"
        expected_duplicates = [
            entry
            for entry in rejected_rows
            if entry["reason"].partition(" kept is ")[2].partition(",")[0] == row_reference
        ]
        assert life["duplicates"] == expected_duplicates
        return "record"
    assert life["record"] is None
    kind, _, kept_location = line["reason"].partition(": kept is a.csv:")
    assert life["rejected"]["step"] == {"near duplicate": "near-duplicates", "duplicate id": "duplicates"}[kind]
    kept_row = rows[int(kept_location.partition(",")[0]) - 1]
    if kind == "near duplicate":
        # Addresses are masked alike in both.
        ours, theirs = (_masked(f"{prefix}{entry['Title']}\n{entry['Body']}") for entry in (row, kept_row))
        assert f"(Jaccard similarity {similarity(ours, theirs):.2f})" in kept_location
    else:
        assert kept_row["Id"] == row["Id"]
    return kind


def _masked(text: str) -> str:
    return re.sub(r"me\d+@firm\.de", EMAIL, text)


def _between(ids: list[int]) -> list[list[int]]:
    """What is cut out, without the EOS between two fields."""
    parts: list[list[int]] = [[]]
    for token in ids:
        if token == EOS:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def test_lives_of_questions(near: Path) -> None:
    shard_records, rejected_rows, tracer = in_shards(near / "d"), rejected(near / "d"), tracer_of(near / "d")
    ids = [
        *shard_records,
        *(entry["id"] for entry in rejected_rows if entry["id"]),
        *(f"a.csv:{row}" for row in range(1, COUNT + 1)),
    ]
    endings = set()
    for id in [*(f"a.csv:{row}" for row in (8, 31, 41, 51)), *random.Random(1).choices(ids, k=len(seeds(60)))]:
        endings.add(check_question(vars(tracer.trace(id)), near, shard_records, rejected_rows))
    assert endings == {"task", "filters", "near duplicate", "duplicate id", "record"}


# ──────────────────────────────────────────────────────────────────────────── JSON lines without ids, in groups, ragged ──


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grouped")
    rows: list[Any] = [
        {
            "q": f"is {n} larger?",
            "c": " ".join(f"ț{(n * 7 + k) % 83}" for k in range(n % 40)),
            "a": f"yes {n}",
            "g": f"g{n % 23}",
        }
        for n in range(150)
    ]
    lines = [json.dumps(row, ensure_ascii=n % 2 == 0) for n, row in enumerate(rows)]
    lines[3], lines[10], lines[11] = "{broken", "", json.dumps(rows[11] | {"a": ""})
    lines[12] = '{"q": "half \\ud83d", "c": "\\u001b]0;evil\\u0007", "a": "b", "g": "g1"}'
    (folder / "b.jsonl").write_text("".join(f"{line}\r\n" for line in lines))
    prepared(
        *(folder / "b.jsonl", folder / "d"),
        tokenizer="sample:",
        task="text2text",
        options={"inputs": "q: {q} c: {c}", "targets_column": "a", "protect": "q"},
        input_length=40,
        target_length=8,
        layout="ragged",
        group_column="g",
        splits={"train": 0.6, "validation": 0.4},
        seed=5,
    )
    return folder


def check_line(
    life: dict[str, Any], folder: Path, shard_records: dict[str, Any], rejected_rows: list[dict[str, Any]]
) -> str:
    content, source = (folder / "b.jsonl").read_bytes(), life["source"]
    lines = content.split(b"\r\n")
    line_bytes = lines[source["row"] - 1]
    assert content[source["byte"] : source["byte"] + source["bytes"]] == line_bytes + b"\r\n"
    if not line_bytes:
        assert (life["example"], life["record"], life["rejected"]) == ({"blank": True}, None, None)
        return "blank"
    (line,) = [entry for entry in rejected_rows if entry["row"] == source["row"]] or [None]
    if line is not None:
        assert life["rejected"]["reason"] == line["reason"]
        return str(life["rejected"]["step"])
    row = json.loads(line_bytes)
    assert source["values"] == row
    inputs = life["example"]["inputs"]
    assert "".join(part["text"] for part in inputs) == f"q: {row['q']} c: {row['c']}".rstrip() + " " * (not row["c"])
    texts = [SENTENCES.encode(part["text"]) for part in inputs]
    token_ids = SENTENCES.encode("".join(part["text"] for part in inputs))
    tokens = life["tokens"]
    assert tokens["inputs"] == len(token_ids) + 1
    if len(token_ids) + 1 <= 40:
        assert tokens["input_ids"] == [*token_ids, EOS]
        assert tokens["cut_input"] == []
    else:
        assert [part.get("protected", False) for part in inputs] == [True, False]
        room = 40 - 1 - len(texts[0])
        kept_ids, cut_ids = cut([*texts[1]], room)
        assert tokens["input_ids"] == [*texts[0], *kept_ids, EOS]
        assert tokens["cut_input"] == [SENTENCES.decode(cut_ids)]
    number, _ = draw(row["g"], seed=5)
    assert (life["split"]["by"], life["split"]["group"], life["split"]["number"]) == ("group", row["g"], number)
    assert life["split"]["name"] == ("train" if number < 0.6 else "validation")
    assert life["record"]["id"] == f"b.jsonl:{source['row']}"
    check_record(life, shard_records)
    return "record"


def test_lives_of_lines(grouped: Path) -> None:
    shard_records, rejected_rows, tracer = in_shards(grouped / "d"), rejected(grouped / "d"), tracer_of(grouped / "d")
    rows = [4, 11, 12, 13, *random.Random(2).choices(range(1, 151), k=len(seeds(40)))]
    endings = {check_line(vars(tracer.trace(f"b.jsonl:{row}")), grouped, shard_records, rejected_rows) for row in rows}
    assert endings in ({"reading", "blank", step, "record"} for step in ("task", "tokens"))


# ──────────────────────────────────────────────────────────── Parquet whose files are splits, numbers of classes, equal texts ──


@pytest.fixture(scope="module")
def classed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classed")
    (folder / "source").mkdir()
    for split, first, count in (("train", 0, 120), ("validation", 100, 60)):
        numbers = range(first, first + count)
        table = {
            "sentence": [f"Sentence {n // 2 if n < 20 else n} of a film" for n in numbers],
            "label": [n % 2 if n != 33 else 7 for n in numbers],
            "idx": list(numbers),
        }
        pq.write_table(pa.table(table), folder / "source" / f"{split}.parquet", row_group_size=25)
    prepared(
        folder / "source",
        folder / "d",
        tokenizer="sample:",
        task="sst2",
        target="class",
        dedup="exact",
        input_length=16,
    )
    return folder


def test_lives_of_classes(classed: Path) -> None:
    shard_records, rejected_rows, tracer = in_shards(classed / "d"), rejected(classed / "d"), tracer_of(classed / "d")
    tables = {
        split: pq.read_table(classed / "source" / f"{split}.parquet").to_pylist() for split in ("train", "validation")
    }
    endings = set()
    places = [(split, row) for split, table in tables.items() for row in range(1, len(table) + 1)]
    for split, number in random.Random(3).choices(places, k=len(seeds(60))):
        life, row = vars(tracer.trace(f"{split}.parquet:{number}")), tables[split][number - 1]
        assert (life["source"]["byte"], life["source"]["row"]) == (None, number)
        assert life["source"]["values"] == {name: row[name] for name in ("sentence", "label")}
        (line,) = [
            entry for entry in rejected_rows if (entry["file"], entry["row"]) == (f"{split}.parquet", number)
        ] or [None]
        if row["label"] == 7:
            assert life["rejected"] == {"reason": line["reason"], "step": "task"}
            continue
        text = "".join(part["text"] for part in life["example"]["inputs"])
        assert text.endswith(row["sentence"])
        assert life["tokens"]["input_ids"] == tokens_of([text])
        assert life["tokens"]["labels"] == [row["label"]]
        assert life["split"] == {"name": split, "by": "file"}
        if line is None:
            check_record(life, shard_records)
            assert life["record"]["target"] == ("negative", "positive")[row["label"]]
            repeated = [
                entry
                for entry in rejected_rows
                if entry["reason"].endswith(f"duplicate text: kept is {split}.parquet:{number}")
            ]
            assert life["duplicates"] == repeated
        else:
            assert life["rejected"] == {"reason": line["reason"], "step": "duplicates"}
        endings.add(line is None)
    assert endings == {True, False}


# ─────────────────────────────────────────────────────────────────────────────────── Rows that share a record, or have several ──


@pytest.mark.parametrize("case", ["packed", "answers", "parts"])
def test_rows_that_share_records_or_have_several(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = [
        {
            "concepts": f"thing {n}" if case == "packed" else [f"thing{n // 3}"],
            "target": f"Sentence {n}, the one of it. " * (1 + n % 4),
        }
        for n in range(60)
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.ro").write_text("".join(row["target"] + "\n" for row in rows))
    source, task, choices = {
        "packed": ("train.jsonl", "text2text", {"layout": "packed", "input_length": 32, "target_length": 64}),
        "answers": ("train.jsonl", "common_gen", {}),
        "parts": ("a.ro", "diacritics_ro", {"input_length": 24, "target_length": 32}),
    }[case]
    options = {}
    if case == "packed":
        options = {"inputs_column": "concepts", "targets_column": "target", "id_column": "id"}
        lines = (row | {"id": f"k{number}"} for number, row in enumerate(rows, 1))
        (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    prepared(tmp_path / source, tmp_path / "d", tokenizer="sample:", task=task, options=options, **choices)
    tracer = tracer_of(tmp_path / "d")
    ids = [
        record_id.decode()
        for split_entry in tracer.dataset.manifest.splits.values()
        for shard in split_entry.shards
        for record in tf.data.TFRecordDataset(str(tmp_path / "d" / shard.name)).as_numpy_iterator()
        for record_id in tf.train.Example.FromString(record).features.feature["id"].bytes_list.value
    ]
    assert len(ids) > 40
    places = []
    find = SourceRows.find
    monkeypatch.setattr(
        SourceRows, "find", lambda self, location, ids: places.append(location) or find(self, location, ids)
    )
    for id in random.Random(1).sample(ids, 20):
        life = vars(tracer.trace(id))
        values = rows[life["source"]["row"] - 1]
        assert (life["notes"], life["record"]["id"]) == ([], id)
        if case == "answers":
            assert life["source"]["values"] == values
            assert id.partition("#")[0] == life["example"]["id"]
        elif case == "packed":
            # Its file and row are the dataset's, so that no other row is made again; and are told without the source, too.
            assert (id, places.pop()) == (f"k{life['source']['row']}", (source, life["source"]["row"]))
            expected_source = {"file": source, "row": life["source"]["row"], "byte": None, "bytes": None}
            assert RowTracer(Dataset(tmp_path / "d"), source=str(tmp_path / "a.ro")).trace(id).source == expected_source
        else:
            assert id.partition("/")[0] == f"{source}:{life['source']['row']}"
        if case == "parts":
            part, parts = life["tokens"].get("part", 1), life["tokens"].get("parts", 1)
            assert id == f"{source}:{life['source']['row']}" + f"/{part}" * (parts > 1)
            assert life["record"]["target"].removesuffix(" </s>") in " ".join(values["target"].split())
        if case == "packed":
            assert (
                values["target"].strip()
                == life["record"]["target"].split(" </s>")[life["record"]["segment"] - 1].strip()
            )


def test_a_document_lies_in_the_record_that_its_first_token_is_in(tmp_path: Path) -> None:
    lines = [f"A line {n} of {n * 7919 % 1009} things, " + "and more " * (n % 30) for n in range(80)]
    (tmp_path / "a.txt").write_text("".join(line + "\n" for line in lines))
    dataset_manifest = prepared(
        tmp_path / "a.txt",
        tmp_path / "d",
        tokenizer="sample:",
        task="span_corruption",
        input_length=32,
        splits={"train": 1.0},
        shards=1,
    )
    length = dataset_manifest.settings.input_length - 1
    hidden = {row: span_lengths(row) for row in range(length, length + 30)}
    raw = max(row for row, inputs in hidden.items() if inputs <= 32)
    tracer, token_offset, begins = tracer_of(tmp_path / "d"), 0, {}
    for _, number in sorted((draw(f"a.txt:{number}")[1], number) for number in range(1, 81)):
        begins[number] = token_offset
        token_offset += len(SENTENCES.encode(lines[number - 1])) + 1
    for number in random.Random(1).sample(range(1, 81), 30):
        life = vars(tracer.trace(f"a.txt:{number}"))
        assert life["source"]["values"] == {"text": lines[number - 1]}
        if begins[number] % raw:  # else, and where a record begins inside of it, that record is named
            later_offsets = [int(record["id"].rpartition("@")[2]) for record in life["also"]]
            id_offset = int(life["record"]["id"].rpartition("@")[2])
            if not life["record"]["id"].startswith(f"a.txt:{number}@"):
                assert (life["record"]["number"], later_offsets) == (begins[number] // raw, [])
            else:
                assert id_offset == raw - begins[number] % raw
        assert life["notes"] == []


def span_lengths(raw: int) -> int:
    """The length of an input whose spans are hidden, of so many tokens (Raffel et al. 2020: 15 %, three a span)."""
    hidden = min(max(round(raw * 0.15), 1), raw - 1)
    return raw - hidden + max(round(hidden / 3), 1) + 1


# ─────────────────────────────────────────────────────────────────────────────────────────────── What cannot be told, and how ──


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_an_id_that_is_nowhere_is_a_sentence(near: Path) -> None:
    for id in ("no such", "a.csv:0", f"a.csv:{COUNT + 1}", ""):
        refused("row.unknown-id", f'"{id}"', str(near / "d"), command=("why", id, "--data", near / "d"))
    with raises(DatasetError, "row.unknown-id", '"no such"'):
        t5prep.why("no such", near / "d")


def test_the_command_says_what_the_function_returns(near: Path) -> None:
    printed = run("why", "1002", "--data", near / "d", "--json")
    assert json.loads(printed.stdout) == t5prep.why("1002", near / "d")
    output = run("why", "1002", "--data", near / "d").stdout
    for phrase in (
        "a.csv, row 3, byte",
        "target: high",
        "words:least=4: passed",
        "the hash of its id",
        "cut from the input",
    ):
        assert phrase in output


@pytest.mark.parametrize("source_state", ["gone", "changed"])
def test_without_its_source_the_dataset_alone_is_told(near: Path, tmp_path: Path, source_state: str) -> None:
    content = (near / "a.csv").read_bytes()
    rejected_row = rejected(near / "d")[0]
    full_trace = t5prep.why("1002", near / "d")
    try:
        (near / "a.csv").write_bytes(content + b"9,9,9,HQ\n")
        if source_state == "gone":
            (near / "a.csv").unlink()
        tracer = tracer_of(near / "d")
        life = vars(tracer.trace("1002"))
        (note,) = life["notes"]
        assert "a.csv" in note
        assert (life["record"], life["source"], life["split"]) == (
            full_trace["record"],
            {"file": "a.csv", "row": 3, "byte": None, "bytes": None},
            {"name": full_trace["split"]["name"]},
        )
        token_fields = ("inputs", "targets", "input_cut", "target_cut", "input_ids", "labels")
        assert life["tokens"] == {name: full_trace["tokens"][name] for name in token_fields}
        assert life["tokens"]["input_cut"] > 0
        assert vars(tracer.trace(f"a.csv:{rejected_row['row']}"))["rejected"]["reason"] == rejected_row["reason"]
        (tmp_path / "a.csv").write_bytes(content)
        assert t5prep.why("1002", near / "d", source=str(tmp_path / "a.csv")) == full_trace
    finally:
        (near / "a.csv").write_bytes(content)


def test_a_record_is_looked_up_in_its_source_by_the_row_that_the_dataset_keeps(
    near: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the examples of all rows before are made, and their ids compared."""
    places = []
    find = SourceRows.find
    monkeypatch.setattr(
        SourceRows, "find", lambda self, location, ids: places.append(location) or find(self, location, ids)
    )
    assert tracer_of(near / "d").trace("1002").source["row"] == 3
    assert places == [("a.csv", 3)]


def test_an_address_of_the_manifest_is_read_only_where_the_user_has_named_it(
    near: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    resolved_uris: list[str] = []

    def resolve(uri: str, **_: object) -> None:
        resolved_uris.append(uri)
        raise SourceError("it is not here", code="source.not-found")

    monkeypatch.setattr("t5prep.sources.resolve", resolve)
    data = shutil.copytree(near / "d", tmp_path / "d")
    dataset_manifest = manifest.load(data)
    for uri, displayed_uri in (
        ("https://me:planted0@example.org/a.csv", "https://example.org/a.csv"),
        ("gs://bucket/a.csv", "gs://bucket/a.csv"),
        ("hf:evil/evil", "hf:evil/evil"),
    ):
        resolved_uris.clear()
        changed = dataclasses.replace(dataset_manifest, source=dataclasses.replace(dataset_manifest.source, uri=uri))
        (data / manifest.NAME).write_text(changed.sealed().dumps())
        life = vars(tracer_of(data).trace("1002"))
        assert not resolved_uris
        assert f"--source {shlex.quote(displayed_uri)}" in life["notes"][0]
        addresses.remember(uri)
        tracer_of(data).trace("1002")
        assert len(resolved_uris) == 1
        assert f"Reading the source that the manifest names: {displayed_uri}" in capsys.readouterr().err


def test_a_note_is_no_longer_than_somebody_reads(near: Path, tmp_path: Path) -> None:
    """A name in a manifest may have any length."""
    data = shutil.copytree(near / "d", tmp_path / "d")
    facts = manifest.load(data)
    source = dataclasses.replace(facts.source, uri=str(tmp_path / ("x/" * 100_000)))
    (data / manifest.NAME).write_text(dataclasses.replace(facts, source=source).sealed().dumps())
    (note,) = tracer_of(data).trace("1002").notes
    assert len(note) < 5000


@pytest.mark.parametrize("uri", ["https://example.org/a.csv?v=1&token=s3", "https://example.org/a.csv;token=s3"])
def test_an_address_without_its_secret_is_not_requested(
    uri: str, near: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("t5prep.sources.resolve", lambda uri, **_: pytest.fail(f"{uri} is requested"))
    addresses.remember(uri)
    data = shutil.copytree(near / "d", tmp_path / "d")
    dataset_manifest = manifest.load(data)
    source = dataclasses.replace(dataset_manifest.source, uri=addresses.public(uri))
    (data / manifest.NAME).write_text(dataclasses.replace(dataset_manifest, source=source).sealed().dumps())
    (note,) = tracer_of(data).trace("1002").notes
    assert "--source ADDRESS" in note
    assert "…" in note
    table = run("table", data, tmp_path / "rejected.csv", "--rejected")
    assert (table.exit_code, "--source ADDRESS" in table.stderr) == (0, True), table.stderr


def test_escapes_and_half_surrogates_do_nothing(grouped: Path) -> None:
    for flags in ([], ["--json"]):
        result = run("why", "b.jsonl:13", "--data", grouped / "d", *flags)
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
        assert "]0;evil" in result.stdout


def test_a_strangers_code_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from t5prep.tasks import Columns, Example, Task\n"
        "TASK = Task(to_example=lambda row, _: Example(row['Id'], row['Title'], row['Y']), "
        "columns=Columns(inputs=['Title'], targets=['Y'], id='Id'), input_length=32, target_length=8)\n"
    )
    (tmp_path / "own.py").write_text("def louder(text):\n    return text.upper()\n")
    write_csv(tmp_path / "a.csv", questions(20))
    t5prep.prepare("./mine.py", source="a.csv", tokenizer="sample:", out="d", filter=("own.py:louder",), workers=0)
    mine = t5prep.why("1003", "d")
    assert mine["notes"] == []
    assert mine["filters"][0]["after"] == 'TITLE 3, "QUOTED"'
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    (note,) = (theirs := t5prep.why("1003", "d"))["notes"]
    assert "task.py" in note
    assert "--trust-code" in note
    assert theirs["record"] == mine["record"]
    assert theirs["source"] == {"file": "a.csv", "row": 4, "byte": None, "bytes": None}  # as the dataset says it
    trusted_code.remember((tmp_path / "mine.py").read_bytes())
    assert "own.py" in t5prep.why("1003", "d")["notes"][0]
    assert t5prep.why("1003", "d", trust_code=True) == mine


def test_a_file_that_a_manifest_names_as_its_task_is_not_run(tmp_path: Path) -> None:
    """A manifest may be a stranger's: only tasks that are installed are known by their names."""
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    data = tmp_path / "d"
    prepared(write_csv(tmp_path / "rows.csv", questions(20)), data, tokenizer="sample:")
    dataset_manifest = manifest.load(data)
    dataset_manifest = dataclasses.replace(
        dataset_manifest, settings=dataclasses.replace(dataset_manifest.settings, task=str(evil))
    ).sealed()
    (data / manifest.NAME).write_text(dataset_manifest.dumps())
    (note,) = t5prep.why("1003", data)["notes"]
    assert str(evil) in note
    assert run("report", data, "--out", tmp_path / "page.html").exit_code == 0
    assert not (tmp_path / "ran").exists()


def test_an_id_that_is_no_text_is_a_sentence(tmp_path: Path) -> None:
    data = tmp_path / "d"
    prepared(write_csv(tmp_path / "rows.csv", questions(20)), data, tokenizer="sample:")
    (shard,) = manifest.load(data).splits["train"].shards
    broken = records_in_python.framed({"id": [b"1003\xff"], "input_ids": [1], "labels": [1]})
    (data / shard.name).write_bytes(broken)
    refused("dataset.damaged", str(data), command=("why", "1003", "--data", data))


@pytest.mark.parametrize(
    "line",
    [
        *('[1, "1003"]', '{"file": "1003"}', '["1003", ' + "[" * 100_000),
        '{"file": "rows.csv", "row": 1, "id": ["1003"], "reason": "x"}',
    ],
)
def test_lines_of_rejected_rows_that_are_none(tmp_path: Path, line: str) -> None:
    data = tmp_path / "d"
    prepared(write_csv(tmp_path / "rows.csv", questions(20)), data, tokenizer="sample:")
    (data / "rejected.jsonl").write_text(line + "\n")
    for command in (["why", "1003", "--data", data], ["table", data, tmp_path / "t.csv", "--rejected"]):
        if command[0] == "why" or run(*command).exit_code:  # a table takes what is missing for null
            refused("dataset.damaged", "rejected.jsonl", command=command)
