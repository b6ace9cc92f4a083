"""Complete and check the settings of a preparation, by its task, the beginning of its source, and its tokenizer."""

import collections
import dataclasses
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset.settings import Settings, row_counts
from t5prep.errors import SourceError, TokenizerError, UsageError
from t5prep.io import atomic_files
from t5prep.io.progress import list_names
from t5prep.json_values import JSONObject
from t5prep.options import fields
from t5prep.options.files import FileOptions
from t5prep.preparation import earlier_datasets, placement, row_limit
from t5prep.preparation.block_tokenizer import BlockExamples
from t5prep.preparation.row_limit import LimitedFile
from t5prep.preparation.sorted_pairs import SortedPairs
from t5prep.reading import blocks, column_checks, formats, json_documents, rows, source_files
from t5prep.reading.blocks import Block, Pair
from t5prep.reading.rows import Column
from t5prep.sources import RawFile, Resolved, split_names
from t5prep.tasks import example_table, labels
from t5prep.tasks.filters.chain import Chain
from t5prep.tasks.registry import Definition
from t5prep.tasks.targets import TARGETS, ClassTarget, HeadTarget, target_of
from t5prep.tasks.task import ChosenTask, Masks, Mixture, Spans
from t5prep.tokens import denoisers, masking, newlines, noise_spans
from t5prep.tokens.tokenizer import SENTINELS, Tokenizer

DEFAULT_SPLITS = {"train": 0.9, "validation": 0.1}
# A column with more distinct values is text, not class names.
MOST_CLASSES = 1_000
_NUMBER = re.compile(r"-?\d{1,18}")


class Decided(NamedTuple):
    """The result of all checks before any work: complete settings, the task with its options, and the source with its files."""

    settings: Settings
    task: ChosenTask
    source: Resolved


def decide(
    definition: Definition, task: ChosenTask, requested: Settings, *, source: Resolved, tokenizer: Tokenizer
) -> Decided:
    """Return the complete settings, task and source that follow from the user's choices.

    Raises UsageError, SourceError or TokenizerError if these do not fit together.
    """
    requested = with_card_options(source, requested)
    source = with_labelled_files(with_splits(source, task, requested), task, requested)
    # After the splits: label names are read from the files that remain.
    task = with_label_names(definition, task, requested, source=source)
    settings = complete(task, requested, source=source)
    head = _head_target(settings.target)
    if (tokenizer.is_encoders or settings.target == head.name) and head.takes_classes and not task.classes:
        task = with_found_classes(definition, task, settings, source=source)
        settings = complete(task, requested, source=source)
    settings = with_tokenizer(settings, task, tokenizer)
    check_source(settings, task, source=source, tokenizer=tokenizer)
    splits = set(source_files.splits_of(source.files).values())
    if settings.splits is None and settings.held_out is None and "train" in splits and "validation" not in splits:
        print(
            f"The files are the splits {', '.join(sorted(splits))}. None is validation, so training will not be evaluated. "
            "To hold out rows of train for validation: --held-out 0.05",
            file=sys.stderr,
        )
    return Decided(with_counted_splits(settings, task, source=source), task, source)


def requested(chosen: ChosenTask, choices: Mapping[str, Any]) -> Settings:
    """Return the settings of a task with a user's choices and its defaults. Raises UsageError.

    All options of the task are stored, so that an omitted option equals its explicit default.
    """
    task = chosen.task
    values = {"input_length": task.input_length, "target_length": task.target_length, **choices}
    if chosen.target:
        if (target := values.get("target", "text")) not in ("text", chosen.target):
            raise UsageError(
                f"--target {target} contradicts the other options, which make targets of the kind "
                f"{chosen.target}. Remove --target.",
                code="option.conflict",
            )
        values["target"] = chosen.target
    elif (kind := TARGETS.get(values.get("target", ""))) and kind.column:
        raise UsageError(
            f"--target {kind.name} is not possible with the task {chosen.name}. Use the task text2text, "
            f"and name the column with {fields.flag(kind.column)}.",
            code="option.inapplicable",
        )
    settings = Settings(task=chosen.name, options=fields.plain(chosen.options), **values)
    fields.check_effect(settings)
    return settings


