"""Estimate from a sample that is timed here what a preparation will take: time, bytes on disk, bytes shuffled, money."""

import dataclasses
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from pipelines import steps
from pipelines.steps import PrepareBlock
from t5prep.errors import OutputError, UsageError
from t5prep.io import byte_sizes, gcs
from t5prep.prepare import row_limit
from t5prep.prepare.sort_blocks import SortedBlock
from t5prep.sources import Resolved

# Reading, shuffling, writing and starting workers, beside tokenizing.
OVERHEAD = 2.0
SAMPLED_BYTES = 1 << 20
# Records travel twice: into ranges of positions, and from there into shards (t5prep.prepare.shards).
SHUFFLES = 2
_PRICE = re.compile(r"(\d*\.?\d+)(?:\+(\d*\.?\d+))?")


class Price(NamedTuple):
    """The price of an engine: a vCPU-hour with its memory, and a gigabyte shuffled."""

    vcpu_hour: float
    shuffled_gigabyte: float = 0.0


class Estimate(NamedTuple):
    """An estimate: rows, bytes, how fast one core tokenizes them (bytes/s), and the vCPU-hours.

    `records` are the bytes of all finished records, `spilled` those of rows on their way to them.
    """

    rows: int
    bytes: int
    rate: float
    sampled: int
    hours: float
    records: int
    spilled: int

    def line(self, price: Price | None = None) -> str:
        """Return the estimate as one line of text, with a range of money where there is a price.

        The least is tokenizing alone, the most that all the rest takes as long again.

        >>> told = Estimate(2_000_000, 3_000_000_000, 15e6, 1200, 0.11, 6_000_000_000, 6_000_000_000)
        >>> told.line().split("; ")[:2]
        ['about 2,000,000 rows, 3.0 GB', '0.11 vCPU-hours (one core here: 15.0 MB/s on 1,200 rows']
        >>> told.line(Price(2, 0.01)).split("; ")[2:]
        ['twice that for the rest)', '12.0 GB shuffled', 'costs 0.23 to 0.34']
        """
        shuffled = SHUFFLES * self.spilled
        line = (
            f"about {self.rows:,} rows, {byte_sizes.text(self.bytes)}; {self.hours:,.2f} vCPU-hours "
            f"(one core here: {self.rate / 1e6:.1f} MB/s on {self.sampled:,} rows; twice that for the rest); "
            f"{byte_sizes.text(shuffled)} shuffled"
        )
        if price is None:
            return line
        most = self.hours * price.vcpu_hour
        moved = shuffled / 1e9 * price.shuffled_gigabyte
        return f"{line}; costs {most / OVERHEAD + moved:,.2f} to {most + moved:,.2f}"


def parse_price(text: str) -> Price:
    """Return the price that a user gives: of a vCPU-hour, and after a `+` of a gigabyte shuffled. Raises UsageError.

    >>> parse_price("0.07+0.011")
    Price(vcpu_hour=0.07, shuffled_gigabyte=0.011)
    """
    match = _PRICE.fullmatch(text.strip())
    if not match:
        raise UsageError(
            f'--price "{text}": it is the price of a vCPU-hour, and after a + that of a gigabyte shuffled: 0.07+0.011'
        )
    return Price(float(match[1]), float(match[2] or 0))


def estimate(work: PrepareBlock, *, source: Resolved, sampled_bytes: int = SAMPLED_BYTES) -> Estimate:
    """Return an estimate from timing the first block of the source. Raises SourceError."""
    work = dataclasses.replace(work, kept="", spool="")
    settings, task = work.job.settings, steps.staged_of(work.job).task
    wanted = next(iter(row_limit.limited_files(source.files, dataclasses.replace(settings, limit=None), task)))
    block = next(row_limit.scan(wanted, settings, task.task.corpus, block_bytes=sampled_bytes), None)
    total = sum(file.bytes for file in source.files)
    if block is None:
        return Estimate(0, total, 0.0, 0, 0.0, 0, 0)
    work(block.head(1))  # loads what tokenizing needs
    began = time.perf_counter()
    done = work(block)
    assert isinstance(done, SortedBlock)
    rate = block.size / max(1e-9, time.perf_counter() - began)
    rows = block.rows * total // max(1, block.size)
    if settings.limit and settings.limit < rows:
        rows, total = settings.limit, total * settings.limit // rows
    records, spilled = (
        part * total // max(1, block.size) for part in (sum(done.record_bytes.values()), len(done.spill.data))
    )
    return Estimate(rows, total, rate, block.rows, OVERHEAD * total / rate / 3600, records, spilled)


# The shortest rows make this many bytes of padded records of one byte of text: a source that fits even then is not sampled.
MOST_BYTES_OUT = 100
DISK_SAMPLED_BYTES = 64 << 10
# A line is printed from 1 GiB on. A run is refused where 70 % of what it needs is more than is free: a sample may be wrong.
WORTH_A_LINE = 1 << 30
DOUBT = 0.7


def check_disk(work: PrepareBlock, *, source: Resolved, out: str) -> None:
    """Print what a large run needs of the disk. Raises OutputError if that is more than is free.

    Spills are merged into new ones before the old ones go, and shards are written before the spills go. Shards in a bucket
    need no disk, but what sorts them does.
    """
    place = tempfile.gettempdir() if gcs.is_gs(out) else out
    free = free_bytes(Path(place))
    if 2 * MOST_BYTES_OUT * sum(file.bytes for file in source.files) <= min(free, WORTH_A_LINE):
        return
    made = estimate(work, source=source, sampled_bytes=DISK_SAMPLED_BYTES)
    needed = made.spilled + max(made.spilled, made.records)
    size, sorted_in, left = map(byte_sizes.text, (made.records, needed, free))
    line = f"about {size} of records; {place} needs {sorted_in} while they are sorted, and {left} are free"
    if DOUBT * needed > free:
        raise OutputError(
            f"no space for all of it: {line}. Free some, choose another --out, or prepare a part: --limit ROWS"
        )
    if needed >= WORTH_A_LINE or needed > free / 2:
        print(f"disk: {line}", file=sys.stderr)


def free_bytes(place: Path) -> int:
    """Return how many bytes a user may still write at a place, or where it would be made."""
    there = next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
    disk = os.statvfs(there)
    return disk.f_bavail * disk.f_frsize
