"""Read what `--filter` says, load a filter from a file of the user's, try filters on texts, and apply them to examples."""

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
    """Apply a function of the user's to texts: it returns the text that goes on, or raises Reject. `files` has its file."""

    function: Callable[[str], str]
    name: str
    files: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """Return what the function returns. Raises Reject, and UsageError if it returns no text."""
        try:
            result = self.function(text)
        except (Reject, T5prepError):
            raise
        except (Exception, SystemExit) as error:
            excerpt = " ".join(text.split())[:60]
            raise UsageError(
                f'--filter {self.name} fails at the text "{excerpt}" ({type(error).__name__}: {error})'
            ) from error
        if not isinstance(result, str):
            raise UsageError(f"--filter {self.name} returned {result!r}: it must return the text, or raise Reject(why)")
        return result


def load(path: str, name: str) -> OwnFilter:
    """Return the filter that is the function `name` of the Python file at `path`. Raises UsageError."""
    try:
        source = rules.read(path)
    except OSError as error:
        raise UsageError(f"--filter {path}:{name}: the file cannot be read ({error.strerror})") from None
    module = types.ModuleType(Path(path).stem)
    module.__file__ = path
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise UsageError(f"--filter {path}:{name}: the file cannot be run ({type(error).__name__}: {error})") from error
    functions = [key for key, value in vars(module).items() if isinstance(value, types.FunctionType)]
    if not callable(function := getattr(module, name, None)):
        has = f" It has: {', '.join(functions)}" if functions else ""
        raise UsageError(
            f'--filter {path}:{name}: the file has no function "{name}".{did_you_mean(name, functions)}{has}'
        )
    return OwnFilter(function, f"{path}:{name}", (path,))


# Read `gopher:least_words=20` as a filter: its name, and the settings that differ from its defaults.

Filter = Callable[[str], str]


def names() -> list[str]:
    """Return the names of all filters."""
    return sorted(rules.FILTERS)


def cls(name: str) -> type:
    """Return the class of a filter. Raises UsageError."""
    if name not in rules.FILTERS:
        raise UsageError(
            f'--filter "{name}": there is no such filter.{did_you_mean(name, names())} See all: t5prep filter'
        )
    return rules.FILTERS[name]


def parse(text: str) -> tuple[str, Filter]:
    """Return the name of a filter, as reasons begin with it, and the filter itself. Raises UsageError.

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
                f'--filter "{text}": "{part}" is not NAME=VALUE with one of its settings.{did_you_mean(key, fields)} '
                f"{name} has: {', '.join(fields)}"
            )
        values[key] = _value(fields[key], value, text=text)
    return name, kind(**values)


def _value(field: dataclasses.Field, value: str, *, text: str) -> str | int | float:
    """Return a setting's value from its text. Raises UsageError."""
    choices = field.metadata["choices"]
    if choices and value not in choices:
        raise UsageError(f'--filter "{text}": {field.name} is one of {", ".join(choices)}')
    kind = type(field.default)
    if kind is str:
        return value
    with contextlib.suppress(ValueError):
        number = int(value) if kind is int else float(value)
        if 0 <= number < math.inf:
            return number
    number_kind = "a whole number" if kind is int else "a number"
    raise UsageError(f'--filter "{text}": {field.name} is {number_kind} from 0 on, not "{value}"')


def changes_texts(text: str) -> bool:
    """Check whether a filter can change a text. Neither its files nor its library are opened, which may be missing here.

    >>> changes_texts("addresses"), changes_texts("addresses:do=drop"), changes_texts("gopher"), changes_texts("mine.py:f")
    (True, False, False, True)
    """
    name = text.partition(":")[0]
    if name.endswith(".py"):
        return True
    changes = getattr(cls(name), "changes_texts", False)
    return changes if isinstance(changes, bool) else bool(getattr(parse(text)[1], "changes_texts", False))


def code_files(texts: Iterable[str]) -> list[str]:
    """Return the Python files that filters name, without running them.

    >>> code_files(["words:least=3", "mine.py:shorter"])
    ['mine.py']
    """
    return [path for path in (text.partition(":")[0] for text in texts) if path.endswith(".py")]


# Try filters on some texts before a long run.

# The texts that are shown for each filter, and the characters of each.
MAX_EXAMPLES, CHARACTERS = 3, 100


@dataclasses.dataclass
class Outcome:
    """The result of one filter: how many texts it got, with how many words, and some of those that it rejected."""

    filter: str
    texts: int = 0
    rejected: int = 0
    words: int = 0
    changed: int = 0
    reasons: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: list[tuple[str, str]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Trial:
    """The results of all filters in their order, and how many texts and words are left of how many."""

    texts: int
    words: int
    kept: int
    kept_words: int
    outcomes: list[Outcome]

    def to_json(self) -> dict[str, JSON]:
        """Return all of it as JSON has it."""
        return dataclasses.asdict(self)


def attempt(texts: Iterable[str], filters: Sequence[str]) -> Trial:
    """Return what filters do to texts, in the order in which they are given. Raises UsageError for what is not a filter."""
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


# Apply several filters, one after the other, to the texts of an example.


class Filtered(NamedTuple):
    """An example as filters left it: why it is rejected ("" if it is not), and the names of those that changed it."""

    example: Example
    reason: str = ""
    changed: tuple[str, ...] = ()


class FilteredTable(NamedTuple):
    """A table of examples (example_table.SCHEMA) as filters left it, and the reason of each row that has one.

    `changed` are the names of the filters that changed each row, or None; None if there are no filters.
    """

    examples: pa.Table
    reasons: dict[int, str]
    changed: list[tuple[str, ...] | None] | None


class Chain:
    """Apply filters in the order in which they were given."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Raise UsageError for what is not a filter."""
        self._texts, self._filters = texts, [parse(text) for text in texts]
        self.judges_tokens = any(hasattr(filter, "judge_tokens") for _, filter in self._filters)

    @classmethod
    def changing_texts(cls, texts: Sequence[str], *, files: Mapping[str, bytes]) -> "Chain | None":
        """Return those filters that can change a text, None if there are none; `files` are the contents that they read, by path.

        Raises UsageError for a file that is missing.
        """
        chosen = list(filter(changes_texts, texts))
        with rules.reading(files):
            return cls(chosen) if chosen else None

    def __call__(self, example: Example, trace: Trace | None = None) -> Filtered:
        """Return the example as it goes on, and why it is rejected or who changed it; a `trace` notes each filter.

        An example of several parts is judged as one text, its parts in lines of their own. What changes a text changes
        each part by itself; what masks changes targets and references too.
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
        """Return a table of examples as it goes on; rows that made no example stay as they are."""
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
        """Return why an input of this number of tokens is rejected, or ""."""
        for name, filter in self._filters:
            if judge := getattr(filter, "judge_tokens", None):
                try:
                    judge(count)
                except Reject as reject:
                    return f"{name} {reject}"
        return ""

    def files(self) -> dict[str, str]:
        """Return the files of the user's that the filters read, and their SHA-256 (hex)."""
        paths = [path for _, filter in self._filters for path in getattr(filter, "files", ())]
        return {path: hashlib.sha256(rules.read(path)).hexdigest() for path in paths}


def _applied(filter: Filter, example: Example) -> Example:
    """Return the example with its texts as a filter returns them. Raises Reject."""
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
