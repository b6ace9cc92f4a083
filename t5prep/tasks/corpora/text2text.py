"""Your own table: CSV, TSV, JSON lines or Parquet.

Example  t5prep prepare text2text --source mine.csv --inputs-column question --targets-column answer
         t5prep prepare text2text --source qa.jsonl --inputs "question: {q} context: {c}" --targets-column a --protect q
         t5prep prepare text2text --source ner.jsonl --inputs-column tokens --tags-column ner_tags --tokenizer bert-base-cased
"""

import dataclasses
import functools
import string

from t5prep.errors import Reject, UsageError
from t5prep.options.fields import option
from t5prep.reading import rows
from t5prep.reading.rows import Record
from t5prep.tasks import labels
from t5prep.tasks.example import EOS, Example
from t5prep.tasks.example_table import SPACE_IN_WORD
from t5prep.tasks.targets import TARGETS
from t5prep.tasks.task import Columns, ColumnText, Corpus, Task, Template, TemplatePart, filled

# Texts in a column of 0 and 1 → their meaning. Parquet has truth values, and pandas writes 1.0 in a column with empty cells.
FLAGS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


@dataclasses.dataclass(frozen=True)
class Options:
    """The columns that make an example."""

    inputs_column: str = option("", "column with the input text")
    targets_column: str = option("", "column with the target text; a list holds several correct answers")
    id_column: str = option("", "column with a unique id [default: FILE:ROW]")
    inputs: str = option("", 'input template of several columns: "question: {q} context: {c}"')
    targets: str = option("", "target template of several columns")
    second_column: str = option("", "column with the second text of a pair")
    tags_column: str = option(
        "",
        (
            "instead of a target: column with a tag for each word of the input; both columns hold lists, or texts "
            "separated by spaces"
        ),
    )
    labels_column: str = option(
        "",
        (
            "instead of a target: column with any number of labels, as a list or a text; or one column of 0 and 1 for "
            "each label: toxic,insult,threat"
        ),
    )
    label_separator: str = option(
        ",", "with --labels-column: separator of the labels in a text", only_with={"labels_column": ()}
    )
    number_column: str = option("", "instead of a target: column with a number")
    label_map: str = option(
        "",
        (
            "words for the values of the target column, such as 0=negative,1=positive; rows with other values are rejected"
        ),
    )
    empty_target: str = option(
        "",
        'target for rows without one, such as "no answer" [default: reject such rows]',
        only_with=dict.fromkeys(("targets_column", "targets", "tags_column", "number_column"), ()),
    )
    line_pairs: str = option(
        "", "suffixes of two line-aligned files, such as .en,.de; their columns are source and target"
    )
    protect: tuple[str, ...] = option((), "column that is never cut, together with the words of the template")


def to_inputs(record: Record, options: Options) -> Example:
    """Return the input of a row without its target. Raises Reject if it is empty."""
    if options.tags_column:  # the words come from a list or a text, and are joined by single spaces
        column = options.inputs_column
        value = record.get(column)
        words = value if isinstance(value, list | tuple) else rows.text(record, column, "").split()
        record = {**record, column: " ".join(SPACE_IN_WORD.join(rows.as_text(word).split()) for word in words)}
    return template(options).input_of(record)


def to_example(record: Record, options: Options) -> Example:
    """Return the example of a row. Raises Reject if the input, the target or the id is empty, or a label is unknown."""
    references: tuple[str, ...] = ()
    kind, words = target_of(options), label_words(options)
    if kind == "number":
        target = rows.text(record, options.number_column, "").strip()
    elif kind:
        target = _names(record, options, kind, words)
    elif options.targets:
        target = filled(template(options).target, record)
    else:
        answers = record.get(options.targets_column)
        if isinstance(answers, list | tuple):
            # A null in a list is not an answer: as an empty text it would make an empty prediction correct.
            references = tuple(rows.as_text(answer) for answer in answers if answer is not None)
            target = references[0] if references else ""
        else:
            target = rows.text(record, options.targets_column, "")
    if not target.strip() and kind != "labels":
        if not options.empty_target:
            raise Reject('empty target: give such rows one by --empty-target "no answer"')
        target, references = options.empty_target, ()
    elif words and not kind:
        if (label := labels.find(target, words)) is None:
            raise Reject(f"unknown label: {target!r} is not one of {', '.join(words)}")
        references = tuple(labels.find(answer, words) or answer for answer in references)
        if len(set(references)) > 1:
            raise Reject(f"several labels: {', '.join(references)}. A model learns several of a row by --labels-column")
        target = label
    input_example = to_inputs(record, options)
    if options.id_column and not input_example.id:
        raise Reject("empty id")
    return Example(id=input_example.id, inputs=input_example.inputs, targets=target, references=references)


