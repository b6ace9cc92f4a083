"""The manifest of a finished preparation, put together from what its steps counted."""

import collections
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5prep import __version__
from t5prep.dataset import balance, manifest
from t5prep.dataset.near_duplicates import NearDuplicates
from t5prep.dataset.settings import Settings
from t5prep.errors import BalanceError
from t5prep.prepare import record_counts, record_writer, row_warnings
from t5prep.prepare.block_sorter import SortedSpill
from t5prep.prepare.filters.chain import Chain
from t5prep.prepare.leaks import Leaks
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.shard_writer import WrittenShard
from t5prep.sources import Resolved
from t5prep.tasks.chosen_task import ChosenTask
from t5prep.tasks.registry import Definition
from t5prep.tokens import newlines
from t5prep.tokens.tokenizer import Tokenizer

# From this association (Cramér's V) on, markup tells the label well enough to warn.
STRONG_ASSOCIATION = 0.3
# So many cut targets are worth a warning; of labels, any.
MANY_TARGETS_CUT = 0.05
# Rows of which one side is fuller than the one share, and the other emptier than the other, waste what packing could win.
FULL_SHARE, EMPTY_SHARE = 0.8, 0.6


def assemble(
    settings: Settings,
    task: ChosenTask,
    *,
    facts: manifest.TaskFacts,
    source: Resolved,
    files: list[manifest.SourceFile],
    tokenizer: Tokenizer,
    written: Sequence[WrittenShard],
    spills: Sequence[SortedSpill],
    rejected_file: balance.RejectedFile,
    rejected_for: Mapping[str, int],
    repeats: Repeats | None = None,
    leaks: Leaks | None = None,
) -> manifest.Manifest:
    """Return the sealed manifest. The same preparation gives the same manifest, whatever ran it.

    Raises BalanceError where a row is neither in a shard nor among those that were left out.
    """
    rejected: dict[str, int] = {}
    warnings: list[str] = []
    parts = {
        split: sorted((item for item in written if item.spec.split == split), key=lambda item: item.spec.number)
        for split in sorted({item.spec.split for item in written})
    }
    counted = {split: sum((part.counts for part in own), record_counts.Counts()) for split, own in parts.items()}
    total = sum(counted.values(), record_counts.Counts())
    labelled = record_counts.is_classification(total)
    splits: dict[str, manifest.Split] = {}
    for split, counts in counted.items():
        duplicates = sum((collections.Counter(part.reasons) for part in parts[split]), collections.Counter())
        own = counts if labelled else dataclasses.replace(counts, labels=None)
        splits[split] = _split(
            own, parts[split], dict(sorted(duplicates.items())), tokenizer, settings, facts.hides_spans
        )
        merged = sum(part.merged for part in parts[split])
        splits[split] = dataclasses.replace(splits[split], examples=counts.examples + merged)
        for reason, number in duplicates.items():
            rejected[reason] = rejected.get(reason, 0) + number
    for spill in spills:
        for reason, number in spill.reasons.items():
            rejected[reason] = rejected.get(reason, 0) + number
    if labelled and total.labels and (strength := record_counts.association(total.labels)) >= STRONG_ASSOCIATION:
        warnings.append(_markup_warning(total.labels, strength, tokenizer, remedy=task.without_markup))
    accounted = account(spills, written)
    balance.check(accounted, examples=sum(split.examples for split in splits.values()), rejected=sum(rejected.values()))
    if rejected_file.lines != sum(rejected.values()):
        raise BalanceError(f"{sum(rejected.values()):,} rows made no record, and {rejected_file.lines:,} are written.")
    rows = sum(spill.rows - spill.blank for spill in spills)
    warnings += row_warnings.rejected_rows(rows, rejected, rejected_for)
    if not facts.hides_spans:
        warnings += row_warnings.one_target(total.examples, total.labels)
    warnings += row_warnings.empty_splits(settings.splits or (), splits)
    warnings += _cut_warnings(total, settings, labelled=labelled)
    if settings.layout == "packed":
        warnings += _packed_warnings(total, settings)
    references = any(spill.references for spill in spills)
    return manifest.Manifest(
        schema=manifest.SCHEMA,
        created_by=f"t5prep {__version__}",
        settings=settings,
        task=facts,
        source=manifest.Source(source.uri, source.revision, files, source.licence, source.citation),
        tokenizer=describe(tokenizer),
        features=record_writer.features(settings, references=references),
        ledger=_ledger(total, counted),
        splits=splits,
        rejected=dict(sorted(rejected.items())),
        rejected_tokens=_summed(spill.reason_tokens for spill in spills),
        changed=_summed(spill.changed for spill in spills),
        filter_files=Chain(settings.filter).files(),
        evaluation_sets=leaks.digests() if leaks else {},
        near_duplicates=_near_duplicates(repeats),
        warnings=warnings,
        rows=accounted,
        rejected_file=rejected_file,
    ).sealed()


