"""Every task from the address it names itself, in the shape its host publishes it in."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from preparing import by_id
from servers.internet import Internet
from servers.kaggle import zip_of

from t5prep import cli


def parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer, row_group_size=3)
    return buffer.getvalue()


def hub_splits(folder: str, train: list[dict[str, Any]], validation: list[dict[str, Any]], test: list[dict[str, Any]]):
    """Files as the Hub names them, a row group for every three rows."""
    splits = {"train": train, "validation": validation, "test": test}
    return {f"{folder}/{name}-00000-of-00001.parquet": parquet(rows) for name, rows in splits.items() if rows}


def sentences(count: int, label: int | None = None) -> list[dict[str, Any]]:
    return [
        {"sentence": f"film number {n} ", "label": n % 2 if label is None else label, "idx": n} for n in range(count)
    ]


def concepts(sets: int, word: str, target: str | None = None) -> list[dict[str, Any]]:
    return [
        {
            "concept_set_idx": n,
            "concepts": [f"{word}{n}", "rain"],
            "target": f"Rain {m} falls on {word}{n}." if target is None else target,
        }
        for n in range(sets)
        for m in range(2)
    ]


def translations(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"translation": {"en": f"House {n}.", "ro": f"Casă {n}."}} for n in range(first, first + count)]


def articles(count: int, word: str) -> list[dict[str, Any]]:
    return [
        {"article": f"It rained on day {n}. " * 5, "highlights": f"Rain, {n}.", "id": f"{word}{n}"}
        for n in range(count)
    ]


def romanian(count: int) -> list[dict[str, Any]]:
    return [{"text": f"Soarele răsare în țară a {n} oară."} for n in range(count)]


def webis() -> bytes:
    header = "id,question,question_processed,context,context_processed,answer,answer_processed\n"
    files = {}
    for split, count in (("train", 12), ("valid", 4)):
        rows = (f"{split}{n},Why {n}?,why {n}?,It is {n}.,it is {n}.,So {n}\tThus {n},so\n" for n in range(count))
        files[f"input/original-splits/squad2_{split}_original_split.csv"] = (header + "".join(rows)).encode()
        files[f"input/original-splits/eli5_{split}_original_split.csv"] = b"id,question\nx,\n"
        files[f"input/random-splits/squad2_{split}_random_split.csv"] = b"id,question\nx,\n"
    return zip_of(files)


def publish(internet: Internet) -> None:
    hub = internet.hub.publish
    glue = {**hub_splits("sst2", sentences(20), sentences(7), sentences(5, label=-1)), **hub_splits("cola", [], [], [])}
    hub("nyu-mll/glue", {**glue, "cola/train-00000-of-00001.parquet": parquet([{"sentence": "x", "label": 0}])})
    hub("allenai/common_gen", hub_splits("data", concepts(6, "a"), concepts(4, "b"), concepts(3, "c", target="")))
    hub("wmt/wmt16", hub_splits("ro-en", translations(10), translations(4, 10), translations(4, 20)))
    hub("abisee/cnn_dailymail", hub_splits("3.0.0", articles(9, "a"), articles(3, "b"), articles(2, "c")))
    script = {"diacritic.py": b"# a loading script", "README.md": b"A corpus."}
    folders = {"v1/train": romanian(10), "v1/validation": romanian(4)}
    converted = {f"{folder}/0000.parquet": parquet(rows) for folder, rows in folders.items()}
    hub("dumitrescustefan/diacritic", script, branches={"refs/convert/parquet": converted})
    internet.zenodo.publish(7186761, {"Webis-CausalQA-22-v-1.0.zip": webis()})


@pytest.mark.parametrize(
    ("name", "splits", "rejected"),
    [
        pytest.param("sst2", {"train": 20, "validation": 7}, {"hidden label": 5}, marks=pytest.mark.slow),
        ("common_gen", {"train": 12, "validation": 4}, {"no sentence": 6}),
        pytest.param("translate_en_ro", {"train": 10, "validation": 4, "test": 4}, {}, marks=pytest.mark.slow),
        pytest.param("summarize", {"train": 9, "validation": 3, "test": 2}, {}, marks=pytest.mark.slow),
        pytest.param("diacritics_ro", {"train": 10, "validation": 4}, {}, marks=pytest.mark.slow),
        ("causal_qa", {"train": 12, "validation": 4}, {}),
    ],
)
def test_a_task_prepares_from_its_own_address(
    internet: Internet, tmp_path: Path, name: str, splits: dict[str, int], rejected: dict[str, int]
):
    publish(internet)
    arguments = [name, "--tokenizer", "sample:", "--out", str(tmp_path / "out"), "--workers", "1", "--json"]
    done = CliRunner().invoke(cli.main, ["prepare", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    made = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {split: said["records"] for split, said in made["splits"].items()} == splits
    assert made["rejected"] == rejected
    if name == "common_gen":
        assert by_id(tmp_path / "out")["b1 rain"]["references"] == [b"Rain 0 falls on b1.", b"Rain 1 falls on b1."]
