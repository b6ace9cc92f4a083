"""Tiny prepared datasets, written without the pipeline, so that reading can be tested alone."""

import hashlib
from pathlib import Path

import numpy as np
import records_in_python

from t5prep.dataset import shard_files, tfrecord
from t5prep.dataset.manifest import (
    SCHEMA,
    Histogram,
    Ledger,
    Manifest,
    Shard,
    Source,
    Split,
    TaskFacts,
    Tokenizer,
    record_features,
)  # fmt: skip
from t5prep.dataset.settings import Settings

INPUT, TARGET = 8, 4
SHA = "f" * 64


def no_lengths() -> Histogram:
    return {"step": (16, 4), "joint": [], "inputs_before": []}


def nothing_cut() -> Ledger:
    inputs, targets = ({"rows_cut": 0, "tokens_lost": 0, "worst": []} for _ in range(2))
    return {"inputs": inputs, "targets": targets, "split": {}}


def write(
    out: Path,
    counts: dict[str, list[int]],
    *,
    layout: str = "padded",
    name: str = "toy",
    length: int = INPUT,
    every: int = 4,
    measured: bool = False,
) -> Manifest:
    """A dataset whose splits have shards of these many records. Record n of a split has the id `name/split/n`.

    With an index of pages of `every` records, or (0) without; `measured`: with the lengths of records beside it.
    """
    out.mkdir(parents=True, exist_ok=True)
    splits, pages, lengths = {}, [], {}
    for split, shards in counts.items():
        number, written = 0, []
        for shard, records in enumerate(shards):
            path = out / shard_files.name(split, shard, len(shards))
            framed = []
            for _ in range(records):
                framed.append(
                    records_in_python.frame(record(f"{name}/{split}/{number}", number, layout=layout, length=length))
                )
                number += 1
            content = b"".join(framed)
            sizes = np.fromiter(map(len, framed), np.int64)
            sides = [[tokens_of(record_number, length), 2] for record_number in range(number - records, number)]
            lengths.setdefault(split, []).append(shard_files.compressed(np.array(sides).reshape(-1, 2)))
            pages.append((split, shard, shard_files.page_sizes(sizes, every=every or 1).tobytes()))
            path.write_bytes(content)
            written.append(Shard(path.name, records, len(content), hashlib.sha256(content).hexdigest()))
        splits[split] = Split(number, {"inputs": 0, "targets": 0}, no_lengths(), 0.0, {}, {}, written)
    settings = Settings("toy", {}, length, TARGET, truncation="head", marker="none", layout=layout)
    manifest = Manifest(
        schema=SCHEMA,
        created_by="test",
        settings=settings,
        task=TaskFacts([], []),
        source=Source("file:toy", "1", [], "CC0-1.0", ""),
        tokenizer=Tokenizer("toy", SHA, 1000, 1152, 0, 1, 2),
        features=record_features(settings, references=True),
        ledger=nothing_cut(),
        splits=splits,
        rejected={},
        warnings=[],
        index=shard_files.write_index(
            str(out), (part for *_, part in sorted(pages)), every=dict.fromkeys(counts, every)
        )
        if every
        else None,
        lengths=shard_files.write_lengths(str(out), lengths, longest=length) if measured else None,
    ).sealed()
    (out / "manifest.json").write_text(manifest.dumps(), encoding="utf-8")
    return manifest


def record(name: str, number: int, *, layout: str, length: int = INPUT) -> bytes:
    """`input_ids` tell the record's number and are 3 to `length` long; labels are [number % 900 + 3, EOS]."""
    tokens = [number % 900 + 3] * (tokens_of(number, length) - 1) + [1]
    values = {"input_ids": tokens, "labels": [number % 900 + 3, 1]}
    if layout == "packed":
        values |= {"input_segment_ids": [1] * len(tokens), "input_positions": list(range(len(tokens)))}
        values |= {"label_segment_ids": [1, 1], "label_positions": [0, 1]}
    if layout != "ragged":
        for key, ids in values.items():
            size = TARGET if key.startswith("label") else length
            ids += [tfrecord.IGNORED_LABEL if key == "labels" else 0] * (size - len(ids))
    texts = {"id": [name.encode(), b"second"] if layout == "packed" else [name.encode()]}
    texts["references"] = [b"right"] * (number % 3)
    return records_in_python.example({**values, **texts})


def tokens_of(number: int, length: int) -> int:
    """How many input tokens a record has."""
    return 3 + number % (length - 2)