def complete(chosen: ChosenTask, requested: Settings, *, source: Resolved) -> Settings:
    """Return the settings completed by the task and by the files of the source. Raises UsageError."""
    splits, target_length = requested.splits, requested.target_length
    if splits is None:
        names = set(source_files.splits_of(source.files).values())
        # Files whose names say only "train" do not decide the splits: some of their rows become validation.
        is_divided = names - {"train"} or (names and (requested.held_out or requested.split_files))
        splits = None if is_divided or requested.split_column else dict(DEFAULT_SPLITS)
    if chosen.spans and target_length == chosen.task.target_length:  # the default becomes the needed length
        target_length = _target_length(chosen, requested.input_length)
    options = fields.plain(chosen.options)
    settings = dataclasses.replace(requested, options=options, splits=splits, target_length=target_length)
    check(settings, chosen)
    return settings


def with_tokenizer(settings: Settings, task: ChosenTask, tokenizer: Tokenizer) -> Settings:
    """Return the settings completed by the tokenizer: targets for an encoder are class numbers, unless they have another kind.

    Raises UsageError for settings that do not fit the tokenizer.
    """
    if isinstance(task.spans, Masks):
        if not tokenizer.is_encoders:
            raise UsageError(
                f"{settings.task} needs an encoder's tokenizer, but {tokenizer.name} is a T5 tokenizer. Use, "
                "for example, --tokenizer answerdotai/ModernBERT-base, or prepare span_corruption instead.",
                code="tokenizer.encoder-required",
            )
        masking.check(task.spans.rate, tokenizer)
        return dataclasses.replace(settings, target="tokens", marker="none")
    if settings.target == "tokens":
        raise UsageError(
            f"--target tokens is not possible with {settings.task}, which makes its own targets. Prepare "
            "masked_language instead.",
            code="option.inapplicable",
        )
    if settings.target == "text" and not tokenizer.is_encoders:
        _check_sentinels(settings, task, tokenizer)
        return settings
    target = _head_target(settings.target, task.classes)
    if target.takes_classes and not task.classes:
        advice = "Choose a task with classes (t5prep tasks)"
        if "label_map" in settings.options:
            advice = "Name its classes, as in --label-map good=good,bad=bad"
        if tokenizer.is_encoders:
            reason = f"{tokenizer.name} is an encoder's tokenizer"
            advice += ", or prepare it for a T5: --tokenizer google-t5/t5-base"
        else:
            reason = f"--target {target.name} needs classes"
            advice += f", or remove --target {target.name}."
        raise UsageError(
            f"{reason}, but {settings.task} has no classes. {advice}",
            code="task.missing-classes",
        )
    if settings.is_packed:
        raise UsageError(
            "--layout packed is not possible for a classification, because each row has its own class. "
            "Use --layout padded or --layout ragged.",
            code="option.inapplicable",
        )
    if settings.keep_newlines:
        raise UsageError(
            "--keep-newlines is for generated texts, but this dataset has classes. Remove --keep-newlines.",
            code="option.inapplicable",
        )
    length = target.length(settings.input_length)
    if settings.target_length not in (length, task.task.target_length):
        raise UsageError(
            f"--target-length {settings.target_length} is for texts, but this dataset has targets of the kind "
            f"{target.name}. Remove --target-length.",
            code="option.inapplicable",
        )
    return dataclasses.replace(settings, target=target.name, target_length=length, marker="none")


def _head_target(name: str, classes: Sequence[str] = ()) -> HeadTarget:
    """Return the kind of target of a model with a head; class numbers if the setting is "text"."""
    target = target_of(name, classes)
    return target if isinstance(target, HeadTarget) else ClassTarget.of(classes)


