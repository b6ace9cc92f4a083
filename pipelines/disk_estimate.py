"""Say before a local run begins how much disk it needs, and refuse what cannot fit."""

import dataclasses
import os
import sys
import tempfile
from pathlib import Path

from pipelines import cost_estimate
from pipelines.worker_steps import PrepareBlock
from t5prep.errors import OutputError
from t5prep.io import byte_sizes, gcs
from t5prep.sources import Resolved

# The shortest rows make so many bytes of padded records of one byte of text: a source that fits even then is not sampled.
MOST_BYTES_OUT = 100
SAMPLED_BYTES = 64 << 10
# From so much on, a line says it; a sample may be wrong by so much before a run is refused.
WORTH_A_LINE = 1 << 30
DOUBT = 0.7


@dataclasses.dataclass(frozen=True)
class DiskEstimate:
    """Hold about how many bytes of records there are, how many of a disk they need while they are sorted, and what is free."""

    records: int
    needed: int
    free: int
    place: str

    def line(self) -> str:
        """Return the estimate as one line of text.

        >>> DiskEstimate(12 * 10**9, 24 * 10**9, 35 * 10**9, "data/mine").line()
        'about 12.0 GB of records; data/mine needs 24.0 GB while they are sorted, and 35.0 GB are free'
        """
        size, needed, free = map(byte_sizes.text, (self.records, self.needed, self.free))
        return f"about {size} of records; {self.place} needs {needed} while they are sorted, and {free} are free"


def check(work: PrepareBlock, *, source: Resolved, out: str) -> None:
    """Print what a large run needs of the disk. Raises OutputError where that is more than is free.

    Sorted runs are merged into new ones before the old ones go, and shards are written before the runs go: either way two
    copies of all records are there at once. Shards in a bucket need no disk, but what sorts them does.
    """
    place = tempfile.gettempdir() if gcs.is_gs(out) else out
    free = free_bytes(Path(place))
    if 2 * MOST_BYTES_OUT * sum(file.bytes for file in source.files) <= min(free, WORTH_A_LINE):
        return
    records = cost_estimate.estimate(work, source=source, sampled_bytes=SAMPLED_BYTES).records
    disk = DiskEstimate(records, 2 * records, free, place)
    if DOUBT * disk.needed > free:
        raise OutputError(
            f"no space for all of it: {disk.line()}. Free some, choose another --out, or prepare a part: --limit ROWS"
        )
    if disk.needed >= WORTH_A_LINE or disk.needed > free / 2:
        print(f"disk: {disk.line()}", file=sys.stderr)


def free_bytes(place: Path) -> int:
    """Return how many bytes a user may still write at a place, or where it would be made."""
    there = next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
    disk = os.statvfs(there)
    return disk.f_bavail * disk.f_frsize
