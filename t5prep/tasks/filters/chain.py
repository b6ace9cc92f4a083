"""Parse the values of `--filter`, load a filter from a user's file, try filters on texts, and apply them to examples."""

import contextlib
import dataclasses
import hashlib
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from t5prep.errors import Reject, T5prepError, UsageError, did_you_mean
from t5prep.json_values import JSON
from t5prep.tasks import example_table
from t5prep.tasks.example import Example, Part, Protected, Trace, text_of
from t5prep.tasks.filters import rules


@dataclasses.dataclass(frozen=True)
class OwnFilter:
    """A filter by a user's function, which takes a text and returns the changed text, or raises Reject.

    `name` is the filter's name in messages, and `files` holds the path of the function's file.
    """

    function: Callable[[str], str]
    name: str
    files: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """Return the function's result. Raises Reject, and UsageError if the function fails or returns no text."""
        try:
            result = self.function(text)
        except (Reject, T5prepError):
            raise
        except (Exception, SystemExit) as error:
            excerpt = " ".join(text.split())[:60]
            raise UsageError(
                f'--filter {self.name} failed on the text "{excerpt}" ({type(error).__name__}: {error}). '
                "Correct the function, or raise Reject(why) for such texts.",
                code="filter.failure",
            ) from error
        if not isinstance(result, str):
            raise UsageError(
                f"--filter {self.name} returned {result!r} instead of text. Return a str, or raise Reject(why).",
                code="filter.invalid-result",
            )
        return result


def load(path: str, name: str) -> OwnFilter:
    """Execute the Python file at `path`, and return its function `name` as a filter. Raises UsageError."""
    try:
        source = rules.read(path)
    except OSError as error:
        raise UsageError(
            f"--filter {path}:{name}: the file cannot be read ({error.strerror})", code="filter.unreadable"
        ) from None
    module = types.ModuleType(Path(path).stem)
    module.__file__ = path
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"--filter {path}:{name}: the file cannot be run ({type(error).__name__}: {error})",
            code="filter.import-failure",
        ) from error
    functions = [key for key, value in vars(module).items() if isinstance(value, types.FunctionType)]
    if not callable(function := getattr(module, name, None)):
        has = f" It has: {', '.join(functions)}" if functions else ""
        raise UsageError(
            f'--filter {path}:{name}: the file has no function "{name}".{did_you_mean(name, functions)}{has}',
            code="filter.missing-function",
        )
    return OwnFilter(function, f"{path}:{name}", (path,))


# The following functions parse a text such as `gopher:least_words=20`: a filter's name, and settings that are not defaults.

Filter = Callable[[str], str]


def names() -> list[str]:
    """Return the names of all built-in filters, sorted."""
    return sorted(rules.FILTERS)


def cls(name: str) -> type:
    """Return the class of the built-in filter `name`. Raises UsageError."""
    if name not in rules.FILTERS:
        raise UsageError(
            f'No filter is named "{name}".{did_you_mean(name, names())} List all filters: t5prep filter',
            code="filter.unknown",
        )
    return rules.FILTERS[name]


def parse(text: str) -> tuple[str, Filter]:
    """Return the name of a filter, with which its reasons begin, and the filter. Raises UsageError.

    >>> parse("words:least=3,most=20")
    ('words', Words(least=3, most=20))
    >>> parse("pattern:drop=a{2,3},b")[1].drop
    'a{2,3},b'
    """
    name, _, arguments = text.partition(":")
    if name.endswith(".py"):
        return f"{Path(name).stem}.{arguments}", load(name, arguments)
    kind = cls(name)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, str | int | float] = {}
    for part in re.split(rf",(?=(?:{'|'.join(fields)})=)", arguments) if arguments else []:
        key, equals, value = part.partition("=")
        if key not in fields or not equals:
            raise UsageError(
                f'--filter "{text}" contains "{part}", which is not a setting of the form '
                f"NAME=VALUE.{did_you_mean(key, fields)} Choose a setting of {name}: {', '.join(fields)}",
                code="filter.unknown-setting",
            )
        values[key] = _value(fields[key], value, text=text)
    return name, kind(**values)