def check(settings: Settings, task: ChosenTask) -> None:
    """Raise UsageError for settings that the task does not support."""
    if task.spans:
        _check_spans(settings, task)
    if settings.long == "split" and not task.task.never_cut:
        raise UsageError(
            f"--long split needs targets that follow the input word by word, but those of {settings.task} "
            "do not. Use --long cut or --long reject.",
            code="option.inapplicable",
        )
    Chain(settings.filter)
    if settings.records:
        json_documents.check_path(settings.records)


def _check_sentinels(settings: Settings, task: ChosenTask, tokenizer: Tokenizer) -> None:
    """Raise UsageError if a preparation needs more sentinels than the vocabulary has."""
    if tokenizer.is_bytes:  # ByT5 uses bytes as sentinels and handles newlines itself
        return
    spans = SENTINELS if isinstance(task.spans, Mixture) else 0  # a mixture of denoisers uses all sentinels
    if isinstance(task.spans, Spans):
        span_options = task.spans._asdict()
        spans = noise_spans.spans(noise_spans.lengths(settings.input_length, **span_options)[0], **span_options)[1]
    for needed, purpose, fix in (
        (2 * (settings.marked and not task.spans), "marks a cut with <extra_id_1>", "Use --marker none"),
        (
            (newlines.SENTINEL_NUMBER + 1) * settings.keep_newlines,
            f"keeps newlines as {newlines.SENTINEL}",
            "Remove --keep-newlines",
        ),
        (
            spans,
            f"hides up to {spans} spans of an input behind sentinels",
            "Use a T5 tokenizer, or a smaller --input-length",
        ),
    ):
        if needed > tokenizer.sentinels:
            raise UsageError(
                f"{settings.task} {purpose}, but the vocabulary of {tokenizer.name} has "
                f"{tokenizer.sentinels or 'no'} sentinels (<extra_id_0>, or Gemma's <unused0>). {fix}.",
                code="tokenizer.missing-sentinels",
            )


def _check_spans(settings: Settings, task: ChosenTask) -> None:
    """Raise UsageError for settings that do not fit concatenated texts with hidden spans."""
    # A target and its length are checked by value: below, and with the tokenizer.
    unused = set(task.task.unused_settings()) - {"target", "target_length"}
    if settings.is_packed:
        unused.add("layout")
    if useless := fields.changed(settings, *unused):
        raise UsageError(
            f"{' and '.join(useless)} cannot apply to {settings.task}, which cuts concatenated texts into full rows. Remove "
            f"{' and '.join(useless)}.",
            code="option.inapplicable",
        )
    targets = _target_length(task, settings.input_length)
    if isinstance(task.spans, Masks) and targets != settings.target_length:
        raise UsageError(
            f"--target-length {settings.target_length} cannot apply to {settings.task}, because each of the "
            f"{settings.input_length} tokens of an input has a label. Remove --target-length.",
            code="option.inapplicable",
        )
    if targets > settings.target_length:
        raise UsageError(
            f"--target-length {settings.target_length} is too small, because inputs of "
            f"{settings.input_length} tokens have targets of {targets} tokens. Use --target-length "
            f"{targets}",
            code="option.out-of-range",
        )


def _target_length(task: ChosenTask, input_length: int) -> int:
    """Return the length of targets, in tokens, of a task that hides spans."""
    if isinstance(task.spans, Masks):
        return input_length  # each hidden token has a target at its position
    if isinstance(task.spans, Mixture):
        return max(denoisers.lengths(input_length, denoiser)[1] for denoiser in task.spans.denoisers)
    assert task.spans is not None
    return noise_spans.lengths(input_length, **task.spans._asdict())[1]


# Checks of the beginning of a source, before work that would be wasted; and label names from the source.


