"""Make the page of a prepared dataset from its manifest, its rejected rows and its first records."""

import collections
import dataclasses
import itertools
import math
import operator
import re
from collections.abc import Iterator
from pathlib import Path

from t5prep.dataset import inspect_records
from t5prep.dataset.manifest import Manifest
from t5prep.dataset.prepared import Dataset, DecodedRecord
from t5prep.errors import DatasetError, T5prepError, TokenizerError
from t5prep.json_values import JSONObject
from t5prep.planning import lengths
from t5prep.preparation import record_counts
from t5prep.preparation.source_rows import SourceRows
from t5prep.report import charts, pages, tokens
from t5prep.tasks.example import Example, text_of
from t5prep.tokens import audit, newlines

# Maximum number of rejected rows that are searched for examples, and of examples of each reason.
_LINES, _EXAMPLES = 200_000, 3
_LABELS = 20  # maximum number of classes in the table


def page(data: str | Path, *, tokenizer: str | None = None) -> str:
    """Return the HTML page of the dataset `data`.

    If the tokenizer in the manifest cannot be found, the page has no decoded records, and says so. Raises DatasetError,
    OutputError, and TokenizerError if `tokenizer` is wrong.
    """
    opened = Dataset(data, tokenizer=tokenizer)
    dataset_manifest = opened.manifest
    if not dataset_manifest.splits:
        raise DatasetError(
            f"{opened.folder} has no split, so there is nothing to show. Prepare it again.",
            code="dataset.missing-splits",
        )
    first = "train" if "train" in dataset_manifest.splits else next(iter(dataset_manifest.splits))
    order = [first, *(split for split in dataset_manifest.splits if split != first)]
    samples: list[SplitSample] = []
    characters, tokenizer_error = None, ""
    try:
        samples = [draw(opened, split=split) for split in order[:3]]
        characters = look(opened)
    except TokenizerError as error:
        if tokenizer:
            raise
        tokenizer_error = str(error)
    return pages.render(
        "dataset.html",
        title=f"{dataset_manifest.settings.task} · t5prep",
        manifest=dataset_manifest,
        ledger=dataset_manifest.ledger,
        records=dataset_manifest.records,
        bytes=sum(shard.bytes for shard in dataset_manifest.shards),
        documents=sum(split.lengths.get("documents", 0) for split in dataset_manifest.splits.values()),
        packed={
            name: split.lengths["packed"]
            for name, split in dataset_manifest.splits.items()
            if "packed" in split.lengths
        },
        charts=_charts(dataset_manifest),
        choices=lengths.choices(  # layouts of an epoch; the page knows no model, so each position has the same cost
            lengths.histogram(dataset_manifest.splits[first], folder=f"the split {first}"),
            prepared=(dataset_manifest.settings.input_length, dataset_manifest.settings.target_length),
            cost=operator.add,
        ),
        first=first,
        marker=dataset_manifest.marked and bool(dataset_manifest.ledger["inputs"]["rows_cut"]),
        kept_newlines=newlines.SENTINEL if dataset_manifest.settings.keep_newlines else "",
        labels=[
            (label, {name: split.labels.get(label, 0) for name, split in dataset_manifest.splits.items()})
            for label in dataset_manifest.labels[:_LABELS]
        ],
        characters=characters,
        samples=samples,
        why=tokenizer_error,
        rejected=list(_rejected(opened)),
        pieces=lambda record: tokens.of_record(record, dataset_manifest, opened.tokenizer),
    )


def _charts(dataset_manifest: Manifest) -> dict[str, str]:
    """Return the SVGs of a dataset's page by name: histograms of lengths, and the sizes of each split's shards."""
    uncut_inputs: collections.Counter[int] = collections.Counter()
    targets: collections.Counter[int] = collections.Counter()
    steps = record_counts.STEPS
    for split in dataset_manifest.splits.values():
        steps = split.lengths["step"]
        uncut_inputs.update(dict(split.lengths["inputs_before"]))
        for _, target, number in split.lengths["joint"]:
            targets[target] += number
    svgs = {
        "inputs": charts.histogram(
            uncut_inputs,
            step=steps[0],
            limit=dataset_manifest.settings.input_length,
            quantity="tokens of an input, before cutting",
        ),
    }
    if len(targets) > 1:  # targets of one length, such as classes, would be a single bar
        svgs["targets"] = charts.histogram(
            targets,
            step=steps[1],
            limit=dataset_manifest.settings.target_length,
            quantity="tokens of a target, as kept",
        )
    for name, split in dataset_manifest.splits.items():
        if len(split.shards) > 1:
            unit, called = (1e6, "MB") if max(shard.bytes for shard in split.shards) >= 1e6 else (1e3, "kB")
            svgs[f"shards {name}"] = charts.steps(
                [shard.bytes / unit for shard in split.shards], quantity=f"shards, {called} each", name=name
            )
    return svgs


def _rejected(opened: Dataset) -> Iterator[tuple[str, int, list[JSONObject]]]:
    """Yield (reason, count, first rows) for each reason of rejection, the most frequent first."""
    rejected = opened.manifest.rejected
    examples: dict[str, list[JSONObject]] = {reason: [] for reason in rejected}
    max_examples = {reason: min(number, _EXAMPLES) for reason, number in rejected.items()}
    if rejected:
        lines = (line for batch in opened.rejected() for line in batch.to_pylist())
        for line in itertools.islice(lines, _LINES):
            reason = line["reason"].partition(":")[0]
            if len(examples.get(reason, [])) < max_examples.get(reason, 0):
                examples[reason].append(line)
                if all(len(examples[reason]) == count for reason, count in max_examples.items()):
                    break
    for reason, number in sorted(rejected.items(), key=lambda item: (-item[1], item[0])):
        yield reason, number, examples[reason]


