"""Make the page of a prepared dataset, from the manifest, rejected.jsonl and the first records."""

import collections
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t5prep.dataset import inspect_records, manifest
from t5prep.dataset.manifest import Manifest
from t5prep.errors import DatasetError, TokenizerError
from t5prep.io import paths
from t5prep.plan import lengths
from t5prep.prepare import record_counts
from t5prep.report import characters, charts, pages, record_sample, tokens
from t5prep.report.record_sample import Drawn
from t5prep.tokens import newlines
from t5prep.tokens.tokenizer import Tokenizer

# How many lines of rejected.jsonl are searched for examples, and how many examples of each reason are shown.
_LINES, _EXAMPLES = 200_000, 3
_LABELS = 20


def page(data: str | Path, *, tokenizer: str | None = None) -> str:
    """Return the page of a dataset. Without its tokenizer the page has no decoded records, and says so.

    Raises DatasetError, OutputError.
    """
    made = manifest.load(data)
    data = manifest.folder_of(data) or "."
    if not made.splits:
        raise DatasetError(f"{data} has no split, so there is nothing to show. Prepare it again.")
    first = "train" if "train" in made.splits else next(iter(made.splits))
    drawn: list[Drawn] = []
    why = ""
    words: Tokenizer | None = None
    try:
        words = inspect_records.open_tokenizer(made, tokenizer)
    except TokenizerError as error:
        if tokenizer:
            raise
        why = str(error)
    if words:
        order = [first, *(split for split in made.splits if split != first)]
        drawn = [record_sample.draw(data, made, words, split=split, tokenizer=tokenizer) for split in order[:3]]
    return pages.render(
        "dataset.html",
        title=f"{made.settings.task} · t5prep",
        made=made,
        ledger=made.ledger,
        records=sum(split.records for split in made.splits.values()),
        bytes=sum(shard.bytes for split in made.splits.values() for shard in split.shards),
        documents=sum(split.lengths.get("documents", 0) for split in made.splits.values()),
        packed={name: split.lengths["packed"] for name, split in made.splits.items() if "packed" in split.lengths},
        charts=_charts(made),
        choices=_choices(made, first),
        first=first,
        marker=record_sample.marked(made) and bool(made.ledger["inputs"]["rows_cut"]),
        kept_newlines=newlines.SENTINEL if made.settings.keep_newlines else "",
        labels=_labels(made),
        characters=characters.look(made, words) if words else None,
        drawn=drawn,
        why=why,
        rejected=list(_rejected(data, made)),
        pieces=lambda record: _pieces(record, made, words),
    )


def _charts(made: Manifest) -> dict[str, str]:
    before: collections.Counter[int] = collections.Counter()
    targets: collections.Counter[int] = collections.Counter()
    steps = record_counts.STEPS
    for split in made.splits.values():
        steps = tuple(split.lengths["step"])
        before.update(dict(split.lengths["inputs_before"]))
        for _, target, number in split.lengths["joint"]:
            targets[target] += number
    drawn = {
        "inputs": charts.histogram(
            before, step=steps[0], limit=made.settings.input_length, what="tokens of an input, before cutting"
        ),
    }
    if len(targets) > 1:  # a single bar (targets of one length, such as classes) shows nothing
        drawn["targets"] = charts.histogram(
            targets, step=steps[1], limit=made.settings.target_length, what="tokens of a target, as kept"
        )
    for name, split in made.splits.items():
        if len(split.shards) > 1:
            unit, called = (1e6, "MB") if max(shard.bytes for shard in split.shards) >= 1e6 else (1e3, "kB")
            drawn[f"shards {name}"] = charts.steps(
                [shard.bytes / unit for shard in split.shards], what=f"shards, {called} each", name=name
            )
    return drawn


def _choices(made: Manifest, split: str) -> list[lengths.Choice]:
    """Return ways to lay out an epoch, with the padding of each. Every position counts the same cost."""
    joint = lengths.histogram(made.splits[split], where=f"the split {split}")
    prepared = made.settings.input_length, made.settings.target_length
    return lengths.choices(joint, prepared=prepared, cost=lambda inputs, targets: inputs + targets)


def _labels(made: Manifest) -> list[tuple[str, dict[str, int]]]:
    """Return the labels, the most frequent first, each with its number of records in every split."""
    total: collections.Counter[str] = collections.Counter()
    for split in made.splits.values():
        total.update(split.labels)
    ranked = sorted(total, key=lambda label: (-total[label], label))[:_LABELS]
    return [(label, {name: split.labels.get(label, 0) for name, split in made.splits.items()}) for label in ranked]


def _rejected(data: str | Path, made: Manifest) -> Iterator[tuple[str, int, list[dict[str, Any]]]]:
    """Yield the reasons of rejection, the most frequent first, each with its count and its first rows."""
    examples: dict[str, list[dict[str, Any]]] = {reason: [] for reason in made.rejected}
    wanted = {reason: min(number, _EXAMPLES) for reason, number in made.rejected.items()}
    if made.rejected:
        for line in _lines(data):
            reason = str(line.get("reason", "")).partition(":")[0]
            if len(examples.get(reason, [])) < wanted.get(reason, 0):
                examples[reason].append(line)
                if all(len(examples[reason]) == count for reason, count in wanted.items()):
                    break
    for reason, number in sorted(made.rejected.items(), key=lambda item: (-item[1], item[0])):
        yield reason, number, examples[reason]


def _lines(data: str | Path) -> Iterator[dict[str, Any]]:
    try:
        with paths.opened(paths.at(data, "rejected.jsonl")) as file:
            for _, line in zip(range(_LINES), file, strict=False):
                try:
                    said = json.loads(line)
                except ValueError:
                    continue  # a damaged line is left out of the page
                if isinstance(said, dict):
                    yield said
    except FileNotFoundError:
        return


def _pieces(record: inspect_records.Shown, made: Manifest, words: Tokenizer | None) -> dict[str, list[tokens.Piece]]:
    assert words is not None, "records are only drawn with a tokenizer"
    marker = words.sentinel(1) if record_sample.marked(made) else None
    return {
        "input": tokens.inputs(record.input_ids, words, marker=marker),
        "target": tokens.labels(record.labels, words),
    }
