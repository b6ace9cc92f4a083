"""Suggest names near a path that does not exist, so that a typing error is noticed."""

import difflib
import os
from pathlib import Path

from t5prep.errors import did_you_mean


def instead(path: Path) -> str:
    """Return a suggestion as the rest of a sentence: the closest name in the folder, else the first names there."""
    there = _beside(path)
    some = f" {path.parent} has {', '.join(there[:5])}{', …' if len(there) > 5 else ''}." if there else ""
    return did_you_mean(path.name, there) or some


def mistyped(name: str | Path) -> str:
    """Return ` Did you mean "runs/one"?` where the path is missing and another of nearly that name exists, else ""."""
    path = Path(name)
    close = difflib.get_close_matches(path.name, _beside(path), n=1) if path.name else []
    return f' Did you mean "{path.parent / close[0]}"?' if close and not path.exists() else ""


def _beside(path: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path.parent) if not name.startswith("."))
    except OSError:
        return []
