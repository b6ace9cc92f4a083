"""Build the manifest of a finished preparation from what its steps counted."""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from t5prep import __version__
from t5prep.dataset import manifest, rejected_rows, targets
from t5prep.dataset.manifest import NearDuplicates
from t5prep.dataset.settings import Settings
from t5prep.dataset.shard_files import Index, Lengths
from t5prep.errors import BalanceError
from t5prep.prepare import manifest_warnings, record_counts
from t5prep.prepare.evaluation_leaks import Leaks
from t5prep.prepare.filters.chain import Chain
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.shards import ShardTotals, SplitTotals
from t5prep.prepare.sort_blocks import BlockTotals
from t5prep.sources import Resolved
from t5prep.tasks.registry import Definition
from t5prep.tasks.task import ChosenTask
from t5prep.tokens.tokenizer import Tokenizer


def assemble(
    settings: Settings,
    task: ChosenTask,
    *,
    facts: manifest.TaskFacts,
    source: Resolved,
    files: list[manifest.SourceFile],
    tokenizer: Tokenizer,
    written: ShardTotals,
    blocks: BlockTotals,
    rejected_file: rejected_rows.RejectedFile,
    rejected_for: Mapping[str, int],
    index: Index | None = None,
    lengths: Lengths | None = None,
    repeats: Repeats | None = None,
    leaks: Leaks | None = None,
    earlier: Mapping[str, str] = MappingProxyType({}),
) -> manifest.Manifest:
    """Return the sealed manifest. The same preparation gives the same manifest, whatever ran it.

    Raises BalanceError where a row is neither in a shard nor among those that were left out.
    """
    parts = dict(sorted(written.splits.items()))
    counted = {split: own.counts for split, own in parts.items()}
    total = sum(counted.values(), record_counts.Counts())
    labelled = record_counts.is_classification(total)
    splits = {
        split: _split(
            counts if labelled else dataclasses.replace(counts, labels=None), parts[split], tokenizer, settings, facts
        )
        for split, counts in counted.items()
    }
    rejected = _summed([*(split.rejected for split in splits.values()), blocks.reasons])
    rows = account(blocks, written)
    _check_balance(rows, splits, rejected, rejected_file)
    warnings = manifest_warnings.all_of(
        total,
        settings,
        label_name=functools.partial(targets.label_name, settings=settings, tokenizer=tokenizer, classes=facts.classes),
        splits=splits,
        rows_read=blocks.read - blocks.blank,
        rejected=rejected,
        rejected_for=rejected_for,
        hides_spans=facts.hides_spans,
        without_markup=task.without_markup,
    )
    return manifest.Manifest(
        schema=manifest.SCHEMA,
        created_by=f"t5prep {__version__}",
        settings=settings,
        task=facts,
        source=manifest.Source(source.uri, source.revision, files, source.licence, source.citation),
        tokenizer=describe(tokenizer),
        features=manifest.record_features(settings, references=blocks.references),
        ledger=_ledger(total, counted),
        splits=splits,
        rejected=rejected,
        rejected_tokens=_summed([blocks.reason_tokens]),
        changed=_summed([blocks.changed]),
        filter_files=Chain(settings.filter).files(),
        evaluation_sets=leaks.digests() if leaks else {},
        earlier=dict(earlier),
        near_duplicates=_near_duplicates(repeats),
        warnings=warnings,
        rows=rows,
        rejected_file=rejected_file,
        index=index,
        lengths=lengths,
    ).sealed()


def _check_balance(
    rows: Mapping[str, rejected_rows.Rows],
    splits: Mapping[str, manifest.Split],
    rejected: Mapping[str, int],
    rejected_file: rejected_rows.RejectedFile,
) -> None:
    """Raise BalanceError where a row is neither in a shard nor in rejected.jsonl."""
    left_out = sum(rejected.values())
    rejected_rows.check(rows, examples=sum(split.examples for split in splits.values()), rejected=left_out)
    if rejected_file.lines != left_out:
        raise BalanceError(f"{left_out:,} rows made no record, and {rejected_file.lines:,} are written.")


