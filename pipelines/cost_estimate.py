"""Estimate what a distributed preparation will cost, from a sample that is timed on this machine."""

import dataclasses
import time
from typing import NamedTuple

from pipelines import staging
from pipelines.work import PrepareBlock
from t5prep.prepare import row_limit
from t5prep.sources import Resolved

# Reading, shuffling, writing and starting workers, beside tokenizing.
OVERHEAD = 2.0
SAMPLED_BYTES = 1 << 20


class Estimate(NamedTuple):
    """Hold about how many rows and bytes there are, how fast one core tokenizes them (bytes/s), and the vCPU-hours."""

    rows: int
    bytes: int
    rate: float
    sampled: int
    hours: float

    def line(self) -> str:
        """Return the estimate as one line of text.

        >>> Estimate(2_000_000, 3_000_000_000, 15e6, 1200, 0.11).line()
        'about 2,000,000 rows, 3.00 GB; 0.11 vCPU-hours (one core here: 15.0 MB/s on 1,200 rows; twice that for the rest)'
        """
        return (
            f"about {self.rows:,} rows, {self.bytes / 1e9:,.2f} GB; {self.hours:,.2f} vCPU-hours "
            f"(one core here: {self.rate / 1e6:.1f} MB/s on {self.sampled:,} rows; twice that for the rest)"
        )


def estimate(work: PrepareBlock, *, source: Resolved) -> Estimate:
    """Return an estimate from timing the first block of the source. Raises SourceError."""
    settings, task = work.job.settings, staging.task(work.job)
    wanted = next(iter(row_limit.limited_files(source.files, dataclasses.replace(settings, limit=None), task)))
    block = next(row_limit.scan(wanted, settings, task.task.corpus, block_bytes=SAMPLED_BYTES), None)
    total = sum(file.bytes for file in source.files)
    if block is None:
        return Estimate(0, total, 0.0, 0, 0.0)
    work(block.head(1))  # loads what tokenizing needs
    began = time.perf_counter()
    work(block)
    rate = block.size / max(1e-9, time.perf_counter() - began)
    rows = block.rows * total // max(1, block.size)
    if settings.limit and settings.limit < rows:
        rows, total = settings.limit, total * settings.limit // rows
    return Estimate(rows, total, rate, block.rows, OVERHEAD * total / rate / 3600)
