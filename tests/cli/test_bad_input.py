"""What a user gets wrong is one sentence and exit code 1; what is wrong with a row is a line of rejected.jsonl."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from raised import raises, refused
from small_corpora import prepared, questions, rejected, write_csv

from t5prep.cli import main
from t5prep.dataset import manifest
from t5prep.errors import OutputError
from t5prep.io import atomic_files
from t5prep.sources import sample
from t5prep.tokens.model_proto import CONTROL, UNKNOWN, Normalization, Piece, build

SAMPLE = str(sample.tokenizer_path())


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))


def run(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args])


def build_so_quality_line(source: Path, out: Path, *extra_options: object) -> tuple[object, ...]:
    return (
        "prepare",
        "so_quality",
        "--source",
        source,
        "--tokenizer",
        SAMPLE,
        "--out",
        out,
        "--workers",
        1,
        *extra_options,
    )


def t2t(source: Path, out: Path, *extra_options: object) -> tuple[object, ...]:
    return (
        "prepare",
        "text2text",
        "--source",
        source,
        "--tokenizer",
        SAMPLE,
        "--out",
        out,
        "--workers",
        1,
        *extra_options,
    )


COLUMNS = ("--inputs-column", "q", "--targets-column", "a")


def test_unknown_names_say_the_closest(tmp_path: Path) -> None:
    refused("task.unknown", '"so_qualty"', '"so_quality"', command=("prepare", "so_qualty"))
    rows = write_csv(tmp_path / "rows.csv", questions(3))
    assert run(*build_so_quality_line(rows, tmp_path / "out", "--truncation", "middle")).exit_code == 2
    assert run("prepair").exit_code == 2


def test_a_name_or_value_with_a_newline_begins_no_line(tmp_path: Path) -> None:
    refused("dataset.not-found", "Error: no Error: all is well ", command=("verify", "no\nError: all is well"))
    rows = write_csv(tmp_path / "rows.csv", [{"q": "1"}])
    templates = ("--inputs", "{a\nError: all is well_column}", "--targets", "{q}")
    refused("option.invalid-template", "{a Error: all is well_column}", command=t2t(rows, tmp_path / "out", *templates))


def test_missing_column_names_those_there_are(tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", [{"Id": "1", "Text": "x", "Y": "HQ"}])
    columns = ("rows.csv", '"Title"', "Id, Text, Y")
    refused("column.missing", *columns, command=build_so_quality_line(rows, tmp_path / "out"))
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"q": "why?", "b": "because"}\n')
    refused("column.missing", "rows.jsonl", '"a"', "q, b", command=t2t(lines, tmp_path / "out", *COLUMNS))


def test_a_later_file_without_the_column_is_named(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [{"q": "1", "a": "x"}])
    write_csv(tmp_path / "b.csv", [{"q": "1", "answer": "x"}])
    refused("column.missing", "b.csv", '"a"', command=t2t(tmp_path / "*.csv", tmp_path / "out", *COLUMNS))


def test_text2text_asks_for_its_columns(tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", [{"q": "1", "a": "x"}])
    out = tmp_path / "out"
    refused("option.missing", "--inputs-column", command=t2t(rows, out, "--targets-column", "a"))
    refused("option.missing", "--targets-column", command=t2t(rows, out, "--inputs-column", "q"))
    refused("option.invalid-template", "{q", command=t2t(rows, out, "--inputs", "{q", "--targets-column", "a"))
    protect = ("--inputs", "x: {q}", "--targets-column", "a", "--protect", "z")
    refused("column.missing", "--protect z", command=t2t(rows, out, *protect))


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("--splits", "train=0.9", ("split.invalid-shares", "--splits", '"train=0.9"')),
        ("--splits", "train", ("option.malformed", "--splits", '"train"')),
        ("--shards", "0", ("option.malformed", "--shards", '"0"')),
        ("--shards", "many", ("option.malformed", "--shards", '"many"')),
        ("--shards", "1000", ("option.out-of-range", "--shards", "1000", "11")),
        ("--input-length", "1", ("option.out-of-range", "--input-length", "1", "4")),
        ("--target-length", "1", ("option.out-of-range", "--target-length", "1", "2")),
        ("--encoding", "utf-9", ("option.invalid-encoding", "--encoding", '"utf-9"')),
        ("--format", "xml", ("option.unknown-choice", "--format", '"xml"')),
        ("--labels", "HQ", ("option.malformed", "--labels", '"HQ"')),
        ("--labels", "HQ=a word of very many tokens", ("task.oversized-class", "--target-length 2", "11")),
    ],
)
def test_options_that_cannot_work(tmp_path: Path, option: str, value: str, error: tuple[str, ...]) -> None:
    rows = write_csv(tmp_path / "rows.csv", questions(12))
    refused(*error, command=build_so_quality_line(rows, tmp_path / "out", option, value))


@pytest.mark.extra("seeds")
def test_wrong_encoding_is_named_with_a_likely_one(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "stackoverflow/questions_cp1252.csv"
    values = ("questions_cp1252.csv", "utf-8", "0xb4", "310", "--encoding cp1252 ")
    refused("file.wrong-encoding", *values, command=build_so_quality_line(source, tmp_path / "out"))


def test_sources_that_hold_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused("source.not-found", "none.csv", command=build_so_quality_line(tmp_path / "none.csv", out))
    empty = tmp_path / "empty.csv"
    empty.touch()
    refused("file.missing-header", "empty.csv", command=build_so_quality_line(empty, out))
    header = tmp_path / "header.csv"
    header.write_text("Id,Title,Body,Y\n")
    refused("row.missing", command=build_so_quality_line(header, out))
    bad = write_csv(tmp_path / "bad.csv", [dict(row, Y="?") for row in questions(3)])
    reason = "unknown label 3: '?' is not one of LQ_CLOSE, LQ_EDIT, HQ"
    refused("row.example-missing", reason, command=build_so_quality_line(bad, out))
    fake = tmp_path / "fake.parquet"
    fake.write_bytes(b"no parquet")
    refused("file.damaged", "fake.parquet", command=t2t(fake, out, *COLUMNS))
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(b"q,a\n" + b"1,x\n" * 9999)[:-40])
    refused("file.damaged", "broken.csv.gz", command=t2t(broken, out, *COLUMNS))


def test_tokenizers_that_are_none(tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", questions(3))
    model = tmp_path / "spiece.model"

    def refused_tokenizer(code: str, name: Path) -> None:
        line = ("prepare", "so_quality", "--source", rows, "--tokenizer", name, "--out", tmp_path / "out")
        refused(code, name.name, command=line)

    for content in (b"this is no model", b"", Path(SAMPLE).read_bytes()[:5000]):
        model.write_bytes(content)
        refused_tokenizer("tokenizer.invalid-sentencepiece", model)
    (tmp_path / "folder").mkdir()
    refused_tokenizer("tokenizer.missing-file", tmp_path / "folder")
    refused_tokenizer("tokenizer.not-found", tmp_path / "missing.model")


def test_a_model_without_t5s_special_pieces_is_refused(tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", questions(3))
    pieces = [Piece("<unk>", kind=UNKNOWN), Piece("</s>", kind=CONTROL), Piece("a", -1.0)]
    (tmp_path / "some.model").write_bytes(build(pieces, Normalization("identity")))
    model = tmp_path / "some.model"
    line = ("prepare", "so_quality", "--source", rows, "--tokenizer", model, "--out", tmp_path / "out")
    refused("tokenizer.missing-token", "some.model", "<pad>", command=line)


def test_a_directory_with_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    rows, out = write_csv(tmp_path / "rows.csv", questions(30)), tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    refused("output.foreign-file", "thesis.tex", command=build_so_quality_line(rows, out))
    assert (out / "thesis.tex").read_text() == "years of work"
    dataset_folder = tmp_path / "other"
    assert run(*build_so_quality_line(rows, dataset_folder)).exit_code == 0
    original_bytes = (dataset_folder / manifest.NAME).read_bytes()
    for options, existing_options in (
        (("--input-length", 64, "--seed", 3), "--input-length 512, --seed 0."),
        (("--truncation", "head"), "--truncation head_tail."),
        (("--masks",), "no --masks."),
        (("--limit", 10), "no --limit."),
        (("--splits", "train=1.0"), "--splits train=0.9,validation=0.1."),
        (("--dedup", "exact"), "--dedup none."),
        (("--encoding", "utf-8-sig"), "--encoding utf-8."),
    ):
        command = build_so_quality_line(rows, dataset_folder, *options)
        refused("output.different-settings", "so_quality", "30 records", f" {existing_options}", command=command)
    assert (dataset_folder / manifest.NAME).read_bytes() == original_bytes
    assert run(*build_so_quality_line(rows, dataset_folder)).exit_code == 0  # the same one may be prepared again


def test_a_dataset_of_another_version_is_named_as_one(tmp_path: Path) -> None:
    rows, out = write_csv(tmp_path / "rows.csv", questions(30)), tmp_path / "out"
    assert run(*build_so_quality_line(rows, out)).exit_code == 0
    facts = json.loads((out / manifest.NAME).read_text())
    for changed, expected in (
        ({key: value for key, value in facts.items() if key != "features"}, ("dataset.invalid-manifest",)),
        ({**facts, "settings": facts["settings"] | {"mood": 1}}, ("dataset.invalid-manifest", "mood")),
        ({**facts, "schema": 1}, ("dataset.unsupported-schema", "'1'", "t5prep 0.1.0")),
    ):
        (out / manifest.NAME).write_text(json.dumps(changed))
        refused(*expected, str(out), command=("verify", out))
        refused("output.damaged-dataset", str(out), command=build_so_quality_line(rows, out))
    (out / manifest.NAME).write_text("{")
    refused("output.damaged-dataset", str(out), command=build_so_quality_line(rows, out))


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", questions(3))
    (tmp_path / "file").touch()
    out = tmp_path / "file/out"
    refused("output.unwritable", str(out), "Not a directory", command=build_so_quality_line(rows, out))
    refused("output.unwritable", "/proc/t5prep", command=build_so_quality_line(rows, Path("/proc/t5prep")))


def test_no_space_left_is_one_sentence_and_leaves_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = write_csv(tmp_path / "rows.csv", questions(3))

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with raises(OutputError, "output.no-space"):
        prepared(rows, tmp_path / "out", tokenizer=SAMPLE)
    assert not (tmp_path / "out" / manifest.NAME).exists()
    assert not list((tmp_path / "out").glob("*.tfrecord-*"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this machine")
def test_a_full_device_is_explained(tmp_path: Path) -> None:
    with raises(OutputError, "output.no-space", str(tmp_path), "--out"):
        try:
            with open("/dev/full", "wb", buffering=0) as device:
                device.write(b"x")
        except OSError as error:
            raise atomic_files.write_error(error, tmp_path) from None


def test_rows_that_make_no_example_are_said_one_by_one(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_bytes(
        b"Id,Title,Body,Y\n"
        b'1,fine,"<p>a\nb</p>",HQ\n'
        b"2,wrong label,x,GOOD\n"
        b"3,,,HQ\n"
        b"4,too,many,fields,HQ\n"
        b"5,nul \x00 byte,x,HQ\n"
        b"7,also fine,x,LQ_EDIT\n"
        b'8,"bad" quote,x,HQ\n'
        b'9,"never closed,x,HQ\n'
        b"10,fine again,x,LQ_CLOSE\n"
    )
    dataset_manifest = prepared(source, tmp_path / "out", tokenizer=SAMPLE)
    assert sum(split.records for split in dataset_manifest.splits.values()) == 3
    assert [(line["row"], line["id"], line["reason"].partition(":")[0]) for line in rejected(tmp_path / "out")] == [
        (2, "2", "unknown label"),
        (3, "3", "empty text"),
        (4, None, "wrong number of fields"),
        (5, None, "NUL byte"),
        (7, None, "broken quoting"),
        (8, None, "broken quoting"),
    ]
    assert dataset_manifest.rejected == {
        "NUL byte": 1, "broken quoting": 2, "empty text": 1, "unknown label": 1, "wrong number of fields": 1
    }  # fmt: skip


def test_broken_bytes_deep_in_a_file_cost_only_their_rows(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_bytes(b"q,a\n" + (b"w" + b"o" * 1200 + b"w,that\n") * 1000 + b"br\x92ken,that\n" + b"what?,that\n" * 5)
    dataset_manifest = prepared(source, tmp_path / "out", tokenizer=SAMPLE, task="text2text",
                    options={"inputs_column": "q", "targets_column": "a"})  # fmt: skip
    assert dataset_manifest.rejected == {"not utf-8": 1}
    assert rejected(tmp_path / "out") == [
        {"file": "rows.csv", "row": 1001, "id": None, "reason": "not utf-8: byte 0x92 in q"}
    ]
    assert sum(split.records for split in dataset_manifest.splits.values()) == 1005


def test_protected_text_that_is_too_long_alone_is_rejected(tmp_path: Path) -> None:
    source = write_csv(
        tmp_path / "rows.csv", [{"q": "why " * 40, "c": "x", "a": "y"}, {"q": "why", "c": "z " * 99, "a": "y"}]
    )
    options = {"inputs": "question: {q} context: {c}", "targets_column": "a", "protect": ["q"]}
    dataset_manifest = prepared(
        source, tmp_path / "out", tokenizer=SAMPLE, task="text2text", options=options, input_length=32
    )
    assert dataset_manifest.rejected == {"protected text too long": 1}


def test_starting_and_help_load_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; import t5prep; from t5prep.cli import main\n"
        "for args in (['--help'], ['prepare', '--help'], ['prepare', 'so_quality', '--help'], ['tasks']):\n"
        "    assert CliRunner().invoke(main, args).exit_code == 0, args\n"
        "print([name for name in ('apache_beam', 'tensorflow', 'transformers', 'torch', 'jax') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
