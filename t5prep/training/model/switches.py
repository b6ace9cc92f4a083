"""Turn off single optimizations for TPUs, to find which of them causes a NaN there.

T5PREP_WITHOUT=random-bits,copies t5prep train ...
"""

import os

from t5prep.errors import UsageError, did_you_mean

VARIABLE = "T5PREP_WITHOUT"
SWITCHES = {
    "random-bits": "the chip's own generator draws dropout; without it Philox does, as on a CPU",
    "copies": "a step leaves copies of the matrices in bfloat16 to the next one; without them each step rounds the weights",
}


def turned_off() -> list[str]:
    """Return the names in T5PREP_WITHOUT, in the order of `SWITCHES`. Raises UsageError for an unknown name."""
    names = {name.strip() for name in os.environ.get(VARIABLE, "").split(",")} - {""}
    if unknown := sorted(names - SWITCHES.keys()):
        suggestion = did_you_mean(unknown[0], SWITCHES)
        raise UsageError(
            f"{VARIABLE} contains the unknown name {unknown[0]}.{suggestion} Choose from: {', '.join(SWITCHES)}.",
            code="option.invalid-variable",
        )
    return [name for name in SWITCHES if name in names]


def is_on(name: str) -> bool:
    """Check whether the optimization `name` of `SWITCHES` is used: T5PREP_WITHOUT does not name it. Raises UsageError."""
    return name not in turned_off()