def check_source(settings: Settings, task: ChosenTask, *, source: Resolved, tokenizer: Tokenizer) -> None:
    """Check for missing columns and for class names that are too long. Raises SourceError, UsageError or TokenizerError."""
    required_columns = [*task.columns.all, *filter(None, (settings.group_column, settings.split_column))]
    if not source.files:
        raise SourceError(f"{source.uri} has no files that {settings.task} can read.", code="source.files-missing")
    for word in task.classes if settings.target == "text" else ():
        pieces = tokenizer.encode(word)
        if len(pieces) + 1 > settings.target_length:
            raise TokenizerError(
                f'The class word "{word}" has {len(pieces)} tokens in {tokenizer.name}, so with EOS it '
                f"exceeds --target-length {settings.target_length}. Use --target-length {len(pieces) + 1}",
                code="task.oversized-class",
            )
    elements = blocks.match(source.files, task.pairs)
    if not settings.format and not task.task.corpus.format:
        formats.check_names([file.name for file in elements if isinstance(file, RawFile)], uri=source.uri)
    looked_at: collections.Counter[str] = collections.Counter()
    for element in elements:
        split = blocks.files(element)[0].split
        looked_at[split] += 1
        if looked_at[split] <= column_checks.FILES_LOOKED_AT:
            _check_columns(element, required_columns, settings, task, is_alone=len(elements) == 1)


def _check_columns(
    element: RawFile | Pair,
    required_columns: Sequence[Column],
    settings: Settings,
    task: ChosenTask,
    *,
    is_alone: bool,
) -> None:
    """Raise SourceError if a file or pair lacks one of the `required_columns`. `is_alone`: the source has no other file."""
    name = blocks.files(element)[0].name
    scanned = row_limit.scan(LimitedFile(element), settings, task.task.corpus)
    missing, block, advice = column_checks.find_missing(scanned, required_columns, name=name)
    detected_kind = formats.detect(name, FileOptions(settings.format), otherwise="text").kind
    if block and detected_kind == "tsv" and block.format.kind == "csv":
        print(
            f"{name} is quoted like CSV, and is read as such. To keep the quotes in the texts: --format tsv",
            file=sys.stderr,
        )
    if block and missing:
        record = next((row.record for row in blocks.read(block) if row.record), {})
        if not settings.records and (path := json_documents.suggest(record)):
            raise SourceError(
                f"{name} is one JSON document with the keys {', '.join(record)}. Name the path to its rows: "
                f'--records "{path}"',
                code="file.missing-records-path",
            )
        if is_alone or advice:
            instead = ""
        elif block.format.kind == "text":
            instead = " To read each file as a row with the columns text, folder and file: --format document"
        else:
            instead = f" To skip the file: --skip-files {shlex.quote(name)}"
        raise SourceError(f"{name} has no column {missing}{instead}", code="column.missing")


def _column_of_classes(options: JSONObject) -> str:
    """Return the column whose values may be class names; "" if the user named the classes, or if there is no such column."""
    if options.get("label_map", "given") != "" or options.get("targets"):
        return ""
    columns = (options.get(f"{name}_column") for name in ("targets", "tags", "labels"))
    return next((column for column in columns if isinstance(column, str) and column), "")


def with_label_names(definition: Definition, task: ChosenTask, requested: Settings, *, source: Resolved) -> ChosenTask:
    """Return the task with the class names of the source's card or schema, if the user gave none.

    The values of the column are class numbers, or these names already. Only tasks with the options `label_map` and
    `targets_column` are changed.
    """
    options = fields.plain(task.options)
    column = _column_of_classes(options)
    if not source.files or not column:
        return task
    names = formats.of_source(source, column)
    if not names:
        return task
    settings = complete(task, requested, source=source)
    label_map = formats.label_map(names, are_named=_has_names(source, column, names, settings, task))
    if not label_map:
        print(
            f"{column} keeps its numbers, because some names contain a comma or =: {', '.join(names)}", file=sys.stderr
        )
        return task
    return definition.choose({**options, "label_map": label_map})


def _has_names(source: Resolved, column: str, names: Sequence[str], settings: Settings, task: ChosenTask) -> bool:
    """Check whether the first rows have class names in a column, instead of class numbers."""
    element = blocks.match(source.files, task.pairs)[0]
    if formats.family(source.files[0].name) == "parquet":  # its schema says that values are numbers
        return False
    block = next(row_limit.scan(LimitedFile(element), settings, task.task.corpus), None)
    values = [row.record.get(column) for row in blocks.read(block, columns=[column]) if row.record] if block else []
    return any(leaf in names for value in values for leaf in (value if isinstance(value, list) else [value]))


