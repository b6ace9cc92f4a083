"""Where t5prep keeps what it may need again."""

import os
from pathlib import Path


def root() -> Path:
    """$T5PREP_CACHE, else $XDG_CACHE_HOME/t5prep, else ~/.cache/t5prep."""
    if own := os.environ.get("T5PREP_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "t5prep"


def tokenized() -> Path:
    """Tokenized blocks, each under the digest of what made it."""
    return root() / "tokenized"
