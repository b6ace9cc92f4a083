"""Counts agree with their nouns: one record, two records."""

import re
from pathlib import Path

from click.testing import CliRunner

from t5prep.cli import main


def test_one_of_each_is_singular(tmp_path: Path) -> None:
    """Summaries said "1 records" and "1 duplicates"."""
    (tmp_path / "a.csv").write_text("q,a\nwhy <b>not</b>,because\nwhy <b>not</b>,because\nwhen,\n")
    out, options = str(tmp_path / "out"), ["--inputs-column", "q", "--targets-column", "a", "--dedup", "exact"]
    words = ["prepare", "text2text", "--source", str(tmp_path / "a.csv"), "--tokenizer", "sample:", "--out", out]
    results = [CliRunner().invoke(main, [*words, *options, "--splits", "train=1", "--workers", "0"])]
    results += [CliRunner().invoke(main, words) for words in (["verify", out], ["table", out, str(tmp_path / "b.csv")])]
    text = "".join(result.output for result in results)
    assert [result.exit_code for result in results] == [0, 0, 0], text
    assert re.findall(r"\b1 (?:records|shards|examples|duplicates|rows|inputs|tokens|objects)\b", text) == []
    assert {"1 record", "1 shard", "1 example", "1 duplicate", "1 row"} <= set(re.findall(r"\b1 \w+", text)), text
