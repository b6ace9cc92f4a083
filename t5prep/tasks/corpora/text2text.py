"""Any CSV, TSV, JSON lines or Parquet → its columns, named on the command line.

Example  t5prep prepare text2text --source mine.csv --inputs-column question --targets-column answer
         t5prep prepare text2text --source qa.jsonl --inputs "question: {q} context: {c}" --targets-column a --protect q
"""

import dataclasses
import functools
import string
from typing import Any

from t5prep.errors import Reject, UsageError
from t5prep.reading import rows
from t5prep.reading.rows import Record
from t5prep.tasks.example import Example, Protected
from t5prep.tasks.options import option
from t5prep.tasks.task import Columns, ColumnText, Corpus, Task, Template, TemplatePart, Words


@dataclasses.dataclass(frozen=True)
class Options:
    """The columns that make an example."""

    inputs_column: str = option("", "the column with the input text")
    targets_column: str = option("", "the column with the target text; a list holds several right answers")
    id_column: str = option("", "the column with a unique id; without it, the row's place in its file is the id")
    inputs: str = option("", 'a template of several columns, as in "question: {q} context: {c}"')
    targets: str = option("", "the same for the target")
    label_map: str = option(
        "", "what the values of the targets' column mean, as in 0=negative,1=positive; others are rejected"
    )
    empty_target: str = option(
        "", 'the target of rows that have none, as "no answer" for unanswerable questions; otherwise they are rejected'
    )
    line_pairs: str = option(
        "", "endings of two files whose lines belong together, as in .en,.de: the columns are source and target"
    )
    protect: tuple[str, ...] = option(
        (), "a column that is never cut; the template's own words are then not cut either"
    )


def to_inputs(record: Record, options: Options) -> Example:
    """Return one row without its target. Raises Reject for an empty one."""
    if not any(rows.text(record, column).strip() for column in input_columns(options)):
        raise Reject("empty input")
    id = rows.text(record, options.id_column, "") if options.id_column else ""
    given = [part for part in template(options).inputs if isinstance(part, TemplatePart)]
    parts = [(_filled(part.words, record), part.protected) for part in given]
    return Example(id or None, tuple(Protected(text) if protected else text for text, protected in parts), targets="")


def to_example(record: Record, options: Options) -> Example:
    """Return one row with its target. Raises Reject if the input, the target or the id is empty."""
    references: tuple[str, ...] = ()
    if options.targets:
        target = _filled(template(options).target, record)
    else:
        answers = record[options.targets_column]
        if isinstance(answers, list | tuple):
            references = tuple(_text(answer) for answer in answers)
            target = references[0] if references else ""
        else:
            target = rows.text(record, options.targets_column)
    if not target.strip():
        if not options.empty_target:
            raise Reject('empty target: give such rows one by --empty-target "no answer"')
        target, references = options.empty_target, ()
    elif words := label_words(options):
        if target not in words:
            raise Reject(f"unknown label: {target!r} is not one of {', '.join(words)}")
        target, references = words[target], tuple(words.get(answer, answer) for answer in references)
    asked = to_inputs(record, options)
    if options.id_column and not rows.text(record, options.id_column):
        raise Reject("empty id")
    return Example(id=asked.id, inputs=asked.inputs, targets=target, references=references)


def label_words(options: Options) -> dict[str, str]:
    """Return the word of each value of the targets' column; none where there is no map. Raises UsageError.

    >>> label_words(Options(targets_column="label", label_map="0=negative, 1=positive"))
    {'0': 'negative', '1': 'positive'}
    """
    if not options.label_map:
        return {}
    pairs = [part.strip().partition("=") for part in options.label_map.split(",")]
    words = {value.strip(): word.strip() for value, _, word in pairs}
    if len(words) != len(pairs) or not all(value and word for value, word in words.items()):
        raise UsageError(
            f'--label-map "{options.label_map}": it is each value once with its word, as in 0=negative,1=positive'
        )
    if options.targets:
        raise UsageError("--label-map is for the values of one column: say it with --targets-column, not --targets")
    return words


