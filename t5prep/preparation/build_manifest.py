"""Build the manifest of a finished preparation from the counts of its steps, with warnings of likely training problems."""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from t5prep.dataset import conversion, manifest, rejected_rows
from t5prep.dataset.manifest import NearDuplicates
from t5prep.dataset.settings import Settings
from t5prep.dataset.shard_files import Index, Lengths, Origins
from t5prep.errors import BalanceError, TaskError
from t5prep.io.progress import number_of
from t5prep.preparation import record_counts
from t5prep.preparation.evaluation_sets import Leaks
from t5prep.preparation.near_duplicates.clusters import Repeats
from t5prep.preparation.shards import ShardTotals, SplitTotals
from t5prep.preparation.sort_blocks import BlockTotals
from t5prep.preparation.text_counts import TextCounts
from t5prep.reading import text_rows
from t5prep.sources import Resolved
from t5prep.tasks.filters.chain import Chain
from t5prep.tasks.registry import Definition
from t5prep.tasks.targets import target_of
from t5prep.tasks.task import ChosenTask
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.version import __version__


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of all steps of a preparation, for its manifest.

    * `files`: the source files, hashed.
    * `written`, `blocks`: the counts of all shards and of all blocks.
    * `rejected_file`: the file of rejected rows.
    * `rejected_for`: the number of rows for each complete reason.
    * `repeats`: the counts of near-duplicates, None if they were not searched.
    * `index`, `lengths`, `origins`: the descriptions of these files.
    """

    files: list[manifest.SourceFile]
    written: ShardTotals
    blocks: BlockTotals
    rejected_file: rejected_rows.RejectedFile
    rejected_for: Mapping[str, int]
    repeats: Repeats | None = None
    index: Index | None = None
    lengths: Lengths | None = None
    origins: Origins | None = None


def assemble(
    results: Results,
    *,
    settings: Settings,
    definition: Definition,
    task: ChosenTask,
    source: Resolved,
    tokenizer: Tokenizer,
    leaks: Leaks | None = None,
    earlier: Mapping[str, str] = MappingProxyType({}),
) -> manifest.Manifest:
    """Return the sealed manifest. It depends only on the preparation, not on the runner.

    Raises BalanceError if a row is neither in a shard nor among the rejected rows.
    """
    written, blocks, repeats = results.written, results.blocks, results.repeats
    facts = task_facts(definition, task)
    parts = dict(sorted(written.splits.items()))
    split_counts = {split: split_totals.counts for split, split_totals in parts.items()}
    if not target_of(settings.target).is_counted:  # such targets are no classes that rows could be counted by
        split_counts = {split: dataclasses.replace(counts, labels=None) for split, counts in split_counts.items()}
    total = sum(split_counts.values(), record_counts.Counts())
    labelled = record_counts.is_classification(total)
    if labelled:
        check_classes(blocks.texts, tokenizer)
    splits = {
        split: _split(
            counts if labelled else dataclasses.replace(counts, labels=None), parts[split], tokenizer, settings, facts
        )
        for split, counts in split_counts.items()
    }
    rejected = _summed([*(split.rejected for split in splits.values()), blocks.reasons])
    rows = account(blocks, written)
    left_out = sum(rejected.values())
    rejected_rows.check(rows, examples=sum(split.examples for split in splits.values()), rejected=left_out)
    if results.rejected_file.lines != left_out:
        raise BalanceError(
            f"{left_out:,} rows made no record, but {results.rejected_file.lines:,} rejected rows are "
            "written. This is a bug of t5prep. Report it with this message.",
            code="pipeline.row-count-mismatch",
        )
    warnings = warnings_of(
        total,
        settings,
        label_name=functools.partial(
            conversion.label_name, settings=settings, tokenizer=tokenizer, classes=facts.classes
        ),
        splits=splits,
        rows_read=blocks.read - blocks.blank,
        rejected=rejected,
        rejected_for=results.rejected_for,
        hides_spans=facts.hides_spans,
        without_markup=task.without_markup,
        texts=blocks.texts,
    )
    return manifest.Manifest(
        schema=manifest.SCHEMA,
        created_by=f"t5prep {__version__}",
        settings=settings,
        task=facts,
        source=manifest.Source(source.uri, source.revision, results.files, source.licence, source.citation),
        tokenizer=describe(tokenizer),
        features=manifest.record_features(settings, references=blocks.references),
        ledger=_ledger(total, split_counts, blocks.split),
        splits=splits,
        rejected=rejected,
        rejected_tokens=_summed([blocks.reason_tokens]),
        changed=_summed([blocks.changed]),
        filter_files=Chain(settings.filter).files(),
        evaluation_sets=leaks.digests() if leaks else {},
        earlier=dict(earlier),
        near_duplicates=None
        if repeats is None
        else NearDuplicates(repeats.clusters, repeats.across_splits, list(repeats.largest)),
        texts=text_facts(blocks.texts, repeats=settings.dedup == "none"),
        warnings=warnings,
        rows=rows,
        rejected_file=results.rejected_file,
        index=results.index,
        lengths=results.lengths,
        origins=results.origins,
    ).sealed()


def text_facts(counts: TextCounts, *, repeats: bool) -> manifest.TextFacts:
    """Return the manifest's facts about texts. `repeats`: whether repeated rows were counted."""
    commonest_characters = sorted(counts.characters.items(), key=lambda item: (-item[1], item[0]))[:MOST_CHARACTERS]
    repeated = counts.repeats.repeated() if repeats else None
    return manifest.TextFacts(
        counts.rows, counts.inputs_unknown, counts.targets_unknown, commonest_characters, counts.markup, repeated
    )


