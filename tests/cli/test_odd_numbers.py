"""Numbers and terminals as nobody has them are no traceback."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from preparing import prepared, questions, write_csv

from t5prep.cli import main

HUGE = "9" * 23


def test_inspect_takes_any_number_of_records_on_any_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    prepared(write_csv(tmp_path / "rows.csv", questions(6)), data, tokenizer="sample:", splits={"train": 1.0})
    monkeypatch.setenv("COLUMNS", "1")
    result = CliRunner().invoke(main, ["inspect", str(data), "-n", HUGE])
    assert (result.exit_code, result.stdout.count("── ")) == (0, 6)


def test_a_seed_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    words = ["tokenizer", "train", "--source", "sample:", "--column", "Body", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, [*words, "--seed", HUGE])
    assert (result.exit_code, "Traceback" in result.output) == (2, False)
