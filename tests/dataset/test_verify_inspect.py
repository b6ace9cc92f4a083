"""verify finds what was altered; inspect shows what a model sees."""

import dataclasses
import hashlib
import io
import json
import os
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import records_in_python
from click.testing import CliRunner
from raised import assert_error, refused
from small_corpora import prepared, questions, write_csv

from t5prep.cli import main
from t5prep.dataset import inspect_records, manifest, shard_files, tfrecord
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.verify import verify
from t5prep.errors import DatasetError
from t5prep.sources import sample
from t5prep.tokens.tokenizer import Tokenizer

SAMPLE = sample.tokenizer_path()


@pytest.fixture(scope="module")
def dataset_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    prepared(write_csv(folder / "rows.csv", questions(40)), folder / "out", tokenizer="sample:", shards=2)
    return folder / "out"


@pytest.fixture
def data(dataset_folder: Path, tmp_path: Path) -> Path:
    """A copy of a dataset, which a test may damage."""
    return shutil.copytree(dataset_folder, tmp_path / "out")


def test_a_whole_dataset_is_verified(data: Path) -> None:
    result = CliRunner().invoke(main, ["verify", str(data)])
    assert result.exit_code == 0
    assert "40 records" in result.stdout


def test_a_long_verification_says_how_far_it_is(data: Path) -> None:
    heard: list[int] = []
    dataset_manifest = verify(data, started=heard.append, progress=lambda read: heard.append(-read))
    assert heard[0] == sum(shard.bytes for split in dataset_manifest.splits.values() for shard in split.shards) > 0
    assert sum(heard) == 0
    assert len(heard) == 1 + sum(len(split.shards) for split in dataset_manifest.splits.values())


def resealed(data: Path, **changes: object) -> None:
    """Write another manifest, with its digest computed anew."""
    dataset_manifest = dataclasses.replace(manifest.load(data), **changes).sealed()  # type: ignore[arg-type]
    (data / manifest.NAME).write_text(dataset_manifest.dumps())


def test_what_a_manifest_says_falsely_of_files_beside_it_is_found(data: Path) -> None:
    dataset_manifest = manifest.load(data)
    assert dataset_manifest.index
    assert dataset_manifest.lengths
    for name, side_file in (("index", dataset_manifest.index), ("lengths", dataset_manifest.lengths)):
        resealed(data, **{name: dataclasses.replace(side_file, bytes=side_file.bytes + 1)})
        sizes = (f"{side_file.bytes:,} bytes", f"{side_file.bytes + 1:,}")
        refused("dataset.altered", side_file.name, *sizes, command=("verify", data))
        resealed(data, **{name: side_file})
    verify(data)


def test_false_features_are_found(data: Path) -> None:
    dataset_manifest = manifest.load(data)
    length = dataset_manifest.settings.input_length
    longer = dataclasses.replace(dataset_manifest.settings, input_length=length + 1)
    masked = dataclasses.replace(dataset_manifest.settings, masks=True)
    of_masked = manifest.record_features(masked, references=False)
    of_longer = manifest.record_features(longer, references=False)
    other_length = dataset_manifest.features | {"input_ids": manifest.Feature("int64", [length + 1])}
    another = dataset_manifest.features | {"mask": manifest.Feature("int64", [length])}
    for changes, *error in (
        ({"features": other_length}, "dataset.invalid-manifest", "features"),
        ({"features": another}, "dataset.invalid-manifest", "features"),
        ({"settings": longer, "features": of_longer}, "dataset.altered", " input_ids "),
        ({"settings": masked}, "dataset.invalid-manifest", "features"),
        ({"settings": masked, "features": of_masked}, "dataset.altered", " attention_mask "),
    ):
        (data / manifest.NAME).write_text(dataclasses.replace(dataset_manifest, **changes).sealed().dumps())
        refused(*error, command=("verify", data))


