"""How many rows of a validation split have a copy in training, without --dedup, with exact and with near.

Counted by comparing every text with every other one that shares a run of words, on the records that were prepared:
PYTHONPATH=. python tests/benchmarks/bench_leaks.py ../shared/data
"""

import collections
import csv
import sys
import tempfile
from pathlib import Path
from typing import Any

import t5prep
from t5prep.dataset import tfrecord
from t5prep.prepare.near_duplicates.shingles import shingles
from t5prep.tasks.html import folded

SPLITS = {"train": 0.9, "validation": 0.1}
NEAR = 0.8  # Jaccard similarity of runs of five words


def corpora(data: Path) -> dict[str, tuple[dict[str, str], dict[str, Any]]]:
    """Name → the text of each id, and how it is prepared."""
    questions, phrases = data / "stackoverflow" / "questions_cp1252.csv", data / "sst2" / "train.tsv"
    with questions.open(encoding="cp1252", newline="") as file:
        texts = {row["Id"]: f"quality: {row['Title']}\n{row['Body']}" for row in csv.DictReader(file)}
    labels = {"labels": "LQ=low,HQ=high"}  # the sample has two of the set's three classes
    lines = phrases.read_text(encoding="utf-8").split("\n")[1:]
    sentences = {f"{phrases.name}:{number}": line.split("\t")[0] for number, line in enumerate(lines, 1)}
    return {
        "Stack Overflow": (texts, {"task": "so_quality", "source": str(questions), "encoding": "cp1252", **labels}),
        "SST-2": (sentences, {"task": "sst2", "source": str(phrases)}),
    }


def split_of(out: Path) -> dict[str, str]:
    """Id → split, of the records of a dataset."""
    made = t5prep.load(out)
    return {
        tfrecord.parse(record)["id"][0].decode(): name
        for name, split in made.splits.items()
        for shard in split.shards
        for record in tfrecord.read(open(out / shard.name, "rb"))
    }


def leaks(texts: dict[str, str], splits: dict[str, str]) -> tuple[int, int]:
    """How many rows of validation stand in training too: exactly, and nearly."""
    found = shingles([texts[id] for id in splits], words=5)
    runs = {
        id: frozenset(found.hashes[begin:end].tolist())
        for id, begin, end in zip(splits, found.begins, found.begins[1:], strict=False)
    }
    same, sharing = set(), collections.defaultdict(list)
    for id in (id for id, split in splits.items() if split == "train"):
        same.add(folded(texts[id]))
        for run in runs[id]:
            sharing[run].append(id)
    exact = near = 0
    for id in (id for id, split in splits.items() if split != "train"):
        exact += folded(texts[id]) in same
        shared = collections.Counter(other for run in runs[id] for other in sharing.get(run, ()))
        near += any(n >= NEAR * (len(runs[id]) + len(runs[other]) - n) for other, n in shared.items())
    return exact, near


def main(data: Path, names: list[str]) -> None:
    print("| corpus | --dedup | training | validation | of these in training too | nearly |\n|---|---|---|---|---|---|")
    for name, (texts, how) in corpora(data).items():
        for dedup in ("none", "exact", "near") if name in (names or [name]) else ():
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "out"
                t5prep.prepare(tokenizer="sample:", out=out, dedup=dedup, workers=0, splits=SPLITS, **how)
                splits = split_of(out)
            sizes = collections.Counter(splits.values())
            exact, near = leaks(texts, splits)
            print(
                f"| {name} | {dedup} | {sizes['train']:,} | {sizes['validation']:,} | {exact:,} | {near:,} |",
                flush=True,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