def with_found_classes(definition: Definition, task: ChosenTask, settings: Settings, *, source: Resolved) -> ChosenTask:
    """Return the task with the distinct values of its targets' column as classes, sorted as numbers or as words.

    All rows are read once. Only tasks with the options `label_map` and `targets_column` are changed. Raises
    UsageError if there are too many values, or if they cannot be class names.
    """
    options = fields.plain(task.options)
    column = _column_of_classes(options)
    if not source.files or not column:
        return task
    class_values, reason = set[str](), ""
    # Classes come from examples instead of raw values, so that they equal the targets that preparing makes.
    examples_of, split_names = BlockExamples(settings, task), _head_target(settings.target).split_names
    for file in row_limit.limited_files(source.files, settings, task):
        for block in row_limit.scan(file, settings, task.task.corpus):
            examples = examples_of(block)
            reason = reason or next(iter(example_table.reasons_of(examples).values()), "")
            targets = examples["target"].filter(examples["reason"].is_null()).combine_chunks()
            class_values.update(pc.unique(split_names(targets).values).to_pylist())
            if len(class_values) > MOST_CLASSES:
                raise UsageError(
                    f"{column} has more than {MOST_CLASSES:,} different values, which is too many for classes. "
                    "Name another --targets-column, or prepare the dataset for a T5 (--tokenizer "
                    "google-t5/t5-base).",
                    code="column.excess-classes",
                )
    if not class_values and reason:
        raise SourceError(
            f"{column} has no classes, because no row makes an example. The first row was rejected: {reason}",
            code="row.example-missing",
        )
    names = sorted(
        labels.distinct(class_values),
        key=lambda name: (0, int(name), name) if _NUMBER.fullmatch(name) else (1, 0, name),
    )
    if wrong := [name for name in names if "," in name or "=" in name]:
        raise UsageError(
            f'{column} has the value "{wrong[0][:60]}", but the name of a class cannot contain a comma or '
            "=. Change the value in the source.",
            code="column.invalid-class",
        )
    if names:
        print(
            f"{column} has {len(names):,} classes: {', '.join(names[:20])}{', …' if len(names) > 20 else ''}",
            file=sys.stderr,
        )
    return definition.choose({**options, "label_map": ",".join(f"{name}={name}" for name in names)})


def with_card_options(source: Resolved, requested: Settings) -> Settings:
    """Return the settings with the file options of the source's card that the user did not set, and print them on stderr.

    Raises SourceError for an option of a card that no setting can express.
    """
    options = requested.file_options
    completed = vars(formats.with_card(options, source))
    of_card = {name: value for name, value in completed.items() if value != getattr(options, name)}
    for name, value in of_card.items():
        shown_value = "tab" if value == "\t" else value
        print(f"Option from the dataset card: {fields.as_cli_option(name, shown_value)}", file=sys.stderr)
    return dataclasses.replace(requested, **of_card)


def with_splits(source: Resolved, task: ChosenTask, requested: Settings) -> Resolved:
    """Return the source with the files to read, each with its split. Other files are named on stderr.

    Raises UsageError or SourceError if the splits are unclear.
    """
    selected = row_limit.select_files(source, task, requested)
    for message in selected.messages:
        print(message, file=sys.stderr)
    if selected.splits and "train" not in selected.splits:
        print(
            f"The splits are {', '.join(sorted(selected.splits))}, and none is train. {split_names.ADVICE}",
            file=sys.stderr,
        )
    return selected.source