def account(blocks: BlockTotals, written: ShardTotals) -> dict[str, rejected_rows.Rows]:
    """Return what became of the rows of each file: counted where they were cut, read, and written, by different code."""
    total = rejected_rows.Total()
    total.merge(blocks.rows)
    for file, number in written.duplicates.items():
        total.add(file, examples=-number, duplicates=number)
    return total.rows()


def _ledger(total: record_counts.Counts, counted: Mapping[str, record_counts.Counts]) -> dict[str, Any]:
    """Return what truncation cost in all, and the split of each row that lost most."""
    ledger = record_counts.ledger(total)
    for side, field in (("inputs", "worst"), ("targets", "targets_worst")):
        split_of = {one.place: split for split, counts in counted.items() for one in getattr(counts, field)}
        for worst, one in zip(ledger[side]["worst"], getattr(total, field), strict=True):
            worst["split"] = split_of[one.place]
    return ledger


def task_facts(definition: Definition, task: ChosenTask) -> manifest.TaskFacts:
    """Return what the manifest says of a task."""
    own = {"file": Path(definition.file).name, "sha256": definition.sha256} if definition.file else {}
    return manifest.TaskFacts(list(task.task.metrics), list(task.classes), hides_spans=task.spans is not None, **own)


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return counts added up, in order of their names."""
    total: collections.Counter[str] = collections.Counter()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items()))


def _near_duplicates(repeats: Repeats | None) -> NearDuplicates | None:
    """Return what the manifest says of near-duplicates, where they were looked for."""
    if repeats is None:
        return None
    return NearDuplicates(repeats.clusters, repeats.across_splits, list(repeats.largest))


def describe(tokenizer: Tokenizer) -> manifest.Tokenizer:
    """Return what the manifest says of a tokenizer."""
    return manifest.Tokenizer(
        name=tokenizer.name,
        sha256=tokenizer.sha256,
        vocab_size=tokenizer.vocab_size,
        padded_vocab_size=tokenizer.padded_size,
        pad_id=tokenizer.pad_id,
        eos_id=tokenizer.eos_id,
        unk_id=tokenizer.unk_id,
    )


def _split(
    counts: record_counts.Counts,
    parts: SplitTotals,
    tokenizer: Tokenizer,
    settings: Settings,
    facts: manifest.TaskFacts,
) -> manifest.Split:
    """Return what the manifest says of one split, from the counts of its shards."""
    joint = [[inputs, targets, number] for (inputs, targets), number in sorted(counts.joint.items())]
    before = [[bucket, number] for bucket, number in sorted(counts.before.items())]
    name_of = functools.partial(targets.label_name, settings=settings, tokenizer=tokenizer, classes=facts.classes)
    labels = {name_of(ids): sum(number) for ids, number in sorted((counts.labels or {}).items())}
    lengths: dict[str, Any] = {"step": list(record_counts.STEPS), "joint": joint, "inputs_before": before}
    if settings.layout == "packed":
        lengths["packed"] = _packed(counts, settings)
    elif facts.hides_spans:
        lengths["documents"] = counts.examples
    return manifest.Split(
        records=counts.records,
        tokens={"inputs": counts.inputs, "targets": counts.targets},
        lengths=lengths,
        unk_rate=round(counts.unknown / max(1, counts.inputs), 6),
        labels=labels,
        rejected=_summed([parts.reasons]),
        shards=list(parts.shards()),
        examples=counts.examples + parts.merged,
    )


def _packed(counts: record_counts.Counts, settings: Settings) -> dict[str, Any]:
    """Return how many examples the rows hold, and the share of padding, unpacked and packed: none where there are no rows."""
    tokens, room = counts.inputs + counts.targets, settings.input_length + settings.target_length
    shares = (round(1 - tokens / (count * room), 4) if count else 0.0 for count in (counts.examples, counts.records))
    return {"examples": counts.examples, **dict(zip(("padding_before", "padding_after"), shares, strict=True))}
