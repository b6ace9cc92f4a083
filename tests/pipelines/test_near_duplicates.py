import json
import random
from pathlib import Path

import pytest
from small_corpora import bytes_of, prepared, records, rejected

WORDS = [f"word{i}" for i in range(2000)]
CHOICES = {"task": "text2text", "options": {"inputs_column": "text", "targets_column": "label", "id_column": "id"}}


def _rows(count: int = 300) -> list[dict[str, str]]:
    """Rows with texts of their own; of every tenth there is a copy with a word changed, and one in capitals."""
    rng = random.Random(0)
    rows = [
        {"id": f"id{i}", "text": " ".join(rng.choices(WORDS, k=50)), "label": ["even", "odd"][i % 2]}
        for i in range(count)
    ]
    changed = [
        {**row, "id": f"near-{row['id']}", "text": " ".join(["other", *row["text"].split()[1:]])} for row in rows[::10]
    ]
    uppercase_rows = [{**row, "id": f"same-{row['id']}", "text": row["text"].upper()} for row in rows[::10]]
    return rows + changed + uppercase_rows


def _write(path: Path, rows: list[dict[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _near(source: Path, out: Path, **choices: object) -> dict[str, bytes]:
    prepared(source, out, tokenizer="sample:", **CHOICES, dedup="near", **choices)
    return bytes_of(out)


def test_one_row_of_each_cluster_is_kept(tmp_path: Path) -> None:
    source = _write(tmp_path / "rows.jsonl", _rows())
    manifest = prepared(source, tmp_path / "out", tokenizer="sample:", **CHOICES, dedup="near")
    kept_ids = [record["id"][0].decode() for split in records(tmp_path / "out").values() for record in split]
    clusters = [f"id{i}" for i in range(0, 300, 10)]
    assert len(kept_ids) == 300
    assert sorted(id.split("-")[-1] for id in kept_ids) == sorted(f"id{i}" for i in range(300))
    assert manifest.rejected == {"near duplicate": 60}
    assert sum(split.rejected["near duplicate"] for split in manifest.splits.values()) == 60
    near = manifest.near_duplicates
    assert near is not None
    assert (near.clusters, [cluster.rows for cluster in near.largest]) == (30, [3] * 10)
    assert {cluster.id for cluster in near.largest} <= set(kept_ids)
    lines = rejected(tmp_path / "out")
    assert {line["id"].split("-")[-1] for line in lines} == set(clusters)
    assert not {line["id"] for line in lines} & set(kept_ids)
    for line in lines:
        assert line["reason"].startswith("near duplicate: kept is rows.jsonl:")
        (id,) = [id for id in kept_ids if f", id {id} (Jaccard similarity" in line["reason"]]
        assert id.split("-")[-1] == line["id"].split("-")[-1]
    assert near.across_splits > 0


def test_without_it_nothing_is_said_of_it(tmp_path: Path) -> None:
    source = _write(tmp_path / "rows.jsonl", _rows(30))
    manifest = prepared(source, tmp_path / "out", tokenizer="sample:", **CHOICES)
    assert manifest.near_duplicates is None
    assert manifest.rejected == {}


def test_shuffled_rows_give_the_same_shards(tmp_path: Path) -> None:
    rows = _rows()
    first = _near(_write(tmp_path / "one" / "rows.jsonl", rows), tmp_path / "out")
    reasons = {line["id"] for line in rejected(tmp_path / "out")}
    random.Random(1).shuffle(rows)
    second = _near(_write(tmp_path / "two" / "rows.jsonl", rows), tmp_path / "again")
    assert {line["id"] for line in rejected(tmp_path / "again")} == reasons
    # These name rows of the source, whose numbers are others.
    of_rows = {"manifest.json", "rejected.jsonl", "shards.origins"}
    for name in first.keys() - of_rows:
        assert first[name] == second[name]


def test_evaluation_keeps_the_text_that_training_has_nearly_too(tmp_path: Path) -> None:
    rows = _rows(20)
    text = rows[0]["text"]
    _write(tmp_path / "source" / "train.jsonl", [*rows[1:20], {**rows[0], "text": text + " and then"}])
    _write(tmp_path / "source" / "validation.jsonl", [{**rows[0], "id": "v"}])
    _near(tmp_path / "source", tmp_path / "out")
    assert [record["id"][0] for record in records(tmp_path / "out")["validation"]] == [b"v"]
    assert [line["id"] for line in rejected(tmp_path / "out")] == ["id0"]


@pytest.mark.parametrize("layout", ["packed", "ragged"])
def test_every_layout_leaves_them_out(layout: str, tmp_path: Path) -> None:
    _near(_write(tmp_path / "rows.jsonl", _rows(60)), tmp_path / "out", layout=layout)
    assert len(rejected(tmp_path / "out")) == 12


def test_kept_tokens_are_used_again(tmp_path: Path) -> None:
    source = _write(tmp_path / "rows.jsonl", _rows(60))
    first = _near(source, tmp_path / "out", cache=tmp_path / "kept")
    assert list((tmp_path / "kept").glob("*/*.arrow"))
    assert _near(source, tmp_path / "again", cache=tmp_path / "kept") == first


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path) -> None:
    """Clusters that span the blocks of several workers."""
    source = _write(tmp_path / "rows.jsonl", _rows(3000))
    first = _near(source, tmp_path / "out")
    for workers in (1, 2, 4):
        assert _near(source, tmp_path / f"by {workers}", workers=workers, memory=700 << 20) == first, workers