def with_labelled_files(source: Resolved, task: ChosenTask, requested: Settings) -> Resolved:
    """Return the source without files of evaluation splits that lack a column of targets. These are named on stderr.

    Files of a split are examined until one has the columns. The others are assumed to have them, too.
    """
    if not task.columns.targets or task.pairs or len({file.split for file in source.files}) < 2:
        return source
    settings = complete(task, requested, source=source)
    labelled_files = []
    unlabelled: dict[str, str] = {}
    is_known: set[str] = set()
    for file in source.files:
        if file.split not in ("", "train", *is_known):
            block = next(row_limit.scan(LimitedFile(file), settings, task.task.corpus), None)
            columns = block.columns if block else ()
            if columns and (lacks := rows.missing(task.columns.targets, columns)):
                inputs = [column for column in task.columns.all if column not in task.columns.targets]
                if not rows.missing(inputs, columns):
                    unlabelled[file.name] = lacks
                    continue
            is_known.add(file.split)
        labelled_files.append(file)
    if unlabelled:
        name, lacks = next(iter(unlabelled.items()))
        print(
            f"Skipping files without a target to evaluate: {list_names(list(unlabelled))} "
            f"({name} has no column {lacks.partition(';')[0]})",
            file=sys.stderr,
        )
    return dataclasses.replace(source, files=tuple(labelled_files))


# Conversion of splits given as numbers of rows into shares that draw exactly these numbers.


def with_counted_splits(settings: Settings, task: ChosenTask, *, source: Resolved) -> Settings:
    """Return the settings with shares instead of numbers of rows, or unchanged if they have no numbers.

    All rows are read once and made into examples, but not tokenized, because the exact share depends on the ids of
    all rows. The count includes near-duplicates, leaks, and rows that a filter of tokens rejects. Raises UsageError
    if there are too few rows.
    """
    held_out = settings.held_out is not None and settings.held_out > 1
    requested_splits = {"validation": settings.held_out} if held_out else settings.splits or {}
    if not row_counts(requested_splits):  # type: ignore[arg-type]
        return settings
    file_splits = source_files.splits_of(source.files) if held_out else {}
    if held_out and "validation" in file_splits.values():
        return dataclasses.replace(settings, held_out=None)
    all_splits = {**requested_splits, "train": 1.0} if held_out else requested_splits
    with atomic_files.temporary_folder() as folder:
        draws = _draws(settings, task, source=source, own_splits=file_splits, folder=Path(folder))
        shares = exact_shares(all_splits, draws)  # type: ignore[arg-type]
    if held_out:
        return dataclasses.replace(settings, held_out=shares["validation"])
    return dataclasses.replace(settings, splits=shares)


def exact_shares(splits: Mapping[str, float], draws: Iterable[np.ndarray]) -> dict[str, float]:
    """Return shares that add up to 1 and draw the requested numbers of rows. `draws` are sorted numbers in [0, 1], in parts.

    A split with a number of rows gets exactly this many distinct draws. Equal draws (of one group) stay together, and
    the split then gets at least this many. Splits with shares divide the remaining rows. Without any draws the shares
    are equal, because preparing then rejects each row with its reason. Raises UsageError.

    >>> exact_shares({"validation": 2, "train": 1.0}, [np.array([0.1, 0.3]), np.array([0.5, 0.9])])
    {'validation': 0.4, 'train': 0.6}
    """
    counts = row_counts(splits)
    edges, rows, remaining_counts = [0.0], 0, list(counts.values())
    different, numbers = np.zeros(0), np.zeros(0, np.int64)
    for part in draws:
        unique_draws, often = np.unique(part, return_counts=True)
        # 1 if the last draw of the part before this one occurs in this part too.
        overlap_count = int(len(different) > 0 and unique_draws[0] == different[-1])
        numbers[-1:] += often[:overlap_count].sum()
        different, numbers = (
            np.append(different[-1:], unique_draws[overlap_count:]),
            np.append(numbers[-1:], often[overlap_count:]),
        )
        reached = rows + np.cumsum(numbers)
        # An edge needs the draw after it, so the last draw of a part waits for the next part.
        while (
            remaining_counts and (index := int(np.searchsorted(reached[:-1], remaining_counts[0]))) < len(reached) - 1
        ):
            # Halfway between two draws, so that rounding moves no row into the other split.
            edges.append(float((different[index] + different[index + 1]) / 2))
            remaining_counts = [int(reached[index]) + count for count in remaining_counts[1:2]] + remaining_counts[2:]
        rows = int(reached[-1] - numbers[-1])
    rows += int(numbers[-1:].sum())
    if not rows:
        return {name: 1 / len(splits) for name in splits}
    if remaining_counts:
        name = list(counts)[-len(remaining_counts)]
        raise UsageError(
            f"--splits {name}={counts[name]} is too large: only {rows:,} rows make an example, and the "
            "other splits need some of them. Use a smaller number.",
            code="split.insufficient-rows",
        )
    remaining_share = 1 - edges[-1]
    exact = {name: edges[index + 1] - edges[index] for index, name in enumerate(counts)}
    return exact | {name: share * remaining_share for name, share in splits.items() if name not in counts}


