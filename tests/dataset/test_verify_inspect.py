"""verify finds what was altered; inspect shows what a model sees."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from preparing import prepared, questions, write_csv

from t5prep.cli import main
from t5prep.dataset import inspect_records, manifest
from t5prep.dataset.verify import verify
from t5prep.sources import sample
from t5prep.tokens.tokenizer import Tokenizer

SAMPLE = sample.tokenizer_path()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    prepared(write_csv(tmp_path / "rows.csv", questions(40)), tmp_path / "out", tokenizer="sample:", shards=2)
    return tmp_path / "out"


def refused(*args: object) -> str:
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    return line


def test_a_whole_dataset_is_verified(data: Path) -> None:
    result = CliRunner().invoke(main, ["verify", str(data)])
    assert result.exit_code == 0
    assert "40 records" in result.stdout


def test_a_long_verification_says_how_far_it_is(data: Path) -> None:
    heard: list[int] = []
    made = verify(data, started=heard.append, progress=lambda read: heard.append(-read))
    assert heard[0] == sum(shard.bytes for split in made.splits.values() for shard in split.shards) > 0
    assert sum(heard) == 0
    assert len(heard) == 1 + sum(len(split.shards) for split in made.splits.values())


def test_anything_altered_is_found(data: Path) -> None:
    shard = data / "train.tfrecord-00001-of-00002"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    assert "bytes, the manifest says" in refused("verify", data)
    shard.write_bytes(whole[:-1] + b"\0")
    assert "has SHA-256" in refused("verify", data)
    shard.unlink()
    assert "cannot be read" in refused("verify", data)
    shard.write_bytes(whole)
    (data / "train.tfrecord-00002-of-00003").write_bytes(whole)
    assert "is not a shard that the manifest names" in refused("verify", data)
    (data / "train.tfrecord-00002-of-00003").unlink()
    text = (data / manifest.NAME).read_text()
    (data / manifest.NAME).write_text(text.replace('"seed": 0', '"seed": 1'))
    assert "was altered" in refused("verify", data)
    (data / manifest.NAME).write_text(text.replace('"schema": 2', '"schema": 3'))
    assert "has schema 3; this t5prep reads schema 2. Upgrade" in refused("verify", data)
    (data / manifest.NAME).write_text(text.replace('"schema": 2', '"schema": 1'))
    assert "was written by an older t5prep" in refused("verify", data)
    for broken in ("{", "[]", "7", '{"task": "mine"}', ""):
        (data / manifest.NAME).write_text(broken)
        said = refused("verify", data)
        assert "is not a t5prep manifest (it " in said, broken
    (data / manifest.NAME).unlink()
    assert "preparing did not finish" in refused("verify", data)


def test_inspect_shows_text_ids_and_mask(data: Path) -> None:
    result = CliRunner().invoke(main, ["inspect", str(data), "-n", "2"], env={"COLUMNS": "72"})
    assert result.exit_code == 0
    assert "\x1b" not in result.output  # colour is for terminals
    assert all(len(line) <= 72 for line in result.output.splitlines())
    assert "quality: Title" in result.output
    assert "<pad> × " in result.output
    assert 'has no split "trian". Did you mean "train"?' in refused("inspect", data, "--split", "trian")


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
        assert ("also right: because" in result.output) == (layout == "padded")


def test_tokens_and_ids_stand_under_each_other() -> None:
    words = Tokenizer(SAMPLE.read_bytes(), name="sample:")
    ids = [*words.encode("why does this error come back"), words.sentinel(1), 1, 0, 0, 0]
    seen: list[int] = []
    for top, bottom in inspect_records.aligned(ids, words, width=40):
        assert max(len(top), len(bottom)) <= 40
        columns = [i for i, letter in enumerate(bottom) if letter != " " and (i == 0 or bottom[i - 1] == " ")]
        assert all(top[column] != " " and (column == 0 or top[column - 1] == " ") for column in columns)
        seen += map(int, bottom.split())
    assert seen == ids[:-2]  # the padding is shown once


def test_wide_characters_and_marks_take_the_columns_that_a_terminal_gives_them() -> None:
    pieces = ["▁日本語", "e\u0301", "の", "▁the", "漢字漢字", "x"] * 5
    words = SimpleNamespace(piece=pieces.__getitem__, pad_id=-1)
    for top, bottom in inspect_records.aligned(list(range(30)), words, width=40):  # type: ignore[arg-type]
        assert inspect_records.columns(top) <= 40
        place, starts = 0, []
        for cell in top.split():
            place = top.index(cell, place)
            starts.append(inspect_records.columns(top[:place]))
            place += len(cell)
        assert starts == [i for i, letter in enumerate(bottom) if letter != " " and (i == 0 or bottom[i - 1] == " ")]


def test_another_tokenizer_is_refused(data: Path, shared_data: Path) -> None:
    other = shared_data / "t5_tokenizer/spiece.model"
    assert "is not the tokenizer of these records" in refused("inspect", data, "--tokenizer", other)