def check_classes(texts: TextCounts, tokenizer: Tokenizer) -> None:
    """Raise TaskError if two classes have the same ids, because they differ only in characters that the tokenizer lacks.

    `texts.targets` are the targets with unknown characters.
    """
    by_ids: dict[tuple[int, ...], str] = {}
    for text in sorted(texts.targets or ()):
        first_text = by_ids.setdefault(tuple(tokenizer.encode(text)), text)
        if first_text != text:
            raise TaskError(
                f"{tokenizer.name} encodes the classes {first_text!r} and {text!r} alike, because it does not "
                "know their characters. Name them with words that it knows, as in --label-map "
                f"{first_text}=one,{text}=two",
                code="tokenizer.indistinct-classes",
            )


def account(blocks: BlockTotals, written: ShardTotals) -> dict[str, rejected_rows.Rows]:
    """Return the fate of each file's rows: counted when blocks are cut, when rows are read, and when shards are written.

    Three different places of the code count them, so `rejected_rows.check` finds any lost row.
    """
    total = rejected_rows.Total()
    total.merge(blocks.rows)
    for file, number in written.duplicates.items():
        total.add(file, examples=-number, duplicates=number)
    return total.rows()


def _ledger(
    total: record_counts.Counts, split_counts: Mapping[str, record_counts.Counts], split: Mapping[str, int]
) -> manifest.Ledger:
    """Return the cost of truncation, with the rows that lost most, worst first. `split_counts` has the counts of each split."""

    def list_worst(side: str) -> list[manifest.TruncatedRow]:
        split_of = {row.position: name for name, counts in split_counts.items() for row in getattr(counts, side)}
        return [
            {"id": row.id, "tokens": row.tokens, "lost": row.tokens_lost, "split": split_of[row.position]}
            for row in getattr(total, side)
        ]

    # A percentile is the upper bound of its bucket, which may exceed the longest row.
    percentiles = record_counts.percentiles(total.uncut_lengths)
    return {
        "inputs": {
            "rows_cut": total.inputs_cut,
            "tokens_lost": total.inputs_lost,
            "tokens_before": {
                **{name: min(bucket, total.longest) for name, bucket in percentiles.items()},
                "max": total.longest,
            },
            "worst": list_worst("worst"),
        },
        "targets": {
            "rows_cut": total.targets_cut,
            "tokens_lost": total.targets_lost,
            "worst": list_worst("targets_worst"),
        },
        "split": {name: split[name] for name in ("rows", "examples")},
    }


