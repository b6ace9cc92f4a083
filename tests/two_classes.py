"""A table of two classes, and the settings with which a tiny classifier learns it in 30 steps."""

from pathlib import Path
from typing import Any

GOOD, BAD = "a gorgeous , witty movie .", "unflinchingly bleak and desperate"
SETTINGS: dict[str, Any] = {
    "steps": 30,
    "batch": 16,
    "optimizer": "adamw",
    "learning_rate": 0.02,
    "dropout": 0.0,
    "eval_every": 30,
    "log_every": 30,
    "tensorboard": False,
}


def write(path: Path) -> Path:
    """Write 40 rows of each class as TSV with the columns of SST-2, and return the path."""
    rows = [(f"{GOOD} {number}", "positive") for number in range(40)]
    rows += [(f"{BAD} {number}", "negative") for number in range(40)]
    path.write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    return path
