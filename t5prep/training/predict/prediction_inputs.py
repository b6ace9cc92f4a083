"""Turn raw rows into inputs of the task that a run was trained on: the only file where training uses the tasks."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from t5prep.dataset.manifest import Manifest
from t5prep.dataset.settings import Settings
from t5prep.errors import Reject, SourceError, T5prepError, UsageError
from t5prep.io import trusted_code
from t5prep.options.files import FileOptions
from t5prep.options.models import RowOptions
from t5prep.reading import blocks, column_checks, formats, rows, source_files
from t5prep.reading.blocks import Block
from t5prep.reading.rows import Column, Record, Row
from t5prep.sources import RawFile, Resolved, unpacked_name
from t5prep.tasks import registry
from t5prep.tasks.example import EOS, Example, Part, Protected
from t5prep.tasks.filters.chain import Chain
from t5prep.tasks.task import ChosenTask

if TYPE_CHECKING:  # `t5prep.training.api` reads this file, and starts without TensorFlow
    from t5prep.training.run.run import Model

EMPTY = "empty row"
# The column of a table that holds complete inputs, and the column of lines of text.
INPUT, LINE = "input", "text"
# The name of standard input. The ids of its rows have no file name in front of the row's number.
STDIN = "standard input"


@dataclasses.dataclass(frozen=True)
class Question:
    """One row to answer: its id, its input as an Example without a target (None, and the `reason`), and its columns."""

    id: str
    example: Example | None
    reason: str = ""
    row: Record = dataclasses.field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the input as readable text, with a space between its fields."""
        return text_of(self.example).strip() if self.example else ""


@dataclasses.dataclass(frozen=True)
class QuestionBuilder:
    """The way rows become inputs: by the task `name`, or unchanged if `name` is "".

    `to_inputs`: makes the input of a row, or raises Reject. `columns`: a row must have these. `id_column`: the column of the id,
    or "". `line_column`: the column that a line of a text file stands for; "" if an input needs several columns. `files`: the
    files of a corpus that the task reads. `pairs`: endings of files with inputs and with targets, line by line. `format`: the
    task's file format. `requires_uncut`: a cut input has no correct answer. `classes`: answers are one of a few words. `filters`:
    change the text of an input as they changed the training texts.
    """

    to_inputs: Callable[[Record], Example]
    columns: tuple[Column, ...]
    id_column: str
    line_column: str
    name: str = ""
    files: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    format: str = ""
    requires_uncut: bool = False
    classes: bool = False
    filters: Chain | None = None

    def question(self, record: Record, *, default_id: str) -> Question:
        """Return the question of a row; its id is `default_id` if the row has no id."""
        names = rows.names_of(self.columns)
        id_value = record.get(self.id_column) if self.id_column else None
        id = default_id if id_value in (None, "") else str(id_value)
        values = rows.with_paths(record, names)
        # Only an unchanged row may hold a list of texts.
        if self.name and (reason := rows.not_text(values, names)):
            return Question(id, None, reason, record)
        try:
            example = self.to_inputs(values)
        except Reject as reject:
            return Question(id, None, str(reject), record)
        except KeyError as error:
            if error.args[0] not in names:
                raise
            return Question(id, None, f"missing field: {error.args[0]}", record)
        if self.filters is not None:
            filtered = self.filters(example)
            if filtered.reason:
                return Question(example.id or id, None, filtered.reason, record)
            example = filtered.example
        return Question(example.id or id, example, row=record)


def choose(manifests: Sequence[Manifest], *, name: str = "") -> Manifest | None:
    """Return the manifest of the task `name`, or of the only task; None if the model has no manifest. Raises UsageError."""
    names = list(dict.fromkeys(manifest.settings.task for manifest in manifests))
    if name and name not in names:
        explanation = (
            f"Choose one of: {', '.join(names)}"
            if names
            else "The model has no manifest that names a task; remove --task"
        )
        raise UsageError(f"--task {name} is not a task of this model. {explanation}.", code="answer.unknown-task")
    if len(names) > 1 and not name:
        raise UsageError(
            f"This model was trained on several tasks: {', '.join(names)}. Name the task of these rows, "
            f"for example --task {names[0]}",
            code="answer.ambiguous-task",
        )
    return next((manifest for manifest in manifests if manifest.settings.task == (name or names[0])), None)


