"""Before a preparation begins, it says what it needs of a disk and what an engine costs, and what cannot fit is refused."""

from pathlib import Path

import pytest
from preparing import prepared, questions, write_csv

from pipelines import estimates
from pipelines.estimates import Price
from t5prep.errors import OutputError, UsageError
from t5prep.sources import sample

SAMPLE = sample.tokenizer_path()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "rows.csv", questions(400))


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(estimates, "free_bytes", lambda place: size)


def test_what_cannot_fit_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 100_000)
    with pytest.raises(
        OutputError, match=r"no space for all of it: about \S+ kB of records; .*out needs .* --limit ROWS"
    ):
        prepared(source, tmp_path / "out", tokenizer=SAMPLE)
    assert not (tmp_path / "out" / "manifest.json").exists()
    prepared(source, tmp_path / "out", tokenizer=SAMPLE, limit=20)


def test_what_the_estimate_says_is_about_what_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    free(monkeypatch, 500_000)
    made = prepared(source, tmp_path / "out", tokenizer=SAMPLE)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("disk: ")]
    written = sum(shard.bytes for split in made.splits.values() for shard in split.shards) / 1000
    said = float(line.split()[2])
    assert line.split()[3] == "kB"
    assert 0.9 * written < said < 1.1 * written


def test_a_run_that_surely_fits_says_nothing(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prepared(source, tmp_path / "out", tokenizer=SAMPLE)
    assert "disk: " not in capfd.readouterr().err


def test_free_space_is_asked_where_a_folder_will_be(tmp_path: Path) -> None:
    here = estimates.free_bytes(tmp_path)
    assert estimates.free_bytes(tmp_path / "not" / "yet") == pytest.approx(here, rel=0.1)


@pytest.mark.parametrize("text", ["", "free", "-1", "0.07+", "0.07 0.011"])
def test_a_price_is_one_number_or_two(text: str) -> None:
    with pytest.raises(UsageError, match=r"--price .* 0\.07\+0\.011"):
        estimates.parse_price(text)
    assert estimates.parse_price(" .5") == Price(0.5)
