"""Define every error that a user can meet.

* T5prepError             one sentence for the terminal: what is wrong, the value, what to type next; exit code 1
  x UsageError            an option or a combination of options that cannot work
  x SourceError           a corpus that cannot be found, fetched or read
  x TaskError             a file of a task that cannot be used, or that fails at a row
  x TokenizerError        a tokenizer that cannot be loaded, or does not fit the task
  x OutputError           a place that cannot be written, or that holds something else
  x DatasetError          a prepared dataset that is missing, altered, or newer than this version
  x BalanceError          rows that were read and are missing in the prepared dataset: a bug of t5prep
  x NotBuiltError         an installation without what is in C
* Reject                  one row that makes no example; it goes to rejected.jsonl with its reason, and the run
continues
"""

import difflib
from collections.abc import Iterable


class T5prepError(Exception):
    """Carry the sentence that the command line prints without a traceback."""


class UsageError(T5prepError):
    """Report an option or a combination of options that cannot work."""


class SourceError(T5prepError):
    """Report a corpus that cannot be found, fetched or read."""


class TaskError(T5prepError):
    """Report a file of a task that cannot be used, or that fails at a row."""


class TokenizerError(T5prepError):
    """Report a tokenizer that cannot be loaded, or does not fit the task."""


class OutputError(T5prepError):
    """Report a place that cannot be written, or that holds something else."""


class DatasetError(T5prepError):
    """Report a prepared dataset that is missing, altered, or newer than this version."""


class BalanceError(T5prepError):
    """Report that the number of rows read and of rows prepared or rejected differ: a bug of t5prep."""


class NotBuiltError(T5prepError, ImportError):
    """Report an installation without what is in C."""


class Reject(Exception):  # noqa: N818 - not an error of the run: only this row is left out
    """Reject one row, which makes no example: `Reject("unknown label: LQ")` is counted as "unknown label".

    Everything else that a task raises is a bug and stops the run.
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