def question_builder_of(
    opened: "Model", manifest: Manifest | None, options: RowOptions, *, column: str = ""
) -> QuestionBuilder:
    """Return how the manifest's task, and the filters that changed texts, make inputs of rows.

    Only the filters apply if the task is not known, with `options.as_text`, or if a `column` with the inputs is named. Code
    that came with the model is executed only if this user has run it before, or with `options.trust_code`. Raises UsageError
    if neither is true, DatasetError if a file of code was altered, and TaskError.
    """
    filters = _filters(opened, manifest, trust_code=options.trust_code) if manifest else None
    if column:
        return unchanged_inputs(column, empty=True, filters=filters)
    definition = None
    if manifest is not None and not options.as_text:
        definition = _definition(opened, manifest, trust_code=options.trust_code)
    if manifest is None or definition is None:
        return unchanged_inputs(filters=filters)
    chosen_task = definition.choose(manifest.settings.options)
    if chosen_task.spans:
        return unchanged_inputs(filters=filters)
    make, columns = _input_maker(chosen_task)
    needed = [column for column in columns if isinstance(column, str) or "" not in column]
    line = (needed[0] if isinstance(needed[0], str) else needed[0][-1]) if len(needed) == 1 else ""
    return QuestionBuilder(
        to_inputs=make,
        columns=columns,
        id_column=chosen_task.columns.id_name,
        line_column=line,
        name=manifest.settings.task,
        files=chosen_task.files,
        pairs=chosen_task.pairs,
        format=chosen_task.task.corpus.format,
        requires_uncut=chosen_task.task.never_cut,
        classes=bool(chosen_task.classes),
        filters=filters,
    )


def _input_maker(chosen_task: ChosenTask) -> tuple[Callable[[Record], Example], tuple[Column, ...]]:
    """Return the function that makes an input of a row without a target, and the columns that it needs."""
    make = chosen_task.task.to_inputs or chosen_task.task.to_example
    columns = tuple(chosen_task.columns.inputs) if chosen_task.task.to_inputs else chosen_task.columns.all
    return lambda record: make(record, chosen_task.options), columns


def _filters(opened: "Model", manifest: Manifest, *, trust_code: bool) -> Chain | None:
    """Return the filters that changed the texts of a dataset; None if there are none.

    Raises UsageError if the model has no copy of a filter's file, or if this user has not run the filter's code.
    """
    copies = opened.filter_files.get(opened.manifests.index(manifest), {})
    for file in manifest.filter_files:
        if file not in copies:
            raise UsageError(
                f"{opened.name} was trained on texts that --filter changed with the file {file}, but it has "
                "no copy of that file. Copy the file into the run's folder: "
                f"{opened.copy_name(manifest, file)}",
                code="filter.missing-copy",
            )
        copy = copies[file]
        manifest.check_filter(copy.code, file=file, path=copy.path)
        if file.endswith(".py"):
            otherwise = "without it, the model would read other texts than in training."
            use = "change texts as a filter did before training"
            trusted_code.check(copy.code, path=copy.path, use=use, otherwise=otherwise, trusted=trust_code)
    files = {file: copy.code for file, copy in copies.items()}
    return Chain.changing_texts(manifest.settings.filter, files=files)


