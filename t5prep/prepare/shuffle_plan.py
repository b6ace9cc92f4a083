"""Plan how records travel between the workers of an engine, so that what travels as one element is neither tiny nor huge.

A block of 2 MiB has less than one record for each of ten thousand shards. So records travel twice: the runs of several
blocks, merged, are cut into at most GROUPS ranges of positions, each piece at least PIECE_BYTES; and what has come
together in one range is merged again and cut into the shards of that range.
"""

from typing import NamedTuple

GROUPS = 256
PIECE_BYTES = 256 << 10
# Records of the first cut that one worker merges at a time, and of the second.
LARGEST_BATCH = 64 << 20
LARGEST_GROUP = 256 << 20
SMALLEST_BATCH = 4 << 20
# A padded record of 512 tokens has about three bytes for one of its text (docs/scale.md).
BYTES_OUT = 3


class ShufflePlan(NamedTuple):
    """Hold the numbers of ranges and lanes: blocks of one lane come together, so that no range is more than a worker holds."""

    groups: int = 1
    lanes: int = 1

    @property
    def batch_bytes(self) -> int:
        """Return how many bytes of records are merged before the first cut."""
        return max(SMALLEST_BATCH, min(LARGEST_BATCH, self.groups * PIECE_BYTES))


def for_source(source_bytes: int) -> ShufflePlan:
    """Return the plan for a source of so many bytes.

    >>> for_source(1_000_000), for_source(10**9), for_source(10**12)
    (ShufflePlan(groups=1, lanes=1), ShufflePlan(groups=32, lanes=1), ShufflePlan(groups=256, lanes=44))
    """
    size = BYTES_OUT * source_bytes
    groups = min(GROUPS, 1 << max(0, (size // LARGEST_BATCH).bit_length() - 1))
    return ShufflePlan(groups, max(1, -(-size // (groups * LARGEST_GROUP))))


def recut_bytes(shards: int, *, groups: int) -> int:
    """Return how many bytes of one range are merged before they are cut into the shards of that range.

    >>> [recut_bytes(shards, groups=256) >> 20 for shards in (256, 8192, 131072)]
    [4, 16, 256]
    """
    return max(SMALLEST_BATCH, min(LARGEST_GROUP, -(-shards // groups) * 2 * PIECE_BYTES))
