"""Before a preparation begins, it says what it needs of a disk and what an engine costs, and what cannot fit is refused."""

import gzip
import io
import json
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from raised import assert_error, raises
from small_corpora import prepared, questions, write_csv

from pipelines import estimates
from pipelines.estimates import Price
from t5prep import cli
from t5prep.errors import OutputError, UsageError
from t5prep.sources import sample

SAMPLE = sample.tokenizer_path()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "rows.csv", questions(400))


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(estimates, "free_bytes", lambda folder: size)


def test_what_cannot_fit_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 100_000)
    with raises(OutputError, "output.no-space"):
        prepared(source, tmp_path / "out", tokenizer=SAMPLE)
    assert not (tmp_path / "out" / "manifest.json").exists()
    prepared(source, tmp_path / "out", tokenizer=SAMPLE, limit=20)


def test_what_the_estimate_says_is_about_what_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    free(monkeypatch, 500_000)
    manifest = prepared(source, tmp_path / "out", tokenizer=SAMPLE)
    output = capfd.readouterr().err
    written = sum(shard.bytes for split in manifest.splits.values() for shard in split.shards) / 1000
    estimate = re.search(r"^  writes +about (\S+) kB into", output, re.MULTILINE)
    assert estimate
    assert 0.9 * written < float(estimate[1]) < 1.1 * written
    assert re.search(r"^  disk +\S+out needs \S+ kB while", output, re.MULTILINE)


