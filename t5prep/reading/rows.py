"""Define a row of a source file, and check its values: what is no text is the reason why a row has no record."""

import datetime
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from t5prep.errors import Reject, did_you_mean

if TYPE_CHECKING:  # formats load pyarrow, and every command loads this module
    from t5prep.reading.formats import Format

# A value of a row, as JSON or Arrow gives it.
Value: TypeAlias = (
    "Mapping[str, Value] | Sequence[Value] | str | int | float | bool | Decimal | datetime.date | datetime.time"
    " | datetime.timedelta | bytes | None"
)
# One row as in its source: column name → value.
Record = Mapping[str, Value]
# A column: its name, or its names in different editions of a corpus, of which the first present one is read; "" at the
# end means that the column may be missing.
Column = str | tuple[str, ...]


# The first line of a table without names is a row, which may be long.
_MAX_NAME_LENGTH = 80


class Row(NamedTuple):
    """One row: its number in its file (from 1, without the header), and its record or the reason why it has none.

    A blank row has neither a record nor a reason.
    """

    number: int
    record: Record | None
    reason: str = ""

    @property
    def blank(self) -> bool:
        """Check whether this row is blank."""
        return self.record is None and not self.reason


def alternatives(column: Column) -> tuple[str, ...]:
    """Return the names that a column may have."""
    return (column,) if isinstance(column, str) else column


