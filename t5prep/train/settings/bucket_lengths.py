"""Read the lengths of buckets as they are typed: `128x16,512x64`."""

import re
from collections.abc import Sequence

from t5prep.errors import UsageError

# (input length, target length) of the rows of a bucket, in tokens.
Lengths = tuple[int, int]


def parse(texts: Sequence[str]) -> list[Lengths]:
    """Return the lengths of buckets as they are typed, the shortest first. Raises UsageError.

    >>> parse(["512x64", "128x16"])
    [(128, 16), (512, 64)]
    """
    for text in texts:
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", text):
            raise UsageError(f'buckets has "{text}". Write INPUTxTARGET tokens for each: --set buckets=128x16,512x64')
    return sorted({(int(inputs), int(targets)) for inputs, _, targets in (text.partition("x") for text in texts)})
