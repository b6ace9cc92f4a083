"""Read the files of the user's that filters need: from this machine, or as they were brought to a worker elsewhere."""

from collections.abc import Mapping
from pathlib import Path

# Path, as the user named it → content, on a worker of another machine.
_BROUGHT: dict[str, bytes] = {}


def read(path: str) -> bytes:
    """Return the content of a file: this machine's, where it has one of that name. Raises OSError."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        if path in _BROUGHT:
            return _BROUGHT[path]
        raise


def bring(files: Mapping[str, bytes]) -> None:
    """Let these files be read by their paths where this machine has none of that name."""
    _BROUGHT.clear()
    _BROUGHT.update(files)