@functools.cache
def template(options: Options) -> Template:
    """Return the same example as columns.

    Where a column is protected, so are the words around the columns, or a cut could remove them. Protected neighbours
    become one text and are tokenized as one: `question: ` and its question.
    """
    protected = {"", *options.protect} if options.protect else set()
    inputs: list[TemplatePart] = []
    for words, column in _pieces(_inputs(options)):
        word = ColumnText(column) if column else words
        if column not in protected:
            inputs.append(TemplatePart((word,)))
        elif inputs and inputs[-1].protected:
            inputs[-1] = TemplatePart((*inputs[-1].words, word), protected=True)
        else:
            inputs.append(TemplatePart((word,), protected=True))
    target = tuple(ColumnText(column) if column else words for words, column in _pieces(_targets(options)))
    return Template(tuple(inputs), target=target, labels=label_words(options), id=options.id_column)


def _pieces(side: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return a side's own words and columns, in order and apart: either of each pair is ""."""
    return [piece for words, column in side for piece in ((words, ""), ("", column)) if any(piece)]


def _filled(words: Words, record: Record) -> str:
    """Return the text of some words and columns in a row."""
    return "".join(rows.text(record, word.name) if isinstance(word, ColumnText) else word for word in words)


def _inputs(options: Options) -> list[tuple[str, str]]:
    """Return the template's own words, each with the column behind them: for one column alone, that one, whatever its name."""
    return _parsed(options.inputs) if options.inputs else [("", options.inputs_column)]


def _targets(options: Options) -> list[tuple[str, str]]:
    """Return the same of the target."""
    return _parsed(options.targets) if options.targets else [("", options.targets_column)]


def _parsed(template: str) -> list[tuple[str, str]]:
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(
            f'the template "{template}" is broken ({error}). Columns stand in braces: {{question}}'
        ) from None
    columns = [column for _, column, _, _ in pieces if column is not None]
    if not all(columns) or not columns:
        alone = template if template.isidentifier() else "question"
        raise UsageError(f'the template "{template}" names no column. Columns stand in braces, as in "{{{alone}}}"')
    for _, column, form, conversion in pieces:
        if form or conversion:
            raise UsageError(
                f'the template "{template}" gives the column {column} a form, and its text is used as it is. '
                f"Write {{{column}}}"
            )
    return [(words, column or "") for words, column, _, _ in pieces]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def input_columns(options: Options) -> list[str]:
    """Return the columns of the input."""
    return [column for _, column in _inputs(options) if column]


def columns(options: Options) -> Columns:
    """Return the columns that are read. Raises UsageError when the options do not name them."""
    for what, column, template in (
        ("inputs", options.inputs_column, options.inputs),
        ("targets", options.targets_column, options.targets),
    ):
        if bool(column) == bool(template):
            raise UsageError(f'say what the {what} are: either --{what}-column NAME or --{what} "... {{NAME}} ..."')
    inputs = tuple(dict.fromkeys(input_columns(options)))
    label_words(options)
    for column in options.protect:
        if column not in inputs:
            raise UsageError(f"--protect {column}: the inputs have no such column; they have {', '.join(inputs)}")
    targets = tuple(dict.fromkeys(column for _, column in _targets(options) if column and column not in inputs))
    return Columns(inputs=inputs, targets=targets, id="" if options.id_column in inputs else options.id_column)


def line_pairs(options: Options) -> tuple[tuple[str, str], ...]:
    """Return the endings of files that belong together. Raises UsageError for what is not two endings.

    >>> line_pairs(Options(line_pairs=".en,.de"))
    (('.en', '.de'),)
    """
    if not options.line_pairs:
        return ()
    endings = [ending.strip() for ending in options.line_pairs.split(",")]
    if len(endings) != 2 or not all(endings) or endings[0] == endings[1]:
        raise UsageError(f'--line-pairs "{options.line_pairs}": it is two endings of file names, as in .en,.de')
    return ((endings[0], endings[1]),)


TASK = Task(
    to_example=to_example,
    template=template,
    to_inputs=to_inputs,
    columns=columns,
    options=Options,
    corpus=Corpus(pairs=line_pairs),
    classes=lambda options: tuple(dict.fromkeys(label_words(options).values())),
)
