"""diff: what two manifests say differently is shown, and decides whether the datasets are equal."""

import json
from pathlib import Path

from click.testing import CliRunner
from raised import raises
from small_corpora import prepared, questions, write_csv

from t5prep.cli import main
from t5prep.dataset import diff
from t5prep.errors import DatasetError


def _make(folder: Path, name: str, rows: list[dict[str, str]], **choices: object) -> Path:
    write_csv(folder / f"{name}.csv", rows)
    prepared(folder / f"{name}.csv", folder / name, tokenizer="sample:", input_length=64, **choices)
    return folder / name


def test_the_same_dataset_is_equal_wherever_its_source_lay(tmp_path: Path) -> None:
    first_dataset = _make(tmp_path, "one", questions(30))
    (tmp_path / "elsewhere").mkdir()
    write_csv(tmp_path / "elsewhere" / "one.csv", questions(30))
    prepared(tmp_path / "elsewhere" / "one.csv", tmp_path / "two", tokenizer="sample:", input_length=64)
    difference = diff.diff(first_dataset, tmp_path / "two")
    assert difference.equal
    assert [change.field for change in difference.manifest] == ["source.uri"]
    assert not any(map(diff.decides, difference.manifest))


def test_another_text_of_the_same_length_is_a_difference_of_shards(tmp_path: Path) -> None:
    rows = questions(30)
    first_dataset = _make(tmp_path, "one", rows)
    rows[3]["Title"], rows[4]["Title"] = rows[4]["Title"], rows[3]["Title"]
    difference = diff.diff(first_dataset, _make(tmp_path, "two", rows))
    assert not difference.equal
    assert any(change.field.endswith(".shards.sha256") for change in difference.manifest if diff.decides(change))


def test_other_settings_are_named(tmp_path: Path) -> None:
    first_dataset = _make(tmp_path, "one", questions(40), shards=1)
    difference = diff.diff(first_dataset, _make(tmp_path, "two", questions(40), shards=3, seed=5))
    changes = {change.field: (change.a, change.b) for change in difference.manifest}
    assert changes["settings.seed"] == (0, 5)
    assert changes["splits.train.shards"] == (1, 3)


def test_the_command_prints_and_exits(tmp_path: Path) -> None:
    first_dataset, second_dataset = _make(tmp_path, "one", questions(20)), _make(tmp_path, "two", questions(21))
    run = CliRunner().invoke
    equal_result = run(main, ["diff", str(first_dataset), str(first_dataset)])
    assert (equal_result.exit_code, equal_result.output) == (0, "equal\n")
    different_result = run(main, ["diff", str(first_dataset), str(second_dataset)])
    assert different_result.exit_code == 1
    assert "different" in different_result.output
    difference = json.loads(run(main, ["diff", str(first_dataset), str(second_dataset), "--json"]).stdout)
    assert difference["equal"] is False
    assert {"field", "a", "b"} == set(difference["manifest"][0])
    assert run(main, ["diff", str(first_dataset), str(tmp_path)]).exit_code == 1


def test_a_dataset_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with raises(DatasetError, "dataset.missing-manifest", "manifest.json"):
        diff.diff(tmp_path, tmp_path)
