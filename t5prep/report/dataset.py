"""Make the page of a prepared dataset, from the manifest, rejected.jsonl and the first records."""

import collections
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t5prep.dataset import inspect_records, manifest, rejected_rows
from t5prep.dataset.manifest import Manifest
from t5prep.errors import DatasetError, TokenizerError
from t5prep.io import paths
from t5prep.plan import lengths
from t5prep.prepare import record_counts
from t5prep.report import characters, charts, pages, record_sample, tokens
from t5prep.report.record_sample import Drawn
from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.tokenizer import Tokenizer

# How many lines of rejected.jsonl are searched for examples, and how many examples of each reason are shown.
_LINES, _EXAMPLES = 200_000, 3
_LABELS = 20


def page(data: str | Path, *, tokenizer: str | None = None) -> str:
    """Return the page of a dataset. Without its tokenizer the page has no decoded records, and says so.

    Raises DatasetError, OutputError.
    """
    dataset_manifest = manifest.load(data)
    data = manifest.folder_of(data) or "."
    if not dataset_manifest.splits:
        raise DatasetError(f"{data} has no split, so there is nothing to show. Prepare it again.")
    first = "train" if "train" in dataset_manifest.splits else next(iter(dataset_manifest.splits))
    drawn: list[Drawn] = []
    why = ""
    loaded_tokenizer: Tokenizer | None = None
    try:
        loaded_tokenizer = inspect_records.open_tokenizer(dataset_manifest, tokenizer)
    except TokenizerError as error:
        if tokenizer:
            raise
        why = str(error)
    if loaded_tokenizer:
        order = [first, *(split for split in dataset_manifest.splits if split != first)]
        drawn = [
            record_sample.draw(data, dataset_manifest, loaded_tokenizer, split=split, tokenizer=tokenizer)
            for split in order[:3]
        ]
    return pages.render(
        "dataset.html",
        title=f"{dataset_manifest.settings.task} · t5prep",
        manifest=dataset_manifest,
        ledger=dataset_manifest.ledger,
        records=sum(split.records for split in dataset_manifest.splits.values()),
        bytes=sum(shard.bytes for split in dataset_manifest.splits.values() for shard in split.shards),
        documents=sum(split.lengths.get("documents", 0) for split in dataset_manifest.splits.values()),
        packed={
            name: split.lengths["packed"]
            for name, split in dataset_manifest.splits.items()
            if "packed" in split.lengths
        },
        charts=_charts(dataset_manifest),
        choices=_choices(dataset_manifest, first),
        first=first,
        marker=record_sample.marked(dataset_manifest) and bool(dataset_manifest.ledger["inputs"]["rows_cut"]),
        kept_newlines=newlines.SENTINEL if dataset_manifest.settings.keep_newlines else "",
        labels=_labels(dataset_manifest),
        characters=characters.look(dataset_manifest, loaded_tokenizer) if loaded_tokenizer else None,
        drawn=drawn,
        why=why,
        rejected=list(_rejected(data, dataset_manifest)),
        pieces=lambda record: _pieces(record, dataset_manifest, loaded_tokenizer),
    )


def _charts(dataset_manifest: Manifest) -> dict[str, str]:
    before: collections.Counter[int] = collections.Counter()
    targets: collections.Counter[int] = collections.Counter()
    steps = record_counts.STEPS
    for split in dataset_manifest.splits.values():
        steps = tuple(split.lengths["step"])
        before.update(dict(split.lengths["inputs_before"]))
        for _, target, number in split.lengths["joint"]:
            targets[target] += number
    drawn = {
        "inputs": charts.histogram(
            before,
            step=steps[0],
            limit=dataset_manifest.settings.input_length,
            what="tokens of an input, before cutting",
        ),
    }
    if len(targets) > 1:  # a single bar (targets of one length, such as classes) shows nothing
        drawn["targets"] = charts.histogram(
            targets, step=steps[1], limit=dataset_manifest.settings.target_length, what="tokens of a target, as kept"
        )
    for name, split in dataset_manifest.splits.items():
        if len(split.shards) > 1:
            unit, called = (1e6, "MB") if max(shard.bytes for shard in split.shards) >= 1e6 else (1e3, "kB")
            drawn[f"shards {name}"] = charts.steps(
                [shard.bytes / unit for shard in split.shards], what=f"shards, {called} each", name=name
            )
    return drawn


def _choices(dataset_manifest: Manifest, split: str) -> list[lengths.Choice]:
    """Return ways to lay out an epoch, with the padding of each. Every position counts the same cost."""
    joint = lengths.histogram(dataset_manifest.splits[split], where=f"the split {split}")
    prepared = dataset_manifest.settings.input_length, dataset_manifest.settings.target_length
    return lengths.choices(joint, prepared=prepared, cost=lambda inputs, targets: inputs + targets)


def _labels(dataset_manifest: Manifest) -> list[tuple[str, dict[str, int]]]:
    """Return the labels, the most frequent first, each with its number of records in every split."""
    total: collections.Counter[str] = collections.Counter()
    for split in dataset_manifest.splits.values():
        total.update(split.labels)
    ranked = sorted(total, key=lambda label: (-total[label], label))[:_LABELS]
    return [
        (label, {name: split.labels.get(label, 0) for name, split in dataset_manifest.splits.items()})
        for label in ranked
    ]


def _rejected(data: str | Path, dataset_manifest: Manifest) -> Iterator[tuple[str, int, list[dict[str, Any]]]]:
    """Yield the reasons of rejection, the most frequent first, each with its count and its first rows."""
    examples: dict[str, list[dict[str, Any]]] = {reason: [] for reason in dataset_manifest.rejected}
    wanted = {reason: min(number, _EXAMPLES) for reason, number in dataset_manifest.rejected.items()}
    if dataset_manifest.rejected:
        for line in _lines(data, dataset_manifest):
            reason = str(line.get("reason", "")).partition(":")[0]
            if len(examples.get(reason, [])) < wanted.get(reason, 0):
                examples[reason].append(line)
                if all(len(examples[reason]) == count for reason, count in wanted.items()):
                    break
    for reason, number in sorted(dataset_manifest.rejected.items(), key=lambda item: (-item[1], item[0])):
        yield reason, number, examples[reason]


def _lines(data: str | Path, dataset_manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Yield the first rejected rows; where they are in many files, the first of the first file."""
    name = dataset_manifest.rejected_file.name if dataset_manifest.rejected_file else rejected_rows.NAME
    try:
        with paths.opened(paths.at(data, rejected_rows.names_of(name)[0])) as file:
            for _, line in zip(range(_LINES), file, strict=False):
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # a damaged line is left out of the page
                if isinstance(row, dict):
                    yield row
    except FileNotFoundError:
        return


def _pieces(
    record: inspect_records.Shown, dataset_manifest: Manifest, loaded_tokenizer: Tokenizer | None
) -> dict[str, list[tokens.Piece]]:
    assert loaded_tokenizer is not None, "records are only drawn with a tokenizer"
    marker = loaded_tokenizer.sentinel(1) if record_sample.marked(dataset_manifest) else None
    target = tokens.labels(record.labels, loaded_tokenizer)
    if dataset_manifest.settings.target == "class":
        target = [tokens.Piece(record.targets, "text", f"class {record.labels[0]}")]
    return {"input": tokens.inputs(record.input_ids, loaded_tokenizer, marker=marker), "target": target}