def _names(record: Record, options: Options, kind: str, words: dict[str, str]) -> str:
    """Return the tags or labels of a row as the text of a target. Raises Reject for an invalid or unknown one.

    kind: "tags" or "labels". words: the map of `label_words`.
    """
    flags = flag_columns(options)
    column = options.tags_column or options.labels_column
    flag_names: list[str] = []
    for flag in flags:
        text = rows.text(record, flag, "").strip().lower()
        if text not in FLAGS:
            raise Reject(f"neither 0 nor 1: {text!r} in {flag}")
        flag_names += [flag] if FLAGS[text] else []
    value = flag_names if flags else record.get(column)
    if not isinstance(value, list | tuple):
        text = rows.text(record, column, "")
        value = text.split(options.label_separator if kind == "labels" else None)
    separator = TARGETS[kind].separator
    names = [rows.as_text(name).strip() for name in value]
    names = [name for name in names if name or kind == "tags"]
    words_of_names = [labels.find(name, words) if words else name for name in names]
    for name, word in zip(names, words_of_names, strict=True):
        if word is None:
            raise Reject(f"unknown label: {name!r} is not one of {', '.join(list(words)[:20])}")
        if not name or separator in word:
            raise Reject(f"no name of a label: {name!r}")
    return separator.join(filter(None, words_of_names))


def flag_columns(options: Options) -> tuple[str, ...]:
    """Return the columns that each hold 0 or 1 for one label; none if a single column holds all labels.

    >>> flag_columns(Options(labels_column="toxic, insult"))
    ('toxic', 'insult')
    """
    columns = tuple(name.strip() for name in options.labels_column.split(","))
    return columns if len(columns) > 1 else ()


def target_of(options: Options) -> str:
    """Return the kind of the target, "tags", "labels" or "number"; "" for a text or one class."""
    return next(iter(_kinds(options)), "")


def _kinds(options: Options) -> list[str]:
    """Return the kinds of targets, besides texts and classes, for which the options name a column."""
    return [kind for kind, target in TARGETS.items() if target.column and getattr(options, target.column)]


def label_words(options: Options) -> dict[str, str]:
    """Return the value of the target column → its word, from `--label-map`; {} without one. Raises UsageError.

    >>> label_words(Options(targets_column="label", label_map="0=negative, 1=positive"))
    {'0': 'negative', '1': 'positive'}
    """
    if not options.label_map:
        return {}
    pairs = [part.strip().partition("=") for part in options.label_map.split(",")]
    words = {value.strip(): word.strip() for value, _, word in pairs}
    if len(words) != len(pairs) or not all(value and word for value, word in words.items()):
        raise UsageError(
            f'--label-map "{options.label_map}" has an incomplete or repeated entry. Write each value '
            "once with its word, as in 0=negative,1=positive",
            code="option.malformed",
        )
    if options.targets:
        raise UsageError(
            "--label-map needs a single column of values, but --targets is a template. Use "
            "--targets-column instead of --targets.",
            code="option.missing-prerequisite",
        )
    if options.number_column:
        raise UsageError(
            "--label-map is for labels, but --number-column contains numbers. Use either --label-map or "
            "--number-column, not both.",
            code="option.conflict",
        )
    return words


@functools.cache
def template(options: Options) -> Template:
    """Return the template of the examples that `to_example` makes.

    If any column is protected, so are the words of the template, because a cut could remove them. Neighbouring protected parts
    become one text and are tokenized together, such as `question: ` and its question.
    """
    protected = {"", *options.protect} if options.protect else set()
    inputs: list[TemplatePart] = []
    for words, column in _pieces(_input_template(options)):
        word = ColumnText(column, ("",)) if column else words
        if column not in protected:
            inputs.append(TemplatePart((word,)))
        elif inputs and inputs[-1].protected:
            inputs[-1] = TemplatePart((*inputs[-1].words, word), protected=True)
        else:
            inputs.append(TemplatePart((word,), protected=True))
    second = (EOS, TemplatePart((ColumnText(options.second_column, ("",)),))) if options.second_column else ()
    target = tuple(
        ColumnText(column, ("",)) if column else words for words, column in _pieces(_target_template(options))
    )
    return Template((*inputs, *second), target=target, labels=label_words(options), id=options.id_column)


