"""Remember which Python files this user has run, so that code of a stranger's run or dataset is never executed unasked.

The user's state folder ($XDG_STATE_HOME/t5prep, else ~/.local/state/t5prep) has a file of SHA-256 checksums, one a line, which
only the user may read and write.
"""

import hashlib

from t5prep.errors import UsageError
from t5prep.io import state_folder

NAME = "code-that-was-run"


def remember(code: bytes) -> None:
    """Remember a file that this user has named on the command line, or handed to `t5prep.prepare`.

    Where nothing can be written, nothing is remembered: the code is then asked about later.
    """
    if is_known(code):
        return
    state_folder.append_line(NAME, _sha256(code))


def is_known(code: bytes) -> bool:
    """Check whether this user has run exactly this code. A list that others may write is not believed."""
    return _sha256(code) in state_folder.lines(NAME)


def check(code: bytes, *, path: str, use: str, otherwise: str, trusted: bool, came_with: str = "the model") -> None:
    """Raise UsageError for code that this user has neither run nor trusts.

    `path` is the file, `use` what the code would do, and `otherwise` what works without it; `came_with` is what brought it.
    """
    if not trusted and not is_known(code):
        raise UsageError(
            f"{path} is Python code that came with {came_with} and that you have not run: it would {use}. Read it, and say "
            f"--trust-code (Python: trust_code=True) to execute it; {otherwise}"
        )


def _sha256(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()
