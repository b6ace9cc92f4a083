"""The corpora of the seeds in the shape their hosts publish them in, small, and tokenizers under their names."""

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servers.internet import Internet
from servers.kaggle import zip_of
from t5prep.sources import sample

CLASSES = ("LQ_CLOSE", "LQ_EDIT", "HQ")
TOKENIZERS = (
    "google-t5/t5-base",
    "allenai/unifiedqa-v2-t5-base-1363200",
    "dumitrescustefan/mt5-base-romanian",
)


def parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer, row_group_size=3)
    return buffer.getvalue()


def hub_splits(
    folder: str, train: list[dict[str, Any]], validation: list[dict[str, Any]], test: list[dict[str, Any]]
) -> dict[str, bytes]:
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


def questions(count: int, first: int) -> bytes:
    rows = [
        f"{n},How to sort {n} things?,<p>I tried {n} ways.</p>,<x>,now,{CLASSES[n % 3]}"
        for n in range(first, first + count)
    ]
    return "\n".join(["Id,Title,Body,Tags,CreationDate,Y", *rows, ""]).encode()


def italian_like(number: int) -> str:
    """A text of made-up words, enough for a small tokenizer to be trained on."""
    draw = random.Random(number)
    syllables = [c + v for c in "bcdfglmnprstvz" for v in "aeiou"]
    return " ".join("".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(120)).capitalize() + "."


def publish(internet: Internet) -> None:
    """Puts every corpus that a task names itself, and the seeds' tokenizers, where they are asked for."""
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
    files = {"train.csv": questions(30, 0), "valid.csv": questions(9, 30)}
    internet.kaggle.publish("imoore/60k-stack-overflow-questions-with-quality-rate", files, version=2)
    italian = [{"text": italian_like(n), "url": f"https://example.org/{n}"} for n in range(60)]
    splits = {"train": parquet(italian[:50]), "validation": parquet(italian[50:])}
    converted = {f"{size}/{name}/0000.parquet": rows for size in ("tiny", "full") for name, rows in splits.items()}
    hub("gsarti/clean_mc4_it", {"clean_mc4_it.py": b"# too"}, branches={"refs/convert/parquet": converted})
    model = sample.tokenizer_path().read_bytes()
    for name in TOKENIZERS:
        internet.hub.models[name] = {"spiece.model": model}