def _pieces(side: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the words and columns of one side of the template in order, as pairs of which one element is ""."""
    return [piece for words, column in side for piece in ((words, ""), ("", column)) if any(piece)]


def _input_template(options: Options) -> list[tuple[str, str]]:
    """Return the input template as pairs: words, and the column whose text follows them ("" for none).

    A single `--inputs-column` is not parsed, because its name may contain braces.
    """
    return _parsed(options.inputs) if options.inputs else [("", options.inputs_column)]


def _target_template(options: Options) -> list[tuple[str, str]]:
    """Return the target template as pairs of words and a column, as `_input_template` does."""
    columns = (options.targets_column, options.tags_column, options.labels_column, options.number_column)
    if options.targets:
        return _parsed(options.targets)
    return [("", column) for column in flag_columns(options) or [next(filter(None, columns), "")]]


def _parsed(template: str) -> list[tuple[str, str]]:
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(
            f'The template "{template}" cannot be parsed ({error}). Write each column name in braces, as '
            "in {question}",
            code="option.invalid-template",
        ) from None
    columns = [column for _, column, _, _ in pieces if column is not None]
    if not all(columns) or not columns:
        alone = template if template.isidentifier() else "question"
        raise UsageError(
            f'The template "{template}" names no column. Write each column name in braces, as in "{{{alone}}}"',
            code="option.invalid-template",
        )
    for _, column, form, conversion in pieces:
        if form or conversion:
            raise UsageError(
                f'The template "{template}" formats the column {column}, but t5prep uses its text unchanged. '
                f"Write {{{column}}}",
                code="option.invalid-template",
            )
    return [(words, column or "") for words, column, _, _ in pieces]


def input_columns(options: Options) -> list[str]:
    """Return the columns of the input."""
    second = [options.second_column] if options.second_column else []
    return [column for _, column in _input_template(options) if column] + second


def columns(options: Options) -> Columns:
    """Return the columns that are read. Raises UsageError if options are missing or contradict each other."""
    target_kinds = _kinds(options)
    for side, column, template in (
        ("inputs", options.inputs_column, options.inputs),
        ("targets", options.targets_column, options.targets),
    ):
        if bool(column) == bool(template) and not (side == "targets" and target_kinds and not column):
            raise UsageError(
                f'The {side} need exactly one option. Use either --{side}-column NAME or --{side} "... {{NAME}} ..."',
                code="option.missing",
            )
    if len(set(flags := flag_columns(options))) < len(flags) or not all(flags):
        raise UsageError(
            f'--labels-column "{options.labels_column}" has an empty or repeated name. Name each column '
            "once, as in toxic,insult",
            code="option.malformed",
        )
    if len(target_kinds) > 1 or (target_kinds and (options.targets_column or options.targets)):
        raise UsageError(
            f"--{target_kinds[0]}-column already defines the target, but another option does so too. "
            "Remove the other option.",
            code="option.conflict",
        )
    if options.tags_column and (options.inputs or options.second_column or options.protect):
        raise UsageError(
            "--tags-column needs one column of words as its only input. Name it with --inputs-column, and "
            "remove the other input options.",
            code="option.missing-prerequisite",
        )
    inputs = tuple(dict.fromkeys(input_columns(options)))
    label_words(options)
    for column in options.protect:
        if column not in inputs:
            raise UsageError(
                f"--protect {column} is not a column of the inputs. Choose one of: {', '.join(inputs)}.",
                code="column.missing",
            )
    targets = tuple(dict.fromkeys(column for _, column in _target_template(options) if column and column not in inputs))
    return Columns(inputs=inputs, targets=targets, id="" if options.id_column in inputs else options.id_column)


def line_pairs(options: Options) -> tuple[tuple[str, str], ...]:
    """Return the pair of endings in `--line-pairs`, in a tuple; () without the option. Raises UsageError.

    >>> line_pairs(Options(line_pairs=".en,.de"))
    (('.en', '.de'),)
    """
    if not options.line_pairs:
        return ()
    endings = [ending.strip() for ending in options.line_pairs.split(",")]
    if len(endings) != 2 or not all(endings) or endings[0] == endings[1]:
        raise UsageError(
            f'--line-pairs "{options.line_pairs}" is not a pair of file name endings. Write two different '
            "endings, as in .en,.de",
            code="option.malformed",
        )
    return ((endings[0], endings[1]),)


TASK = Task(
    to_example=to_example,
    # Tags and labels may be lists, or texts that must be divided, so no template of columns of texts describes them.
    template=lambda options: None if options.tags_column or options.labels_column else template(options),
    to_inputs=to_inputs,
    columns=columns,
    options=Options,
    corpus=Corpus(pairs=line_pairs),
    classes=lambda options: tuple(dict.fromkeys(label_words(options).values())) or flag_columns(options),
    target=target_of,
)