# Records of a sample: enough for shares that are exact to a percent. Reading them takes about a second.
RECORDS = 2000
_RECORDS_SHOWN = 3  # of each kind
_OF_CLASS = 2  # examples of each class
# HTML in decoded text. T5's vocabulary has no "<": it becomes the unknown token, which is decoded as ⁇.
_MARKUP = re.compile(r"[<⁇]\s*/?\s*[a-zA-Z][^<>⁇]*>")


@dataclasses.dataclass
class SplitSample:
    """Hold statistics and examples of the first `records` records of a split.

    * first_records: the first records.
    * cut: the records that lost most tokens.
    * unknown: the number of records with unknown tokens.
    * of_class: the first records of each target.
    * of_length: the record with the shortest input, the longest input, and one nearest to the median length.
    * markup: target → (records with HTML, records without); None if the targets are too many to be classes.
    """

    split: str
    records: int = 0
    first_records: list[DecodedRecord] = dataclasses.field(default_factory=list)
    cut: list[DecodedRecord] = dataclasses.field(default_factory=list)
    unknown: int = 0
    of_class: dict[str, list[DecodedRecord]] = dataclasses.field(default_factory=dict)
    of_length: dict[str, DecodedRecord] = dataclasses.field(default_factory=dict)
    markup: dict[str, tuple[int, int]] | None = dataclasses.field(default_factory=dict)

    @property
    def association(self) -> float:
        """Return Cramér's V of target and markup: 0 if they are independent, 1 if the markup tells the class."""
        counts: dict[tuple[int, ...], tuple[int, int]] = {
            (i,): pair for i, pair in enumerate((self.markup or {}).values())
        }
        return record_counts.association(counts)


def draw(opened: Dataset, *, split: str) -> SplitSample:
    """Return a sample of the first RECORDS records of `split`. Raises DatasetError, TokenizerError."""
    sample, tokenizer, ledger = SplitSample(split), opened.tokenizer, opened.manifest.ledger["inputs"]
    marker = tokenizer.sentinel(1) if opened.manifest.marked else None
    lost_tokens = {entry["id"]: entry["lost"] for entry in ledger["worst"] if entry["split"] == split}
    middle = ledger.get("tokens_before", {}).get("p50", 0)
    # For each name, the record whose length is nearest to this one. No record has 2^30 tokens, so the longest is nearest.
    near = {"the shortest": 0, "of the middle": middle, "the longest": 1 << 30}
    far = dict.fromkeys(near, math.inf)
    for record in inspect_records.records(opened, split=split, count=RECORDS):
        sample.records += 1
        if len(sample.first_records) < _RECORDS_SHOWN:
            sample.first_records.append(record)
        if lost_tokens.get(record.id) or (marker is not None and marker in record.input_ids):
            sample.cut = sorted([*sample.cut, record], key=lambda candidate: -lost_tokens.get(candidate.id, 0))[
                :_RECORDS_SHOWN
            ]
        sample.unknown += tokenizer.unk_id in record.input_ids
        length = sum(token != tokenizer.pad_id for token in record.input_ids)
        for name, reference_length in near.items():
            if abs(length - reference_length) < far[name]:
                far[name], sample.of_length[name] = abs(length - reference_length), record
        class_records = sample.of_class.setdefault(_target(record), [])
        if len(class_records) < _OF_CLASS:
            class_records.append(record)
        if sample.markup is not None:
            has = bool(_MARKUP.search(_plain(record.inputs)))
            target = _target(record)
            with_markup, without = sample.markup.get(target, (0, 0))
            sample.markup[target] = with_markup + has, without + (not has)
            if len(sample.markup) > record_counts.MOST_LABELS:
                sample.markup = None
    return sample


def _target(record: DecodedRecord) -> str:
    """Return the target of a record as text, without EOS."""
    return record.targets.removesuffix("</s>").strip()


def _plain(text: str) -> str:
    """Return a decoded text without control tokens such as `</s>`, which look like HTML."""
    return re.sub(r"</?s>|<pad>|<extra_id_\d+>|<unused_\d+>", " ", text)


_ROWS_READ = 2000  # rows of the source whose texts are checked for lost characters
_CHARACTERS_SHOWN = 10  # lost characters in the table


@dataclasses.dataclass(frozen=True)
class Characters:
    """Hold the characters that encoding and decoding lose, counted over the first `rows` good rows of a source file.

    `lost_characters` has the most frequent ones first, and `omitted_count` is the number of further ones.
    """

    file: str
    rows: int
    lost_characters: list[audit.LostCharacter]
    omitted_count: int = 0


def look(opened: Dataset) -> Characters | None:
    """Return the characters of inputs and targets that the tokenizer changes, counted after filters.

    Return None if the source is not on this machine or has changed, or if its rows need code that this user has never run.
    Return None for an encoder's tokenizer, too.
    """
    source = opened.manifest.source
    if opened.tokenizer.is_encoders or (source.uri != "sample:" and ":" in source.uri):
        return None
    try:
        file, examples = SourceRows(opened).first_examples(_ROWS_READ)
    except (T5prepError, OSError):
        return None
    lost_characters = audit.examine(itertools.chain.from_iterable(map(_texts, examples)), opened.tokenizer).lost
    if opened.manifest.settings.keep_newlines:
        lost_characters = [entry for entry in lost_characters if entry.character != "\n"]
    return Characters(
        file, len(examples), lost_characters[:_CHARACTERS_SHOWN], len(lost_characters[_CHARACTERS_SHOWN:])
    )


def _texts(example: Example) -> Iterator[str]:
    """Yield the texts of an example: each part of its input, and its target."""
    parts = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
    return (text_of((part,)) for part in (*parts, example.targets))
