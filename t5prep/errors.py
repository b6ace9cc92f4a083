"""Define every error that a user can meet.

T5prepError is the base class. Its message is one sentence for the terminal: the problem, the value, the command that
fixes it. The exit code is 1. Its subclasses are UsageError, SourceError, TaskError, TokenizerError, OutputError,
DatasetError, BalanceError and NotBuiltError.

Reject is no error of a run. It concerns one row that makes no example. The row becomes a line of `rejected.jsonl` with
its reason, and the run continues.
"""

import difflib
from collections.abc import Iterable

# Characters of a message. Those that list columns, labels or files are the longest.
_MAX_CHARACTERS = 4000


def shortened(message: str) -> str:
    """Return a message without its middle if it is too long to be read: a value in a stranger's file may have any length."""
    return message if len(message) <= _MAX_CHARACTERS else f"{message[: _MAX_CHARACTERS - 500]} … {message[-500:]}"


class T5prepError(Exception):
    """Carry the sentence that the command line prints without a traceback, and a code.

    code: names the problem for programs and tests, and stays the same when the sentence is reworded; docs/errors.md lists all

    >>> UsageError("--batch 0: choose at least 1.", code="option.out-of-range").code
    'option.out-of-range'
    """

    def __init__(self, message: str, code: str) -> None:
        # Both are `args`: pickle, and Beam where it adds the name of a step, make the error anew from its `args`.
        super().__init__(message, code)
        self.code = code
        # A traceback shows the code under the message, also where an engine sends the traceback of a worker as text.
        self.add_note(f"[{code}]")

    def __str__(self) -> str:
        return str(self.args[0])


class UsageError(T5prepError):
    """Report an option or a combination of options that cannot work."""


class SourceError(T5prepError):
    """Report a corpus that cannot be found, fetched or read."""


class TaskError(T5prepError):
    """Report a task's Python file that cannot be used, or that fails at a row."""


class TokenizerError(T5prepError):
    """Report a tokenizer that cannot be loaded, or does not fit the task."""


class OutputError(T5prepError):
    """Report a path that cannot be written, or that holds other data."""


class DatasetError(T5prepError):
    """Report a prepared dataset that is missing or altered, or that a newer version of t5prep wrote."""


class BalanceError(T5prepError):
    """Report rows that were read but neither prepared nor rejected: a bug of t5prep."""


class NotBuiltError(T5prepError, ImportError):
    """Report an installation without the C extension `t5prep._native`."""


class Reject(Exception):  # noqa: N818 - not an error of the run: only this row is left out
    """Reject one row. `Reject("unknown label: LQ")` is counted as "unknown label": the text before the colon.

    Any other exception that a task raises is a bug and stops the run.
    """


def did_you_mean(name: str, known_names: Iterable[str]) -> str:
    """Return ` Did you mean "sst2"?`, with its leading space, or "" when no known name is close.

    >>> did_you_mean("sst", ["sst2", "common_gen"])
    ' Did you mean "sst2"?'
    >>> did_you_mean("squad", ["sst2", "common_gen"])
    ''
    """
    close = difflib.get_close_matches(name, list(known_names), n=1)
    return f' Did you mean "{close[0]}"?' if close else ""