def _value(field: dataclasses.Field, value: str, *, text: str) -> str | int | float:
    """Return the value of a filter's setting from its text `value`. `text` is the whole filter, for errors. Raises UsageError."""
    choices = field.metadata["choices"]
    if choices and value not in choices:
        raise UsageError(
            f'--filter "{text}" has an invalid {field.name}. Choose one of: {", ".join(choices)}',
            code="filter.invalid-value",
        )
    kind = type(field.default)
    if kind is str:
        return value
    with contextlib.suppress(ValueError):
        number = int(value) if kind is int else float(value)
        if 0 <= number < math.inf:
            return number
    number_kind = "a whole number" if kind is int else "a number"
    raise UsageError(
        f'--filter "{text}" has the invalid {field.name} "{value}". Use {number_kind} of at least 0.',
        code="filter.invalid-value",
    )


def changes_texts(text: str) -> bool:
    """Check whether the filter `text` can change a text. Its files and libraries may be missing here, so they are not opened.

    >>> changes_texts("addresses"), changes_texts("addresses:do=drop"), changes_texts("gopher"), changes_texts("mine.py:f")
    (True, False, False, True)
    """
    name = text.partition(":")[0]
    if name.endswith(".py"):
        return True
    changes = getattr(cls(name), "changes_texts", False)
    return changes if isinstance(changes, bool) else bool(getattr(parse(text)[1], "changes_texts", False))


def code_files(texts: Iterable[str]) -> list[str]:
    """Return the Python files in the filters `texts`, without executing them.

    >>> code_files(["words:least=3", "mine.py:shorter"])
    ['mine.py']
    """
    return [path for path in (text.partition(":")[0] for text in texts) if path.endswith(".py")]


# The following functions try filters on some texts before a long run.

# The maximum number of rejected texts that are shown for each filter, and the characters that are shown of each.
MAX_EXAMPLES, CHARACTERS = 3, 100