def task_facts(definition: Definition, task: ChosenTask) -> manifest.TaskFacts:
    """Return the manifest's facts about a task."""
    file_facts = {"file": Path(definition.file).name, "sha256": definition.sha256} if definition.file else {}
    return manifest.TaskFacts(
        list(task.task.metrics), list(task.classes), hides_spans=task.spans is not None, **file_facts
    )


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of several counts, ordered by name."""
    total: collections.Counter[str] = collections.Counter()
    for counter in counts:
        total.update(counter)
    return dict(sorted(total.items()))


def describe(tokenizer: Tokenizer) -> manifest.Tokenizer:
    """Return the manifest's facts about a tokenizer."""
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
    """Return the manifest's entry of one split, from the counts of its shards."""
    joint = [(inputs, targets, number) for (inputs, targets), number in sorted(counts.joint.items())]
    name_of = functools.partial(conversion.label_name, settings=settings, tokenizer=tokenizer, classes=facts.classes)
    labels = {name_of(ids): sum(number) for ids, number in sorted((counts.labels or {}).items())}
    lengths: manifest.Histogram = {
        "step": record_counts.STEPS,
        "joint": joint,
        "inputs_before": sorted(counts.uncut_lengths.items()),
    }
    if settings.is_packed:
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


def _packed(counts: record_counts.Counts, settings: Settings) -> manifest.Packed:
    """Return the shares of padding before and after packing; 0 for no rows."""
    tokens, room = counts.inputs + counts.targets, settings.input_length + settings.target_length
    unpacked_padding, packed_padding = (
        round(1 - tokens / (n * room), 4) if n else 0.0 for n in (counts.examples, counts.records)
    )
    return {"examples": counts.examples, "padding_before": unpacked_padding, "padding_after": packed_padding}


# Warnings of what a model would learn wrongly from a prepared dataset, each with the option that fixes it.

# How many unknown characters the manifest lists, and how many a warning shows.
MOST_CHARACTERS, SHOWN_CHARACTERS = 50, 5
# Least association (Cramér's V) between markup and label that is worth a warning.
STRONG_ASSOCIATION = 0.3
# Share of cut targets above which a warning is due. For cut class labels, one is enough.
MANY_TARGETS_CUT = 0.05
# Packing is ineffective if one side of records is filled at least to FULL_SHARE and the other at most to EMPTY_SHARE.
FULL_SHARE, EMPTY_SHARE = 0.8, 0.6
# The advised length of the sparse side is this multiple of its mean length, because rows differ.
SPARE = 1.5

# Share of rejected rows above which a warning is due.
MANY_REJECTED = 0.1
_LONGEST_EXAMPLE = 300
# Share of rows with a duplicate id above which a warning about the id column is due.
MANY_WITH_ONE_ID = 0.01


def warnings_of(
    total: record_counts.Counts,
    settings: Settings,
    *,
    label_name: Callable[[Sequence[int]], str],
    splits: Collection[str],
    rows_read: int,
    rejected: Mapping[str, int],
    rejected_for: Mapping[str, int],
    hides_spans: bool,
    without_markup: str,
    texts: TextCounts,
) -> list[str]:
    """Return the warnings of a preparation as sentences, always in the same order.

    * `total`: the counts of all `splits` that have records.
    * `label_name`: returns the name of a class, given its label ids.
    * `rejected`, `rejected_for`: the number of rows for each kind of reason, and for each complete reason.
    * `without_markup`: the option that removes markup from texts, or "".
    """
    labelled = record_counts.is_classification(total)
    warnings = [
        *(_markup(total, label_name, remedy=without_markup) if labelled else []),
        *of_rejected_rows(rows_read, rejected, rejected_for, id_column=settings.options.get("id_column", "")),
        *([] if hides_spans else one_target(total.examples, total.labels, rejected=bool(rejected))),
        *empty_splits(settings.splits or (), splits),
        *_targets_cut(total, settings, labelled=labelled),
        *_targets_unknown(texts),
        *_several_answers(texts, settings.options.get("targets_column", "")),
    ]
    return [*warnings, *_badly_packed(total, settings)] if settings.is_packed else warnings