def account(spills: Sequence[SortedSpill], written: Sequence[WrittenShard]) -> dict[str, balance.Rows]:
    """Return what became of the rows of each file: counted where they were cut, read, and written, by different code."""
    total = balance.Total()
    for spill in spills:
        rejected = sum(spill.reasons.values())
        total.add(spill.file, read=spill.rows, examples=spill.records, rejected=rejected, blank=spill.blank)
    for part in written:
        for file, number in part.duplicates.items():
            total.add(file, examples=-number, duplicates=number)
    return total.rows()


def _ledger(total: record_counts.Counts, counted: Mapping[str, record_counts.Counts]) -> dict[str, Any]:
    """What truncation cost in all, and the split of each row that lost most."""
    ledger = record_counts.ledger(total)
    for side, field in (("inputs", "worst"), ("targets", "targets_worst")):
        split_of = {one.place: split for split, counts in counted.items() for one in getattr(counts, field)}
        for said, one in zip(ledger[side]["worst"], getattr(total, field), strict=True):
            said["split"] = split_of[one.place]
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
    """What the manifest says of a tokenizer."""
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
    parts: Sequence[WrittenShard],
    rejected: dict[str, int],
    tokenizer: Tokenizer,
    settings: Settings,
    hides_spans: bool,
) -> manifest.Split:
    joint = [[inputs, targets, number] for (inputs, targets), number in sorted(counts.joint.items())]
    before = [[bucket, number] for bucket, number in sorted(counts.before.items())]
    said = functools.partial(newlines.decode, tokenizer=tokenizer, keep_newlines=settings.keep_newlines)
    labels = {said(ids[:-1]): sum(number) for ids, number in sorted((counts.labels or {}).items())}
    lengths: dict[str, Any] = {"step": list(record_counts.STEPS), "joint": joint, "inputs_before": before}
    if settings.layout == "packed":
        lengths["packed"] = _packed(counts, settings)
    elif hides_spans:
        lengths["documents"] = counts.examples
    return manifest.Split(
        records=counts.records,
        tokens={"inputs": counts.inputs, "targets": counts.targets},
        lengths=lengths,
        unk_rate=round(counts.unknown / max(1, counts.inputs), 6),
        labels=labels,
        rejected=rejected,
        shards=[part.shard for part in parts],
    )


def _packed(counts: record_counts.Counts, settings: Settings) -> dict[str, Any]:
    """How many examples the rows hold, and which share of all places is padding, unpacked and packed."""
    tokens, room = counts.inputs + counts.targets, settings.input_length + settings.target_length
    shares = (round(1 - tokens / (count * room), 4) for count in (counts.examples, counts.records))
    return {"examples": counts.examples, **dict(zip(("padding_before", "padding_after"), shares, strict=True))}


def _cut_warnings(counts: record_counts.Counts, settings: Settings, *, labelled: bool) -> list[str]:
    """A target that is cut teaches to stop in the middle, and a label that is cut is no word any more."""
    if counts.targets_cut <= (0 if labelled else MANY_TARGETS_CUT * counts.examples):
        return []
    longest = counts.targets_worst[0].tokens
    return [
        f"{counts.targets_cut / max(1, counts.examples):.0%} of the targets are longer than {settings.target_length} tokens and "
        f"are cut, which a model learns to do as well. Prepare with --target-length {longest} to keep all of them whole"
    ]


def _packed_warnings(counts: record_counts.Counts, settings: Settings) -> list[str]:
    """Which side of the rows is full while the other holds mostly padding, and how long it should be instead."""
    room = {"input": settings.input_length, "target": settings.target_length}
    tokens = {"input": counts.inputs, "target": counts.targets}
    filled = {side: tokens[side] / max(1, counts.records * room[side]) for side in room}
    full, empty = sorted(filled, key=lambda side: filled[side], reverse=True)
    if filled[empty] > EMPTY_SHARE or filled[full] < FULL_SHARE:
        return []
    wanted = -(-room[empty] * tokens[full] // max(1, tokens[empty]))
    return [
        f"packed rows are full of {full}s while {1 - filled[empty]:.0%} of their {empty}s is padding. "
        f"Prepare with --{full}-length {wanted} to fill both"
    ]


def _markup_warning(
    labels: dict[tuple[int, ...], tuple[int, int]], strength: float, tokenizer: Tokenizer, *, remedy: str
) -> str:
    """Why a model could cheat, in numbers, and what to do: `remedy` is the option that takes the markup out."""
    shares = ", ".join(
        f"{marked / (marked + plain):.0%} of {tokenizer.decode(ids[:-1])}"
        for ids, (marked, plain) in sorted(labels.items())
    )
    return (
        f"markup tells the label (Cramér's V {strength:.2f}): {shares} hold HTML tags, so a model can read the label off "
        f"them instead of the text. {f'Prepare without markup: {remedy}' if remedy else 'Take it out of the source.'}"
    )