@dataclasses.dataclass
class Outcome:
    """The result of one filter in a trial.

    `texts` counts the texts that reached the filter, `rejected` those that it rejected, with their `words`, and `changed` those
    that it changed. `reasons` counts the rejected texts by reason. `examples` holds some of them: (reason, beginning of the text).
    """

    filter: str
    texts: int = 0
    rejected: int = 0
    words: int = 0
    changed: int = 0
    reasons: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: list[tuple[str, str]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Trial:
    """The results of all filters, in their order: the numbers of texts and words before, and those that passed all filters."""

    texts: int
    words: int
    kept: int
    kept_words: int
    outcomes: list[Outcome]

    def to_json(self) -> dict[str, JSON]:
        """Return the trial as a JSON object."""
        return dataclasses.asdict(self)


def attempt(texts: Iterable[str], filters: Sequence[str]) -> Trial:
    """Apply `filters` to each of `texts`, in the order of the filters, and return the results. Raises UsageError."""
    parsed = [parse(text)[1] for text in filters]
    trial = Trial(0, 0, 0, 0, [Outcome(text) for text in filters])
    for text in texts:
        words = len(text.split())
        trial.texts += 1
        trial.words += words
        for filter, outcome in zip(parsed, trial.outcomes, strict=True):
            outcome.texts += 1
            try:
                filtered_text = filter(text)
            except Reject as reject:
                _count(outcome, text, str(reject))
                break
            outcome.changed += filtered_text != text
            text = filtered_text
        else:
            trial.kept += 1
            trial.kept_words += len(text.split())
    return trial


def _count(outcome: Outcome, text: str, reason: str) -> None:
    outcome.rejected += 1
    outcome.words += len(text.split())
    key = reason.partition(":")[0]
    outcome.reasons[key] = outcome.reasons.get(key, 0) + 1
    if len(outcome.examples) < MAX_EXAMPLES and outcome.reasons[key] == 1:
        outcome.examples.append((reason, " ".join(text.split())[:CHARACTERS]))


# The following classes apply several filters, one after the other, to the texts of an example.


class Filtered(NamedTuple):
    """An example after filters: the `reason` if it was rejected, else "", and the names of the filters that changed it."""

    example: Example
    reason: str = ""
    changed: tuple[str, ...] = ()


class FilteredTable(NamedTuple):
    """A table of examples (example_table.SCHEMA) after filters, and the `reasons` of rejected rows, by their index.

    `changed` holds for each row the names of the filters that changed it, or None. It is None if there are no filters.
    """

    examples: pa.Table
    reasons: dict[int, str]
    changed: list[tuple[str, ...] | None] | None


class Chain:
    """Apply several filters in their order.

    `judges_tokens`: whether any filter judges the number of tokens, which is known only after tokenizing.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        """Parse the filters `texts`. Raises UsageError."""
        self._texts, self._filters = texts, [parse(text) for text in texts]
        self.judges_tokens = any(hasattr(filter, "judge_tokens") for _, filter in self._filters)

    @classmethod
    def changing_texts(cls, texts: Sequence[str], *, files: Mapping[str, bytes]) -> "Chain | None":
        """Return the chain of those filters in `texts` that can change a text; None if there are none.

        `files` holds the contents of the files that they read, by path. Raises UsageError if a file is missing in it.
        """
        chosen = list(filter(changes_texts, texts))
        with rules.reading(files):
            return cls(chosen) if chosen else None

    def __call__(self, example: Example, trace: Trace | None = None) -> Filtered:
        """Return the example after all filters, or the reason of the first filter that rejects it.

        The parts of an input are judged as one text, each part on a separate line. A filter that changes texts changes each part
        separately; one that masks changes targets and references too. `trace` records the effect of each filter.
        """
        changed: list[str] = []
        for text, (name, filter) in zip(self._texts, self._filters, strict=True):
            previous_example, reason = example, ""
            try:
                example = _applied(filter, example)
            except Reject as reject:
                reason = f"{name} {reject}"
            if trace is not None:
                trace.filters.append((text, previous_example, example, reason))
            if reason:
                return Filtered(example, reason)
            if example != previous_example:
                changed.append(name)
        return Filtered(example, changed=tuple(changed))

    def of_table(self, examples: pa.Table, trace: Trace | None = None) -> FilteredTable:
        """Return a table of examples after all filters. Rows without an example do not change."""
        if not self._filters:
            return FilteredTable(examples, example_table.reasons_of(examples), None)
        unfiltered_examples = example_table.examples_of(examples)
        filtered = [None if isinstance(candidate, str) else self(candidate, trace) for candidate in unfiltered_examples]
        filtered_examples = [
            old if new is None else new.example for old, new in zip(unfiltered_examples, filtered, strict=True)
        ]
        if filtered_examples != unfiltered_examples:
            id_columns = {name: examples[name].to_pylist() for name in ("record_id", "group")}
            examples = example_table.made_of(examples["row"].to_pylist(), filtered_examples, **id_columns)
        reasons = {row: candidate.reason for row, candidate in enumerate(filtered) if candidate and candidate.reason}
        reasons |= example_table.reasons_of(examples)
        return FilteredTable(examples, reasons, [(candidate and candidate.changed) or None for candidate in filtered])

    def judge_tokens(self, count: int) -> str:
        """Return the reason for rejecting an input of `count` tokens; "" if no filter rejects it."""
        for name, filter in self._filters:
            if judge := getattr(filter, "judge_tokens", None):
                try:
                    judge(count)
                except Reject as reject:
                    return f"{name} {reject}"
        return ""

    def files(self) -> dict[str, str]:
        """Return the paths of the users' files that the filters read → their SHA-256 (hex)."""
        paths = [path for _, filter in self._filters for path in getattr(filter, "files", ())]
        return {path: hashlib.sha256(rules.read(path)).hexdigest() for path in paths}


def _applied(filter: Filter, example: Example) -> Example:
    """Return the example with its texts changed by `filter`. Raises Reject.

    A filter that masks changes targets and references too, others only the inputs.
    """
    if getattr(filter, "masks", False):
        return dataclasses.replace(
            example,
            inputs=_parts(filter, example.inputs),
            targets=filter(example.targets),
            references=tuple(map(filter, example.references)),
        )
    text = text_of(example.inputs)
    if (filtered_text := filter(text)) == text:
        return example
    return dataclasses.replace(
        example, inputs=filtered_text if isinstance(example.inputs, str) else _parts(filter, example.inputs)
    )


def _parts(filter: Filter, inputs: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    if isinstance(inputs, str):
        return filter(inputs)
    return tuple(
        Protected(filter(part.text)) if isinstance(part, Protected) else filter(part) if isinstance(part, str) else part
        for part in inputs
    )
