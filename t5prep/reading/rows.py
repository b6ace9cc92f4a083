"""Define a row of a source file, and check its values: a value that is not text rejects its row."""

import datetime
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from t5prep.errors import Reject, did_you_mean

if TYPE_CHECKING:  # formats load pyarrow, and every command loads this module
    from t5prep.reading.formats import Format

# A value of a row, as JSON or Arrow returns it.
Value: TypeAlias = (
    "Mapping[str, Value] | Sequence[Value] | str | int | float | bool | Decimal | datetime.date | datetime.time"
    " | datetime.timedelta | bytes | None"
)
# A row as in its source: column name → value.
Record = Mapping[str, Value]
# A column: its name, or alternative names in editions of a corpus, of which the first present one is read. A last
# name "" means that the column is optional.
Column = str | tuple[str, ...]


# Longest column name in messages: in a table without a header, the "names" are a row, which may be long.
_MAX_NAME_LENGTH = 80


class Row(NamedTuple):
    """A row: its number in its file (from 1, without the header), and its record, or the reason for rejecting it.

    A blank row has neither.
    """

    number: int
    record: Record | None
    reason: str = ""

    @property
    def blank(self) -> bool:
        """Check whether the row is blank."""
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
    """Return the first column of which no name is present, and the present columns, as the end of a sentence; "" for none.

    `advice` is a sentence that replaces the suggestion of a similar name.

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
    """Return the column in which a path begins.

    >>> root("answers[].text"), root("question")
    ('answers', 'question')
    """
    return name.partition(".")[0].removesuffix("[]")


def is_path(name: str) -> bool:
    """Check whether a name is a path into a column."""
    return "." in name or name.endswith("[]")


def roots(columns: Sequence[str]) -> set[str]:
    """Return the columns in which these names begin, and the names themselves."""
    return {*columns, *map(root, columns)}


def with_paths(record: Record, columns: Sequence[str]) -> Record:
    """Return a record with the values at the given paths as additional columns. Nested lists become one list.

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
            continue  # the task reports the missing field
    return extended_record


def _value(value: Value, steps: Sequence[str]) -> Value:
    """Return the value at the end of `steps`; in a list, the list of the values in each element. Raises KeyError."""
    for index, step in enumerate(steps):
        if isinstance(value, list | tuple):
            inner = [_value(element, steps[index:]) for element in value]
            return [leaf for element in inner for leaf in (element if isinstance(element, list) else [element])]
        if not isinstance(value, Mapping):
            raise KeyError(step)
        value = value[step]
    return value


def lacks(record: Record, name: str) -> bool:
    """Check whether a record shows that a path leads nowhere. Empty values on the way show nothing.

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
    """Return the reason why a row's values are not valid text, or "".

    In a `broken` block, undecodable bytes are the surrogates from U+DC80 on.
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
    """Return the reason for rejecting a row with a NUL, or "". Its strings are known to be UTF-8."""
    for column, value in record.items():
        if "\0" in (value if isinstance(value, str) else "".join(strings(value))):
            return f"NUL byte: in {column}"
    return ""


def not_text(record: Record, columns: Collection[str]) -> str:
    """Return the reason why a value cannot be used in an example, with its column and type, or "".

    Usable values are texts, numbers, booleans, dates, None, lists of these, and objects of these (such as the
    languages of a translation).

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
    """Return the text of the first of these columns that has one (`as_text`), or "" if none has.

    A last name "" means that all of them may be missing. Otherwise raises KeyError if all are missing. Raises Reject
    for a list or an object, because its Python notation is not text.

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
    """Return the text of a value that is not a list or object. None has no text; booleans are written as in JSON.

    >>> as_text(None), as_text(0.5), as_text(True)
    ('', '0.5', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _unusable(value: Value) -> str:
    """Describe a value that cannot be used in an example, or return "" (see `not_text`)."""
    if not isinstance(value, list | tuple | Mapping):
        return _without_text(value)
    kind, values = ("an object", value.values()) if isinstance(value, Mapping) else ("a list", value)
    wrong = next(filter(None, map(_without_text, values)), "")
    return f"{kind} with {wrong} in it" if wrong else ""


def _without_text(value: Value) -> str:
    """Describe a value that has no text, or return ""."""
    if value is None or isinstance(value, str | bool):
        return ""
    if isinstance(value, int | float | Decimal):
        return "" if math.isfinite(value) else f"{value}, which is not a number"
    if isinstance(value, datetime.date | datetime.time):
        # Arrow returns such a time only if pandas is installed, but each installation must read the same rows.
        return "a time with nanoseconds" if getattr(value, "nanosecond", 0) else ""
    return _describe_type(value)


def _describe_type(value: Value) -> str:
    """Return the name of a value's type for a sentence."""
    for types, name in ((Mapping, "an object"), ((list, tuple), "a list"), (bytes, "bytes")):
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


def strings(value: Value) -> Iterator[str]:
    """Yield each string in a JSON value, including keys, in any order.

    It is not recursive, because a row may be nested to any depth.
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
