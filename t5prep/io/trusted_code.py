"""Remember the Python files that this user has run, so that code in a stranger's run or dataset needs permission to run.

The user's state folder ($XDG_STATE_HOME/t5prep, else ~/.local/state/t5prep) has a file of their SHA-256 checksums, one a
line. Only the user may read and write this file.
"""

import hashlib

from t5prep.errors import UsageError
from t5prep.io import state_folder

NAME = "code-that-was-run"  # a file in the state folder


def remember(code: bytes) -> None:
    """Record that this user has run `code`, the content of a file passed on the command line or to `t5prep.prepare`.

    If the state folder cannot be written, do nothing: the code then needs `--trust-code` later.
    """
    if is_known(code):
        return
    state_folder.append_line(NAME, _sha256(code))


def is_known(code: bytes) -> bool:
    """Check whether this user has run exactly this code. A list that other users may write is not trusted."""
    return _sha256(code) in state_folder.lines(NAME)


def check(code: bytes, *, path: str, use: str, otherwise: str, trusted: bool, came_with: str = "the model") -> None:
    """Raise UsageError unless `trusted` is True or this user has run `code` before.

    The other parameters are parts of the message. `path` is the file, and `came_with` the run or dataset that contains it.
    `use` is the effect of its code ("read your rows"), and `otherwise` a way that works without it.
    """
    if not trusted and not is_known(code):
        raise UsageError(
            f"{path} is Python code that came with {came_with} and would {use}, but you have never run "
            f"it. Read the code, and add --trust-code (Python: trust_code=True) to run it; {otherwise}",
            code="task.untrusted-code",
        )


def _sha256(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()