def names_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return all names that columns may have.

    >>> names_of([("sentence", "text"), "label", ("idx", "")])
    ('sentence', 'text', 'label', 'idx')
    """
    return tuple(name for column in columns for name in alternatives(column) if name)


def missing(columns: Sequence[Column], present_columns: Sequence[str], *, advice: str = "") -> str:
    """Return the first column that is missing under all its names, and the present columns, as the end of a sentence.

    Returns "" when none is missing. A sentence of `advice` stands in the place of a name that may be meant.

    >>> missing([("sentence", "text"), "label", ("idx", "")], ["id", "label"])
    '"sentence" or "text"; it has id, label.'
    >>> missing(["catgory"], ["category", "text"])
    '"catgory"; it has category, text. Did you mean "category"?'
    """
    for column in columns:
        names = alternatives(column)
        if not any(name in ("", *present_columns) or root(name) in present_columns for name in names):
            quoted = " or ".join(f'"{name}"' for name in names)
            shortened = ", ".join(name[:_MAX_NAME_LENGTH] for name in present_columns)
            return f"{quoted}; it has {shortened}.{advice or did_you_mean(names[0], present_columns)}"
    return ""


def root(name: str) -> str:
    """Return the column that a name begins in.

    >>> root("answers[].text"), root("question")
    ('answers', 'question')
    """
    return name.partition(".")[0].removesuffix("[]")


def is_path(name: str) -> bool:
    """Check whether a name leads into a column."""
    return "." in name or name.endswith("[]")


def roots(columns: Sequence[str]) -> set[str]:
    """Return the columns that all these names begin in, and the names themselves."""
    return {*columns, *map(root, columns)}


def with_paths(record: Record, columns: Sequence[str]) -> Record:
    """Return a record with the values that some of the names lead to, as columns of their own; lists become one list.

    >>> with_paths({"answers": [{"text": "a"}, {"text": "b"}]}, ["answers.text"])["answers.text"]
    ['a', 'b']
    >>> with_paths({"answers": {"text": ["a"], "start": [1]}}, ["answers.text"])["answers.text"]
    ['a']
    """
    missing = [name for name in columns if is_path(name) and name not in record]
    if not missing:
        return record
    extended_record = dict(record)
    for name in missing:
        if root(name) not in record:
            continue
        steps = [step.removesuffix("[]") for step in name.split(".")]
        try:
            extended_record[name] = _value(record, steps)
        except KeyError:
            continue  # the task says that the field is missing
    return extended_record


def _value(value: Value, steps: Sequence[str]) -> Value:
    """Return what steps lead to; of a list, a list of what they lead to in each of its values. Raises KeyError."""
    for index, step in enumerate(steps):
        if isinstance(value, list | tuple):
            inner = [_value(element, steps[index:]) for element in value]
            return [leaf for element in inner for leaf in (element if isinstance(element, list) else [element])]
        if not isinstance(value, Mapping):
            raise KeyError(step)
        value = value[step]
    return value


def lacks(record: Record, name: str) -> bool:
    """Check whether a record shows that a name leads nowhere: what is empty on the way shows nothing.

    >>> record = {"answers": {"text": ["a"]}, "context": None}
    >>> lacks(record, "answers.start"), lacks(record, "answers.text"), lacks(record, "context.text"), lacks(record, "id")
    (True, False, False, True)
    """
    values: list[Value] = [record]
    for step in (name,) if name in record else (step.removesuffix("[]") for step in name.split(".")):
        values = [leaf for value in values for leaf in (value if isinstance(value, list | tuple) else [value])]
        values = [value for value in values if value is not None and value != {}]
        if values and not any(isinstance(value, Mapping) and step in value for value in values):
            return True
        values = [value[step] for value in values if isinstance(value, Mapping) and step in value]
    return False


def damage(record: Record, format: "Format", *, broken: bool) -> str:
    """Return why a row's values are not valid text, or "".

    Undecodable bytes of a `broken` block are the surrogates from U+DC80 on.
    """
    for column, value in record.items():
        text = column + (value if isinstance(value, str) else "".join(strings(value)))
        column = column.encode(errors="backslashreplace").decode()
        if "\0" in text:
            return f"NUL byte: in {column}"
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            if broken and format.written:
                return f"not {format.written}: bytes that are not characters in {column}"
            if broken and 0xDC80 <= code <= 0xDCFF:
                return f"not {format.encoding}: byte 0x{code - 0xDC00:02x} in {column}"
            return f"no text: half of a surrogate pair (U+{code:04X}) in {column}"
    return ""


def nul(record: Record) -> str:
    """Return why a row is rejected, whose strings are known to be UTF-8, or ""."""
    for column, value in record.items():
        if "\0" in (value if isinstance(value, str) else "".join(strings(value))):
            return f"NUL byte: in {column}"
    return ""


def not_text(record: Record, columns: Collection[str]) -> str:
    """Return why a value cannot be used in an example, with its column and type, or "".

    Usable are a text, a number, a truth value, a date, None, a list of these, and an object of them (the languages of a
    translation).

    >>> not_text({"a": "x", "b": True, "c": ["y", 1], "d": {"en": "z"}, "e": None}, "abcde")
    ''
    >>> not_text({"answers": [{"text": "x"}]}, ["answers"])
    'not text: answers holds a list with an object in it'
    """
    for column in columns:
        value = record.get(column)
        if type(value) is str or value is None:
            continue
        if problem := _unusable(value):
            return f"not text: {column} holds {problem}"
    return ""


def text(record: Record, *names: str) -> str:
    """Return the text of the first of some columns that has one (`as_text`), "" if none has.

    "" as the last name means that all of them may be missing. Raises KeyError if they are missing and may not be,
    and Reject for a list or an object, because their notation in Python is not text.

    >>> text({"a": None, "b": 7}, "a", "b"), text({}, "a", "")
    ('7', '')
    """
    if not any(name in ("", *record) for name in names):
        raise KeyError(names[0])
    for name in names:
        value = record.get(name)
        if isinstance(value, list | tuple | Mapping):
            raise Reject(f"not text: {name} holds {_describe_type(value)}")
        if value is not None and value != "":
            return as_text(value)
    return ""


def as_text(value: Value) -> str:
    """Return the text of a value that is no list and no object: None has none, truth values are written as JSON writes them.

    >>> as_text(None), as_text(0.5), as_text(True)
    ('', '0.5', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _unusable(value: Value) -> str:
    """Describe a value that has no text (`as_text`) and is no list or object of values that have one; return "" for others."""
    if not isinstance(value, list | tuple | Mapping):
        return _without_text(value)
    kind, values = ("an object", value.values()) if isinstance(value, Mapping) else ("a list", value)
    wrong = next(filter(None, map(_without_text, values)), "")
    return f"{kind} with {wrong} in it" if wrong else ""


def _without_text(value: Value) -> str:
    """Describe a value that has no text; return "" for one that has."""
    if value is None or isinstance(value, str | bool):
        return ""
    if isinstance(value, int | float | Decimal):
        return "" if math.isfinite(value) else f"{value}, which is not a number"
    if isinstance(value, datetime.date | datetime.time):
        # Arrow gives such a time only where pandas is installed, and the same rows must come of every installation.
        return "a time with nanoseconds" if getattr(value, "nanosecond", 0) else ""
    return _describe_type(value)


def _describe_type(value: Value) -> str:
    """Return the name of a value's type, for use in a sentence."""
    for types, name in ((Mapping, "an object"), ((list, tuple), "a list"), (bytes, "bytes")):
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


def strings(value: Value) -> Iterator[str]:
    """Yield every string of a JSON value, keys included, in no particular order.

    There is no recursion, because a row may be nested to any depth.
    """
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            stack += [*node, *node.values()]
        elif isinstance(node, list):
            stack += node