def _several_answers(texts: TextCounts, column: str) -> list[str]:
    """Warn of rows with several values in the column of targets, of which only the first is learned."""
    if not column or not texts.several_answers:
        return []
    return [
        f"several different values in {column}, in {texts.several_answers:,} of {number_of(texts.rows, 'row')}: the first one is "
        "the target, and an evaluation takes each of them as right"
    ]


def _targets_unknown(texts: TextCounts) -> list[str]:
    """Warn of targets with unknown characters. A model cannot write them, so its answers are never correct."""
    if not texts.targets_unknown:
        return []
    characters = [text for text, _ in texts.characters.most_common(SHOWN_CHARACTERS)]
    character_list = f", such as {' '.join(characters)}" if characters else ""
    return [
        f"{texts.targets_unknown:,} targets hold characters that the vocabulary lacks{character_list}, so a model can never "
        "write them. Replace them in the source, or train a vocabulary that has them: t5prep tokenizer train --byte-fallback ..."
    ]


def _targets_cut(counts: record_counts.Counts, settings: Settings, *, labelled: bool) -> list[str]:
    """Warn of cut targets: a model learns to stop too early, and a cut label is a different word."""
    if counts.targets_cut <= (0 if labelled else MANY_TARGETS_CUT * counts.examples):
        return []
    longest = counts.targets_worst[0].tokens
    return [
        f"{counts.targets_cut / max(1, counts.examples):.0%} of the targets are longer than {settings.target_length} tokens and "
        f"are cut, so a model learns to stop early. Prepare with --target-length {longest} to keep all of them whole"
    ]