def _draws(
    settings: Settings, task: ChosenTask, *, source: Resolved, own_splits: Mapping[str, str], folder: Path
) -> Iterator[np.ndarray]:
    """Yield the sorted numbers in [0, 1] that draw the splits of all distinct rows, in parts, `float64[n]`.

    A row is identified by 64 bits of its position, and drawn by 64 bits of the digest of its id or group. Of equal
    rows with different draws the smallest one counts. Data that exceeds memory is in files in `folder`.
    """
    row_pairs = SortedPairs(folder / "rows")
    for keys, ids, groups in _rows(settings, task, source=source, own_splits=own_splits):
        digests = placement.digests(keys, seed=settings.seed)
        drawn_by = digests if keys is ids else placement.digests(ids, seed=settings.seed)
        drawn_by = placement.by_group(groups, drawn_by, seed=settings.seed)
        pair = (placement.positions(digests)["high"], placement.drawing(drawn_by))
        row_pairs.add(np.stack(pair, axis=1).astype(np.uint64))
    draw_pairs, previous_key = SortedPairs(folder / "draws"), -1
    for part in row_pairs.all():
        first = np.append(int(part[0, 0]) != previous_key, part[1:, 0] != part[:-1, 0])
        previous_key = int(part[-1, 0])
        draw_pairs.add(part[first][:, ::-1])
    for part in draw_pairs.all():
        yield part[:, 0].astype(np.float64) / 2.0**64


def _rows(
    settings: Settings, task: ChosenTask, *, source: Resolved, own_splits: Mapping[str, str]
) -> Iterator[tuple[list[str], list[str], list[str | None]]]:
    """Yield, for each block of drawn files, the keys of positions, the ids and the groups of its examples."""
    examples_of, filters = BlockExamples(settings, task), Chain(settings.filter)
    for file in row_limit.limited_files(source.files, settings, task):
        if own_splits.get(blocks.files(file.element)[0].name, "train") != "train":
            continue
        for block in row_limit.scan(file, settings, task.task.corpus):
            yield _keys(examples_of(block), filters, block=block, by_text=settings.dedup == "exact")


def _keys(
    examples: pa.Table, filters: Chain, *, block: Block, by_text: bool
) -> tuple[list[str], list[str], list[str | None]]:
    """Return the keys of positions (texts if `by_text`, otherwise ids), the ids and the groups of a block's examples."""
    examples, reasons, _ = filters.of_table(examples)
    valid_rows = np.ones(len(examples), bool)
    valid_rows[list(reasons)] = False
    examples = examples.filter(pc.and_(pa.array(valid_rows), examples["split"].is_null())).combine_chunks()
    groups = examples["group"].to_pylist()
    places = (examples["row"].to_numpy() + block.first_row).tolist()
    numbered_ids = zip(examples["id"].to_pylist(), places, strict=True)
    ids = [f"{block.file.name}:{row_number}" if id is None else id for id, row_number in numbered_ids]
    if by_text:
        return list(map(earlier_datasets.digest, example_table.inputs_of(examples).lines().to_pylist())), ids, groups
    return ids, ids, groups