@pytest.mark.parametrize(
    ("name", "value", "is_token"),
    [
        ("input_ids", 70_000, False),
        ("input_ids", -1, False),
        ("labels", 8192, False),
        ("labels", -101, False),
        ("labels", 8191, True),
    ],
)
def test_ids_that_are_no_tokens_are_found(data: Path, name: str, value: int, is_token: bool) -> None:
    """Of any record: whoever writes a manifest may write the checksums of what he likes."""
    dataset_manifest = manifest.load(data)
    shard = dataset_manifest.splits["train"].shards[-1]
    records = [tfrecord.parse(record) for record in tfrecord.read(io.BytesIO((data / shard.name).read_bytes()))]
    records[-1][name][0] = value
    framed_records = [records_in_python.framed(record) for record in records]
    (data / shard.name).write_bytes(content := b"".join(framed_records))
    changed = dataclasses.replace(shard, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    train = dataclasses.replace(
        dataset_manifest.splits["train"], shards=[*dataset_manifest.splits["train"].shards[:-1], changed]
    )
    splits = dataset_manifest.splits | {"train": train}
    index = shard_files.read_checked(data, dataset_manifest.index)
    last = shard_files.page_sizes(
        np.array([len(record) for record in framed_records]), every=dataset_manifest.index.every["train"]
    ).tobytes()
    earlier_pages = sum(-(-shard.records // dataset_manifest.index.every["train"]) for shard in train.shards[:-1])
    index = index[: 4 * earlier_pages] + last + index[4 * earlier_pages + len(last) :]
    (data / shard_files.INDEX).write_bytes(index)
    resealed(
        data, splits=splits, index=dataclasses.replace(dataset_manifest.index, sha256=hashlib.sha256(index).hexdigest())
    )
    if is_token:
        verify(data)
    else:
        refused("dataset.altered", shard.name, f" {value:,} ", name, command=("verify", data))


@pytest.mark.parametrize("name", [manifest.NAME, "train.tfrecord-00001-of-00002", "shards.index", "rejected.jsonl"])
def test_what_is_no_file_neither_hangs_nor_has_no_end(data: Path, name: str) -> None:
    (data / name).unlink()
    os.mkfifo(data / name)
    refused("dataset.unreadable", name, command=("verify", data))
    (data / name).unlink()
    (data / name).symlink_to("/dev/zero")
    refused("dataset.unreadable", name, command=("verify", data))


def test_a_page_replaces_no_file_of_a_dataset(data: Path) -> None:
    for name in (manifest.NAME, "train.tfrecord-00001-of-00002"):
        refused("output.foreign-file", name, "--out", command=("report", data, "--out", data / name))
    verify(data)
    for name in ("page.html", "page"):  # but an older page is replaced
        for _ in range(2):
            assert CliRunner().invoke(main, ["report", str(data), "--out", str(data.parent / name)]).exit_code == 0
    (data.parent / "train.json").write_text("{}")
    command = ("report", data, "--out", data.parent / "train.json")
    refused("output.foreign-file", "train.json", "--out", command=command)


def test_anything_altered_is_found(data: Path) -> None:
    shard = data / "train.tfrecord-00001-of-00002"
    original_bytes = shard.read_bytes()
    shard.write_bytes(original_bytes[:-1])
    command = ("verify", data)
    refused("dataset.altered", shard.name, f"{len(original_bytes) - 1:,} bytes", command=command)
    shard.write_bytes(original_bytes[:-1] + b"\0")
    refused("dataset.altered", shard.name, "SHA-256", command=command)
    shard.unlink()
    refused("dataset.unreadable", shard.name, command=command)
    shard.write_bytes(original_bytes)
    (data / "train.tfrecord-00002-of-00003").write_bytes(original_bytes)
    refused("dataset.stray-shard", "train.tfrecord-00002-of-00003", command=command)
    (data / "train.tfrecord-00002-of-00003").unlink()
    text = (data / manifest.NAME).read_text()
    (data / manifest.NAME).write_text(text.replace('"seed": 0', '"seed": 1'))
    refused("dataset.altered", manifest.NAME, command=command)
    (data / manifest.NAME).write_text(text.replace('"schema": 2', '"schema": 3'))
    refused("dataset.unsupported-schema", "'3'", "t5prep 0.1.0", command=command)
    for broken in ("{", "[]", "7", '{"task": "mine"}', ""):
        (data / manifest.NAME).write_text(broken)
        refused("dataset.invalid-manifest", manifest.NAME, command=command)
    (data / manifest.NAME).unlink()
    refused("dataset.missing-manifest", str(data), command=command)


def test_inspect_shows_text_ids_and_mask(data: Path) -> None:
    result = CliRunner().invoke(main, ["inspect", str(data), "-n", "2"], env={"COLUMNS": "72"})
    assert result.exit_code == 0
    assert "\x1b" not in result.output  # colour is for terminals
    assert all(len(line) <= 72 for line in result.output.splitlines())
    assert "quality: Title" in result.output
    assert "<pad> × " in result.output
    refused("split.unknown", '"trian"', '"train"', command=("inspect", data, "--split", "trian"))


def test_inspect_of_records_that_are_none(data: Path) -> None:
    """Records with right checksums whose content somebody changed: shown, or one sentence."""
    chooser = random.Random(5)
    shard, dataset = data / "train.tfrecord-00000-of-00002", Dataset(data)
    (original_record, *_) = tfrecord.read(io.BytesIO(shard.read_bytes()))
    expected, causes = {"ValueError", "KeyError", "UnicodeDecodeError"}, set()
    for case in range(400):
        if case > 60 and expected <= causes:
            break
        record = bytearray(original_record)
        for _ in range(chooser.choice([1, 1, 2, 4])):
            record[chooser.randrange(len(record))] = chooser.randrange(256)
        shard.write_bytes(
            records_in_python.frame(bytes(record[: chooser.choice([len(record), chooser.randrange(len(record))])]))
        )
        try:
            list(inspect_records.records(dataset, split="train", count=1))
        except DatasetError as error:
            assert_error(f"{error} [{error.code}]", "dataset.damaged", " 0 ", " train ", str(data))
            causes.add(type(error.__cause__).__name__)
    assert expected <= causes


def test_nothing_is_wider_than_the_terminal(tmp_path: Path) -> None:
    """Not the ids of a packed row, nor answers as long as a text."""
    rows = [{"q": f"why {i}", "a": [f"answer {i}", "because of it " * 20]} for i in range(60)]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"inputs_column": "q", "targets_column": "a"}
    for layout in ("padded", "packed"):
        out = tmp_path / layout
        prepared(
            source, out, tokenizer="sample:", task="text2text", options=columns, layout=layout, splits={"test": 1.0}
        )
        result = CliRunner().invoke(main, ["inspect", str(out), "--split", "test", "-n", "2"], env={"COLUMNS": "60"})
        assert result.exit_code == 0
        assert [line for line in result.output.splitlines() if len(line) > 60] == []
        assert ("reference: because" in result.output) == (layout == "padded")


def test_tokens_and_ids_stand_under_each_other() -> None:
    words = Tokenizer(SAMPLE.read_bytes(), name="sample:")
    ids = [*words.encode("why does this error come back"), words.sentinel(1), 1, 0, 0, 0]
    shown_ids: list[int] = []
    for top, bottom in inspect_records.aligned(ids, words, width=40):
        assert max(len(top), len(bottom)) <= 40
        columns = [i for i, letter in enumerate(bottom) if letter != " " and (i == 0 or bottom[i - 1] == " ")]
        assert all(top[column] != " " and (column == 0 or top[column - 1] == " ") for column in columns)
        shown_ids += map(int, bottom.split())
    assert shown_ids == ids[:-2]  # the padding is shown once


def test_wide_characters_and_marks_take_the_columns_that_a_terminal_gives_them() -> None:
    pieces = ["▁日本語", "e\u0301", "の", "▁the", "漢字漢字", "x"] * 5
    words = SimpleNamespace(piece=pieces.__getitem__, pad_id=-1)
    for top, bottom in inspect_records.aligned(list(range(30)), words, width=40):  # type: ignore[arg-type]
        assert inspect_records.columns(top) <= 40
        position, starts = 0, []
        for cell in top.split():
            position = top.index(cell, position)
            starts.append(inspect_records.columns(top[:position]))
            position += len(cell)
        assert starts == [i for i, letter in enumerate(bottom) if letter != " " and (i == 0 or bottom[i - 1] == " ")]


@pytest.mark.extra("seeds")
def test_another_tokenizer_is_refused(data: Path, shared_data: Path) -> None:
    command = ("inspect", data, "--tokenizer", shared_data / "t5_tokenizer/spiece.model")
    refused("dataset.tokenizer-mismatch", "spiece.model", command=command)