def _badly_packed(counts: record_counts.Counts, settings: Settings) -> list[str]:
    """Warn of packed rows with one full side and one mostly padded side, and advise another length for one side.

    The full side is lengthened, unless that more than doubles it. Then the other side is shortened.
    """
    room = {"input": settings.input_length, "target": settings.target_length}
    tokens = {"input": counts.inputs, "target": counts.targets}
    filled = {side: tokens[side] / max(1, counts.records * room[side]) for side in room}
    full, empty = sorted(filled, key=lambda side: filled[side], reverse=True)
    if filled[empty] > EMPTY_SHARE or filled[full] < FULL_SHARE:
        return []
    longer = -(-room[empty] * tokens[full] // max(1, tokens[empty]))
    change = f"--{full}-length {longer} to fill both"
    if full == "input" and longer > 2 * room[full]:
        longest = max(map(len, counts.labels or ()), default=0)
        shorter = max(longest, math.ceil(SPARE * tokens[empty] / max(1, counts.records)))
        if shorter >= room[empty]:
            return []
        change = f"--{empty}-length {shorter}, which leaves room enough"
    return [
        f"packed rows are full of {full}s while {1 - filled[empty]:.0%} of their {empty}s is padding. Prepare with {change}"
    ]


def _markup(total: record_counts.Counts, label_name: Callable[[Sequence[int]], str], *, remedy: str) -> list[str]:
    """Warn that markup reveals the label, with the shares. `remedy` is the option that removes the markup."""
    labels = total.labels
    if not labels or (strength := record_counts.association(labels)) < STRONG_ASSOCIATION:
        return []
    shares = ", ".join(
        f"{marked / (marked + plain):.0%} of {label_name(ids)}" for ids, (marked, plain) in sorted(labels.items())
    )
    return [
        f"markup tells the label (Cramér's V {strength:.2f}): {shares} hold HTML tags, so a model can read the label off "
        f"them instead of the text. {f'Prepare without markup: {remedy}' if remedy else 'Take it out of the source.'}"
    ]


def of_rejected_rows(
    rows: int, rejected: Mapping[str, int], words: Mapping[str, int], *, id_column: str = ""
) -> Iterator[str]:
    """Yield warnings about rejected rows.

    `rows` is the number of rows read, `rejected` counts the kinds of reasons, and `words` the complete reasons.
    """
    total = sum(rejected.values())
    if total > MANY_REJECTED * rows:
        commonest_reason = max(sorted(rejected), key=lambda reason: rejected[reason])
        yield (
            f"{100 * total // rows}% of all rows were rejected, most often for: "
            f"{_commonest(commonest_reason, rejected[commonest_reason], words)}. All are in rejected.jsonl"
        )
    if rejected.get("duplicate id", 0) > MANY_WITH_ONE_ID * rows and id_column:
        yield (
            f"rejected {number_of(rejected['duplicate id'], 'row')} with the id of another row. If the ids in {id_column} begin "
            "anew in each file, leave --id-column out: the place of a row is its id then"
        )
    if escaped := sum(count for text, count in words.items() if text.endswith(text_rows.ESCAPED)):
        yield (
            f"rejected {number_of(escaped, 'row')} with a backslash before a quote or a delimiter. If the backslash escapes it: "
            r"--escape '\'"
        )
    if undecodable_rows := rejected.get("not utf-8"):
        yield (
            f"rejected {number_of(undecodable_rows, 'row')} with bytes that are not UTF-8. If the files are in another encoding, "
            "name it, as in --encoding cp1252"
        )


def _commonest(reason: str, rows: int, words: Mapping[str, int]) -> str:
    """Return a reason with its count: the complete reason if half of its rows share it, otherwise the kind with an example."""
    commonest_text = max(_of_kind(reason, words), key=lambda text: words[text], default="")
    if commonest_text and 2 * words[commonest_text] >= rows:
        return f"{commonest_text} ({words[commonest_text]:,})"
    return with_example(f"{reason} ({rows:,})", reason, words)


def with_example(message: str, reason: str, words: Mapping[str, int]) -> str:
    """Return `message` followed by the most frequent complete reason of a kind, which quotes a value and its fix.

    >>> with_example("unknown label 3", "unknown label", {"unknown label: 'x' is none of a, b": 2, "unknown label: 'y' is": 1})
    "unknown label 3: 'x' is none of a, b"
    """
    commonest_text = max(_of_kind(reason, words), key=lambda text: words[text], default="")
    return " ".join(f"{message}{commonest_text.removeprefix(reason)}".split())[:_LONGEST_EXAMPLE]


def _of_kind(reason: str, words: Mapping[str, int]) -> list[str]:
    """Return the complete reasons of one kind, sorted, so that ties have one winner."""
    return sorted(text for text in words if text.partition(":")[0] == reason)


def one_target(examples: int, labels: Collection[object] | None, *, rejected: bool) -> Iterator[str]:
    """Yield a warning if all examples have one target. `labels` are the distinct targets, None if there are too many to list.

    >>> list(one_target(2, ["yes"], rejected=False))
    ['all 2 examples have the same target, so a model will always answer that. Is a class missing?']
    """
    if labels is not None and len(labels) == 1 and examples > 1:
        yield (
            f"all {examples:,} examples have the same target, so a model will always answer that. Is a class missing?"
            f"{' See what was rejected in rejected.jsonl' if rejected else ''}"
        )


def empty_splits(requested_splits: Collection[str], existing_splits: Collection[str]) -> Iterator[str]:
    """Yield a warning for each requested split without records.

    >>> list(empty_splits(["train", "validation"], ["train"]))
    ['no row fell into the split validation, so that there is nothing to evaluate on. Give it a larger share: --splits']
    """
    for split in requested_splits:
        if split not in existing_splits:
            nothing = "train on" if split == "train" else "evaluate on"
            yield (
                f"no row fell into the split {split}, so that there is nothing to {nothing}. Give it a larger share: --splits"
            )
