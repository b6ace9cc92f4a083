"""Compose the commands that repair the installation, for messages.

t5prep is on no package index, so each command installs from a clone.
"""

import codecs
import os
import shutil
import sys
from pathlib import Path

from t5prep.errors import UsageError

ROOT = Path(__file__).parents[2]
# TensorFlow has no release for a newer Python (setup.py).
TENSORFLOW_FITS = sys.version_info < (3, 14)


def install_command(*extras: str, options: str = "") -> str:
    """Return the shell command that installs t5prep with `extras` into the running Python, at the tested versions.

    The command begins with `cd CLONE` unless the clone is the working directory. `options` are options of pip.
    """
    clone = ROOT if (ROOT / "setup.py").is_file() else None
    requirement = "." + (f"[{','.join(extras)}]" if extras else "")
    command = " ".join(filter(None, [f"{python()} -m pip install", options, f"-e '{requirement}' -c .ci/pins.txt"]))
    if clone is None:
        return f"{command}   (in a clone of t5prep)"
    return command if clone == Path.cwd() else f"cd {clone} && {command}"


def python() -> str:
    """Return `python` if this command starts the running Python, else the path of the running Python."""
    executable = shutil.which("python")
    return (
        "python"
        if executable and os.path.samefile(executable, sys.executable) and _same_prefix(executable)
        else sys.executable
    )


def _same_prefix(executable: str) -> bool:
    """Check whether `executable` belongs to this environment. Two environments may link to the same Python."""
    return os.path.dirname(os.path.abspath(executable)) == os.path.dirname(os.path.abspath(sys.executable))


def check_names_are_utf8() -> None:
    """Raise UsageError if this Python decodes file names in another encoding than UTF-8, in which a dataset stores them."""
    encoding = sys.getfilesystemencoding()
    if codecs.lookup(encoding).name != "utf-8":
        raise UsageError(
            f"This Python reads file names as {encoding}, not as UTF-8. Set the encoding: export PYTHONUTF8=1",
            code="install.non-utf8-locale",
        )