def _definition(opened: "Model", manifest: Manifest, *, trust_code: bool) -> registry.Definition | None:
    """Return the task that made a dataset: an installed one, or the model's copy of its file; None if neither exists."""
    facts = manifest.task
    if not facts.file:
        return registry.get_installed(manifest.settings.task) if manifest.settings.task in registry.names() else None
    task = opened.own_tasks.get(opened.manifests.index(manifest))
    if task is None:
        return None
    facts.check_code(task.code, path=task.path)
    use = f"make the inputs of rows, for the task {manifest.settings.task}"
    otherwise = "whole inputs need no code (--as-text)."
    trusted_code.check(task.code, path=task.path, use=use, otherwise=otherwise, trusted=trust_code)
    return registry.from_code(task.code, file=facts.file)


def prompt_of(opened: "Model", manifest: Manifest) -> str:
    """Return the template of a dataset's inputs, with columns in braces, such as `question: {q}`; "" if its task is unknown.

    The tokenizer's piece for EOS separates two fields. Code that came with the model is not executed.
    """
    try:
        definition = None if manifest.task.file else _definition(opened, manifest, trust_code=False)
        if definition is None or opened.tokenizer is None:
            return ""
        make, columns = _input_maker(definition.choose(manifest.settings.options))
        example = make({name: f"{{{name}}}" for name in rows.names_of(columns)})
    except (Reject, T5prepError, KeyError):
        return ""
    return text_of(example, eos=opened.tokenizer.piece(opened.tokenizer.eos_id))


def unchanged_inputs(column: str = INPUT, *, empty: bool = False, filters: Chain | None = None) -> QuestionBuilder:
    """Return the QuestionBuilder that uses rows unchanged: lines of text, or a `column` of a table with a text or a list of fields.

    `empty`: accept blank texts too.
    """
    make = functools.partial(_as_it_stands, column=column, empty=empty)
    return QuestionBuilder(
        to_inputs=make, columns=(column,), id_column="id", line_column=column, format="text", filters=filters
    )


def _as_it_stands(record: Record, *, column: str, empty: bool) -> Example:
    cell = record[column]
    fields = [cell] if isinstance(cell, str) else cell
    if not isinstance(fields, list | tuple) or not all(isinstance(field, str) for field in fields):
        raise Reject(f"no text: {column} is a text or a list of texts")
    if not empty and not any(field.strip() for field in fields):
        raise Reject("empty input")
    between: list[Part] = [part for field in fields for part in (EOS, field)]
    return Example(id=None, inputs=tuple(between[1:]), targets="")