def test_a_run_that_surely_fits_says_nothing(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prepared(source, tmp_path / "out", tokenizer=SAMPLE)
    assert "  disk  " not in capfd.readouterr().err


def test_free_space_is_asked_where_a_folder_will_be(tmp_path: Path) -> None:
    free_space = estimates.free_bytes(tmp_path)
    assert estimates.free_bytes(tmp_path / "not" / "yet") == pytest.approx(free_space, rel=0.1)


def test_a_parquet_file_that_begins_with_long_rows_is_not_taken_to_have_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row of eight has 2 kB more, all of them before the others, or behind them."""
    rows = [
        dict(row, Body=row["Body"] + " ".join(map(str, range(400 if number < 500 else 0))))
        for number, row in enumerate(questions(4000))
    ]
    arguments = ["--inputs-column", "Body", "--targets-column", "Y", "--dedup", "near", "--layout", "ragged"]
    needed = []
    for name, ordered in (("before", rows), ("behind", rows[::-1])):
        pq.write_table(pa.Table.from_pylist(ordered), tmp_path / f"{name}.parquet")
        code, output = dry(
            "--source", tmp_path / f"{name}.parquet", *arguments, "--out", tmp_path / "out", task="text2text"
        )
        assert code == 0, output
        assert "about 4,000 rows" in output
        needed.append(numbers(output, "disk")[0])
    assert needed[0] == pytest.approx(needed[1], rel=0.1)
    # The first rows alone would need twice as much, and be refused.
    free(monkeypatch, round(needed[0] * 1e6))
    command = [
        "prepare",
        "text2text",
        "--source",
        str(tmp_path / "before.parquet"),
        "--tokenizer",
        str(SAMPLE),
        *arguments,
    ]
    result = CliRunner().invoke(cli.main, [*command, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("text", ["", "free", "-1", "0.07+", "0.07 0.011"])
def test_a_price_is_one_number_or_two(text: str) -> None:
    with raises(UsageError, "option.malformed"):
        estimates.parse_price(text)
    assert estimates.parse_price(" .5") == Price(0.5)


def dry(*arguments: str | Path, task: str = "so_quality") -> tuple[int, str]:
    command = ["prepare", task, "--tokenizer", str(SAMPLE), *map(str, arguments), "--dry-run"]
    result = CliRunner().invoke(cli.main, command, catch_exceptions=False)
    return result.exit_code, result.output


def numbers(output: str, name: str) -> list[float]:
    """The numbers of a line of what is said, but for those of its path: pytest's folders are numbered."""
    (line,) = re.findall(rf"^  {name} +(.*)$", output, re.MULTILINE)
    line = re.sub(r"(?<!\S)/\S+", "", line)
    return [float(number.replace(",", "")) for number in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", line)]


@pytest.mark.parametrize("packed", [False, True])
def test_the_rows_of_a_file_in_utf_16_are_not_told_twice(packed: bool, tmp_path: Path) -> None:
    lines = "".join(f"{number} row of some words\n" for number in range(20_000)).encode("utf-16")
    path = tmp_path / f"rows.txt{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(lines) if packed else lines)
    _, output = dry("--source", path, "--out", tmp_path / "out", task="span_corruption")
    assert 18_000 < numbers(output, "reads")[-1] < 22_000


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_a_dry_run_says_what_will_be_and_writes_nothing(tmp_path: Path, form: str) -> None:
    """Files that differ: of one all rows are rejected. What a sample says is about what a run makes."""
    folder = tmp_path / "rows"
    folder.mkdir()
    draw = random.Random(0)
    rows = [dict(row, Body=" ".join(f"{draw.getrandbits(20):x}" for _ in range(60))) for row in questions(4000)]
    for name, file_rows in (
        ("a", rows[:2000]),
        ("b", [dict(row, Y="") for row in rows[2000:3000]]),
        ("c", rows[3000:]),
    ):
        text = write_csv(folder / f"{name}.csv", file_rows).read_bytes()
        if form != "csv":
            (folder / f"{name}.csv").unlink()
        if form == "csv.gz":
            (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text))
        if form == "parquet":
            pq.write_table(pa.Table.from_pylist(file_rows), folder / f"{name}.parquet", compression="gzip")
    files = f"{folder}/*.{form}"
    columns = ("--inputs-column", "Body", "--targets-column", "Y")
    code, output = dry("--source", files, *columns, "--out", tmp_path / "out", "--workers", "1", task="text2text")
    assert code == 0, output
    assert not (tmp_path / "out").exists()
    assert "empty target" in output
    assert numbers(output, "a sample")[0] < 3000  # of a row group too
    assert "--dry-run" not in output.splitlines()[-1]
    options = {"inputs_column": "Body", "targets_column": "Y"}
    manifest = prepared(files, tmp_path / "out", tokenizer=SAMPLE, task="text2text", options=options)
    count, _, about = numbers(output, "reads")
    assert count == 3
    assert about == pytest.approx(4000, rel=0.2)
    written = sum(shard.bytes for split in manifest.splits.values() for shard in split.shards)
    assert numbers(output, "writes")[0] * (1e6 if " MB into" in output else 1e3) == pytest.approx(written, rel=0.35)


def test_a_file_is_sampled_at_many_places(tmp_path: Path) -> None:
    """Long rows first, then short ones: its beginning says nothing of the rest."""
    draw, source = random.Random(0), tmp_path / "rows.jsonl"
    texts = [" ".join(f"{draw.getrandbits(20):x}" for _ in range(size)) for size in [4000] * 100 + [40] * 10_000]
    source.write_text("".join(json.dumps({"text": text, "number": "one"}) + "\n" for text in texts))
    columns = ("--inputs-column", "text", "--targets-column", "number")
    code, output = dry("--source", source, *columns, "--out", tmp_path / "out", "--workers", "1", task="text2text")
    assert code == 0, output
    assert numbers(output, "reads")[-1] == pytest.approx(10_100, rel=0.2)


@pytest.mark.parametrize("form", ["array", "long rows"])
def test_a_file_of_one_line_or_of_few_is_not_read_whole_or_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    read = 0

    class CountingFile(io.FileIO):
        def readline(self, size: int = -1) -> bytes:  # type: ignore[override]
            nonlocal read
            line = super().readline(size)
            read += len(line)
            return line

    monkeypatch.setattr(estimates.sources, "open_random", lambda file: CountingFile(file.path))
    monkeypatch.setattr(estimates, "_LONGEST_LINE", 1 << 17)
    words = "some words " * (1 if form == "array" else 10_000)
    rows = [{"text": words + str(number), "number": "one"} for number in range(20_000 if form == "array" else 6)]
    source = tmp_path / "rows.json"
    source.write_text(json.dumps(rows) if form == "array" else "".join(json.dumps(row) + "\n" for row in rows))
    columns = ("--inputs-column", "text", "--targets-column", "number")
    code, output = dry("--source", source, *columns, "--out", tmp_path / "out", "--workers", "1", task="text2text")
    assert code == 0, output
    assert numbers(output, "reads")[-1] == pytest.approx(len(rows), rel=0.2)
    assert read <= (1 << 17 if form == "array" else source.stat().st_size)


def test_a_row_group_without_rows_is_no_sample(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(questions(400))
    (tmp_path / "rows").mkdir()
    pq.write_table(rows.slice(0, 0), tmp_path / "rows" / "a.parquet")
    pq.write_table(rows, tmp_path / "rows" / "b.parquet")
    columns = ("--inputs-column", "Body", "--targets-column", "Y")
    code, output = dry(
        "--source", tmp_path / "rows", *columns, "--out", tmp_path / "out", "--workers", "1", task="text2text"
    )
    assert code == 0, output
    assert numbers(output, "reads")[0] == 2


def test_sketches_of_near_duplicates_need_disk_too(source: Path, tmp_path: Path) -> None:
    arguments = ("--source", source, "--out", tmp_path / "out", "--workers", "1")
    _, plain = dry(*arguments)
    _, searched = dry(*arguments, "--dedup", "near")
    without_sketches, with_sketches = (
        float(re.findall(r"needs (\S+) kB while", output)[0]) for output in (plain, searched)
    )
    assert with_sketches > without_sketches


def test_a_dry_run_refuses_what_the_run_would_refuse(source: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    code, output = dry("--source", source, "--out", tmp_path / "full")
    assert code == 1
    assert_error(output, "output.foreign-file", "thesis.txt")
    code, output = dry("--source", source, "--out", tmp_path / "out", "--workers", "1", "--memory", "1MB")
    assert code == 1
    assert_error(output, "option.out-of-range", "--memory ")


def test_what_an_engine_costs_is_said(source: Path, tmp_path: Path) -> None:
    code, output = dry("--source", source, "--out", tmp_path / "out", "--runner", "dataflow", "--price", "2+0.01")
    assert code == 0
    assert "vCPU-hours" in output
    assert re.search(r"^  cost +\d+\.\d\d to \d+\.\d\d$", output, re.MULTILINE)
