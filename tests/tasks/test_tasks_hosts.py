"""Every task from the address it names itself, in the shape its host publishes it in."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from servers.corpora import publish
from servers.internet import Internet
from small_corpora import by_id

from t5prep import cli


@pytest.mark.parametrize(
    ("name", "splits", "rejected"),
    [
        pytest.param("sst2", {"train": 20, "validation": 7}, {"hidden label": 5}, marks=pytest.mark.slow),
        ("common_gen", {"train": 12, "validation": 4}, {"no sentence": 6}),
        pytest.param("translate_en_ro", {"train": 10, "validation": 4, "test": 4}, {}, marks=pytest.mark.slow),
        pytest.param("summarize", {"train": 9, "validation": 3, "test": 2}, {}, marks=pytest.mark.slow),
        pytest.param("diacritics_ro", {"train": 10, "validation": 4}, {}, marks=pytest.mark.slow),
        ("causal_qa", {"train": 12, "validation": 4}, {}),
        pytest.param("so_quality", {"train": 30, "validation": 9}, {}, marks=pytest.mark.slow),
    ],
)
def test_a_task_prepares_from_its_own_address(
    internet: Internet, tmp_path: Path, name: str, splits: dict[str, int], rejected: dict[str, int]
):
    """A task's own address, columns and splits, from servers that answer as its host does."""
    publish(internet)
    arguments = [name, "--tokenizer", "sample:", "--out", str(tmp_path / "out"), "--workers", "1", "--json"]
    result = CliRunner().invoke(cli.main, ["prepare", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {split: split_facts["records"] for split, split_facts in manifest["splits"].items()} == splits
    assert manifest["rejected"] == rejected
    if name == "common_gen":
        assert by_id(tmp_path / "out")["b1 rain"]["references"] == [b"Rain 0 falls on b1.", b"Rain 1 falls on b1."]