class Rows:
    """Iterate over the questions of a source in order: one for each row, also for rows with an error.

    Args:
        source: The source.
        question_builder: How rows become inputs, if the first file has the needed columns.
        options: How files are read.
        trained: The settings of the model's data, from which choices come that `options` leave open; None if unknown.
        option: The command-line option that makes rows complete inputs, for messages.

    Attributes:
        source: The source with only the files that are read.
        question_builder: How rows become inputs, as decided from the first file's columns.
        columns: The columns of the first file.
        note: A message for the user about how rows are read; "" for none.

    Raises:
        SourceError: A table lacks the needed columns, or no file can be read.
        UsageError: A format is unknown.
    """

    def __init__(
        self,
        source: Resolved,
        question_builder: QuestionBuilder,
        *,
        options: RowOptions = RowOptions(),  # noqa: B008 - frozen
        trained: Settings | None = None,
        option: str = "--as-text",
    ) -> None:
        self._file_options = formats.with_card(options.files, source)
        self._trained = trained
        selected = source_files.select_split(
            source,
            options.split,
            kind=options.files.format,
            otherwise=source_files.ALL,
            any_format=bool(question_builder.pairs),
        )
        self.source, messages = selected
        # Files with the correct answers, such as `test.target` beside `test.source`, are not rows to answer.
        file_names = {unpacked_name(file.name) for file in self.source.files}
        answers = {
            name.removesuffix(left) + right
            for name in file_names
            for left, right in question_builder.pairs
            if name.endswith(left)
        }
        self._files = [file for file in self.source.files if unpacked_name(file.name) not in answers]
        if not self._files:
            raise SourceError(f"{source.uri} has no files with rows. Name another source.", code="source.files-missing")
        self.question_builder = question_builder
        self.columns: tuple[str, ...] = ()
        self._names: list[str] = []  # the model's columns, if the files have no header
        first = next(self._scan(self._files[0]), None)
        lines = first is not None and first.format.kind == "text"
        names = () if lines or first is None else blocks.column_names(first)
        if trained and trained.columns and first and first.format.headed and not self._fits(names, lines=lines):
            self._names = trained.file_options.names
            first = next(self._scan(self._files[0]), None)
            names = () if first is None else blocks.column_names(first)
        if question_builder.name and first and not self._fits(names, lines=lines):
            if not lines and INPUT not in names:
                missing = self._missing(first, names)
                raise SourceError(
                    f"{self._files[0].name} has no column {missing} The model's task, "
                    f"{question_builder.name}, needs this column. For complete inputs, name their column {INPUT}, or use "
                    f"{option}.",
                    code="column.missing",
                )
            needed_columns = ", ".join(rows.names_of(question_builder.columns))
            messages.append(
                f"Using the inputs unchanged: {question_builder.name} adds no prefix to them. To let the task build the inputs, pass "
                f"a table (--format csv or jsonl) with {needed_columns}. To confirm unchanged inputs, add {option}."
            )
            self.question_builder = unchanged_inputs(filters=question_builder.filters)
        elif not question_builder.name and first and not self._fits(names, lines=lines):
            raise SourceError(
                f"{self._files[0].name} has no column {self._missing(first, names)}", code="column.missing"
            )
        self.columns = (self.question_builder.line_column,) if lines else names
        self.note = "\n".join(messages)

    def __iter__(self) -> Iterator[Question]:
        for file in self._files:
            id_prefix = "" if unpacked_name(file.name) == STDIN else f"{file.name}:"
            for block in self._scan(file):
                for row in blocks.read(block):
                    yield self._question(row, default_id=f"{id_prefix}{row.number}")

    def _fits(self, names: Sequence[str], *, lines: bool) -> bool:
        return (
            bool(self.question_builder.line_column) if lines else not rows.missing(self.question_builder.columns, names)
        )

    def _missing(self, first: Block, names: Sequence[str]) -> str:
        """Return the end of a sentence: the first missing column, and advice on options that read the file differently."""
        columns = self.question_builder.columns
        return rows.missing(columns, names, advice=column_checks.advice(first, columns))

    def _scan(self, file: RawFile) -> Iterator[Block]:
        file_name = unpacked_name(file.name).lower()
        of_pair = any(file_name.endswith(suffix) for pair in self.question_builder.pairs for suffix in pair)
        says = file_name.endswith(tuple(formats.SUFFIXES))
        file_options = self._file_options
        kind = file_options.format or (
            "" if says else "text" if of_pair or file_name == STDIN else self.question_builder.format
        )
        form = formats.detect(file.name, dataclasses.replace(file_options, format=kind))
        if self._names and form.headed:
            form = dataclasses.replace(form, columns=tuple(self._names))
        prepared = self._trained.file_options if self._trained else FileOptions()
        yield from blocks.scan(file, blocks.complete_format(file, form, prepared, refuses_ambiguous=True))

    def _question(self, row: Row, *, default_id: str) -> Question:
        if row.record is None:
            return Question(default_id, None, row.reason or EMPTY)
        record = row.record
        if tuple(record) == (LINE,) and self.columns == (self.question_builder.line_column,):
            record = {self.question_builder.line_column: record[LINE]}
        return self.question_builder.question(record, default_id=default_id)


def text_of(example: Example, *, eos: str = " ") -> str:
    """Return an example's input as readable text: its parts in order, with `eos` for each EOS."""
    parts = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
    return "".join(eos if part is EOS else part.text if isinstance(part, Protected) else str(part) for part in parts)
