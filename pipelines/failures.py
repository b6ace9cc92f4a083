"""Explain what went wrong inside an engine by the sentence that was raised there."""

import contextlib
import re
from collections.abc import Iterator

from t5prep import errors
from t5prep.errors import OutputError, T5prepError

_WHERE = re.compile(r" \[while running '[^']*'\]")
# Distributed runners hand an exception over as the text of its traceback, some of them with its newlines escaped.
_OURS = re.compile(r"t5prep\.errors\.(\w+Error): (.+?)(?= \[while running|\\n|\n|$)")
# numpy's and Arrow's own say how much was asked for; Beam makes other types of those that it cannot make anew.
# The last two are of threads that cannot be started.
_MEMORY = re.compile(
    r"MemoryError|Unable to allocate|bad_alloc|Resource temporarily unavailable|can't start new thread"
)
_LAST = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", re.MULTILINE)
_LONGEST = 400
_NO_MEMORY = (
    "this machine ran out of memory. Try again with fewer workers or a smaller budget: --workers 1 --memory 1GiB; what is "
    "tokenized already is found again"
)


@contextlib.contextmanager
def explained(engine: str, *, out: str) -> Iterator[None]:
    """Turn what a runner raises into the T5prepError that a worker raised, or one that says what the engine said."""
    try:
        yield
    except T5prepError as error:
        raise type(error)(_WHERE.sub("", str(error))) from error
    except OSError as error:
        raise OutputError(f"{out}: {_WHERE.sub('', str(error))}") from error
    except Exception as error:
        if match := _OURS.search(str(error)):
            raise getattr(errors, match[1])(match[2]) from error
        if isinstance(error, MemoryError) or _MEMORY.search(str(error)):
            raise T5prepError(
                _NO_MEMORY if engine == "local" else f"a worker of {engine} ran out of memory."
            ) from error
        if engine == "local":
            raise
        last = (_LAST.findall(str(error)) or [str(error).strip() or type(error).__name__])[-1]
        line = " ".join(_WHERE.sub("", last).split())
        raise T5prepError(f"--runner {engine} failed: {line[:_LONGEST]}") from error
