"""Name the commands that mend the running Python. t5prep is on no package index, so they install packages from a clone."""

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
    """Return the command that installs t5prep with these extras into the running Python, at the tested versions.

    It begins with `cd CLONE` when the clone is known and is not the working directory. `options` are for pip.
    """
    clone = ROOT if (ROOT / "setup.py").is_file() else None
    requirement = "." + (f"[{','.join(extras)}]" if extras else "")
    command = " ".join(filter(None, [f"{python()} -m pip install", options, f"-e '{requirement}' -c .ci/pins.txt"]))
    if clone is None:
        return f"{command}   (in a clone of t5prep)"
    return command if clone == Path.cwd() else f"cd {clone} && {command}"


def python() -> str:
    """Return the shell's name of the running Python: `python` where that starts it, else its path."""
    executable = shutil.which("python")
    return (
        "python"
        if executable and os.path.samefile(executable, sys.executable) and _same_prefix(executable)
        else sys.executable
    )


def _same_prefix(executable: str) -> bool:
    """Check whether a Python belongs to this environment; environments may link to the same executable."""
    return os.path.dirname(os.path.abspath(executable)) == os.path.dirname(os.path.abspath(sys.executable))


def check_names_are_utf8() -> None:
    """Raise UsageError if this Python reads names of files in another encoding: a dataset holds them as UTF-8."""
    encoding = sys.getfilesystemencoding()
    if codecs.lookup(encoding).name != "utf-8":
        raise UsageError(f"This Python reads names of files as {encoding}, and not as UTF-8: export PYTHONUTF8=1")
