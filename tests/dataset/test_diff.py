"""diff: every kind of difference is found, counted and named, and nothing else."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from preparing import prepared, questions, write_csv

from t5prep.cli import main
from t5prep.dataset import diff
from t5prep.errors import DatasetError


def _make(folder: Path, name: str, rows: list[dict[str, str]], **choices: object) -> Path:
    write_csv(folder / f"{name}.csv", rows)
    prepared(folder / f"{name}.csv", folder / name, tokenizer="sample:", input_length=64, **choices)
    return folder / name


def test_the_same_dataset_is_equal_wherever_its_source_lay(tmp_path: Path) -> None:
    one = _make(tmp_path, "one", questions(30))
    (tmp_path / "elsewhere").mkdir()
    write_csv(tmp_path / "elsewhere" / "one.csv", questions(30))
    prepared(tmp_path / "elsewhere" / "one.csv", tmp_path / "two", tokenizer="sample:", input_length=64)
    found = diff.diff(one, tmp_path / "two")
    assert found.equal
    assert found.same == 30
    assert [change.field for change in found.manifest] == ["source.uri"]
    assert not any(map(diff.decides, found.manifest))


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_every_kind_of_difference_is_counted_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, layout: str
) -> None:
    monkeypatch.setattr(diff, "PART", 60 // parts)
    rows = questions(60)
    other = [dict(row) for row in rows[2:]] + [{**row, "Id": f"new{row['Id']}"} for row in questions(3)]
    other[5]["Title"] = "Another title"
    layout_choices = {"layout": layout, "target_length": 8}
    one = _make(tmp_path, "one", rows, **layout_choices)
    two = _make(tmp_path, "two", other, **layout_choices)
    found = diff.diff(one, two)
    assert not found.equal
    assert sorted(found.gone.first) == ["1000", "1001"]
    assert sorted(found.added.first) == ["new1000", "new1001", "new1002"]
    assert found.changed.first == [other[5]["Id"]]
    assert (found.gone.count, found.added.count, found.changed.count, found.moved.count) == (2, 3, 1, 0)
    assert found.same == 57


def test_other_shards_and_another_seed_are_the_same_examples(tmp_path: Path) -> None:
    one = _make(tmp_path, "one", questions(40), shards=1)
    two = _make(tmp_path, "two", questions(40), shards=3)
    found = diff.diff(one, two)
    assert not found.equal
    assert found.same == 40
    assert "splits.train.shards" in {change.field for change in found.manifest}
    three = diff.diff(one, _make(tmp_path, "three", questions(40), shards=1, seed=5))
    assert three.moved.count
    assert three.same + three.moved.count == 40
    assert not three.added.count + three.gone.count + three.changed.count


def test_equal_shards_are_read_once(tmp_path: Path) -> None:
    rows = questions(40)
    one = _make(tmp_path, "one", rows, shards=4, splits={"train": 1.0})
    rows[0]["Title"] = "Another"
    two = _make(tmp_path, "two", rows, shards=4, splits={"train": 1.0})
    read: list[int] = []
    found = diff.diff(one, two, started=read.append)
    assert found.changed.first == ["1000"]
    assert found.same == 39
    sizes = sum(path.stat().st_size for data in (one, two) for path in data.glob("*.tfrecord-*"))
    assert sizes < read[0] < 1.5 * sizes


def test_only_ten_are_named(tmp_path: Path) -> None:
    found = diff.diff(_make(tmp_path, "one", questions(50)), _make(tmp_path, "two", questions(20)))
    assert found.gone.count == 30
    assert len(found.gone.first) == diff.NAMED


def test_the_command_prints_and_exits(tmp_path: Path) -> None:
    one, two = _make(tmp_path, "one", questions(20)), _make(tmp_path, "two", questions(21))
    run = CliRunner().invoke
    same = run(main, ["diff", str(one), str(one)])
    assert same.exit_code == 0
    assert same.output == "equal: 20 records are the same in both\n"
    other = run(main, ["diff", str(one), str(two)])
    assert other.exit_code == 1
    assert "only in B" in other.output
    assert "1: 1020" in other.output
    said = json.loads(run(main, ["diff", str(one), str(two), "--json"]).stdout)
    assert said["equal"] is False
    assert said["added"] == {"count": 1, "first": ["1020"]}
    assert {"field", "a", "b"} == set(said["manifest"][0])
    assert run(main, ["diff", str(one), str(tmp_path)]).exit_code == 1


def test_a_dataset_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no manifest\.json"):
        diff.diff(tmp_path, tmp_path)


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_damaged_shard_is_never_equal(tmp_path: Path, damage: str, side: int) -> None:
    """Two manifests may say the same of shards of which one is gone."""
    data = [_make(tmp_path, name, questions(30), shards=1) for name in ("one", "two")]
    shard = next(data[side].glob("train.tfrecord-*"))
    whole = shard.read_bytes()
    if damage == "missing":
        shard.unlink()
    else:
        shard.write_bytes(whole[:-1] if damage == "truncated" else whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    with pytest.raises(DatasetError, match=rf"{shard.name}"):
        diff.diff(*data)
