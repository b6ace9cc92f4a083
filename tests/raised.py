"""Assert that an error of t5prep is raised: by its code and the values in its sentence, never by the English."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from t5prep.cli import main


@contextlib.contextmanager
def raises(
    kind: type[Exception] | tuple[type[Exception], ...], code: str, *values: str
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error with this code, whose message holds these values.

    >>> from t5prep.errors import SourceError
    >>> with raises(SourceError, "source.not-found", "rows.csv"):
    ...     raise SourceError("rows.csv does not exist.", code="source.not-found")
    """
    with pytest.raises(kind) as raised:
        yield raised
    assert raised.value.code == code, str(raised.value)
    assert [value for value in values if value not in str(raised.value)] == [], str(raised.value)


def assert_error(text: str, code: str, *values: str) -> None:
    """Assert that a command printed an error with this code, and these values in its sentence.

    >>> assert_error("Error: rows.csv does not exist. [source.not-found]", "source.not-found", "rows.csv")
    """
    assert f" [{code}]" in text, text
    assert [value for value in values if value not in text] == [], text


def refused(code: str, *values: str, command: Iterable[object]) -> None:
    """Expect that a command line ends with exit code 1, and with one sentence of this code, after any progress, with these values."""
    result = CliRunner().invoke(main, [str(word) for word in command])
    assert (result.exit_code, "Traceback" in result.output) == (1, False), result.output
    lines = result.stderr.splitlines()
    assert [line for line in lines if line.startswith("Error: ")] == lines[-1:], result.stderr
    assert_error(lines[-1], code, *values)
