"""Read a file that the manifest names, and check that it is the one which was written."""

import hashlib
from pathlib import Path
from typing import Protocol

from t5prep.errors import DatasetError
from t5prep.io import paths

# What to do about a file that is missing or altered.
AGAIN = "Prepare the dataset again, or copy this file again from where it was made."


class Described(Protocol):
    """Describe a file in the manifest: its name, and the SHA-256 (hex) of its bytes."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def sha256(self) -> str: ...  # noqa: D102


def read(data: str | Path, file: Described) -> bytes:
    """Return the bytes of a file beside the manifest. Raises DatasetError where it is missing or altered; OutputError."""
    path = paths.at(data, file.name)
    try:
        content = paths.read(path)
    except OSError as error:
        why = error.strerror or "not found"
        raise DatasetError(f"{path} cannot be read ({why}), but the manifest names it. {AGAIN}") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != file.sha256:
        raise DatasetError(f"{path} has SHA-256 {sha256[:12]}…, the manifest says {file.sha256[:12]}…. {AGAIN}")
    return content
