"""Check the values of a row, and return them as text."""

import math
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any

from t5prep.errors import Reject
from t5prep.reading.formats import Format
from t5prep.reading.rows import Record


def damage(record: Record, format: Format, *, broken: bool) -> str:
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

    Usable are a text, a number, None, a list of texts, and an object of texts (the languages of a translation).

    >>> not_text({"a": "x", "b": 1, "c": ["y"], "d": {"en": "z"}, "e": None}, "abcde")
    ''
    >>> not_text({"answers": [{"text": "x"}]}, ["answers"])
    'not text: answers holds a list with an object in it'
    """
    for column in columns:
        value = record.get(column)
        if type(value) is str or value is None:
            continue
        if what := _unusable(value):
            return f"not text: {column} holds {what}"
    return ""


def text(record: Record, *names: str) -> str:
    """Return the text of the first of some columns that has one, a number as it is written, "" where none has.

    "" as the last name means that all of them may be missing. Raises KeyError where they are missing and may not be,
    and Reject for a list or an object, because their notation in Python is not text.

    >>> text({"a": None, "b": 7}, "a", "b"), text({}, "a", "")
    ('7', '')
    """
    if not any(name in ("", *record) for name in names):
        raise KeyError(names[0])
    for name in names:
        value = record.get(name)
        if isinstance(value, list | tuple | Mapping):
            raise Reject(f"not text: {name} holds {_named(value)}")
        if value is not None and value != "":
            return str(value)
    return ""


def _unusable(value: Any) -> str:
    """Describe a value that is not text, number, list of texts or object of texts; return "" for those."""
    if value is None or isinstance(value, str):
        return ""
    if isinstance(value, list | tuple | Mapping):
        inside = value.values() if isinstance(value, Mapping) else value
        kind = "an object" if isinstance(value, Mapping) else "a list"
        wrong = next((one for one in inside if not isinstance(one, str | None)), "")
        return f"{kind} with {_named(wrong)} in it" if wrong != "" else ""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return _named(value)
    return "" if math.isfinite(value) else f"{value}, which is not a number"


def _named(value: Any) -> str:
    """Return the name of a value's type, for use in a sentence."""
    if isinstance(value, bool):
        return "true or false"
    for types, name in (
        (Mapping, "an object"),
        ((list, tuple), "a list"),
        ((int, float, Decimal), "a number"),
        (bytes, "bytes"),
    ):
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


def strings(value: Any) -> Iterator[str]:
    """Yield every string of a JSON value, keys included, in no particular order.

    There is no recursion, because a row may be nested to any depth.
    """
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list):
            left += one
