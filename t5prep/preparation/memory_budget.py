"""Divide the memory limit among workers, blocks and ranges of records."""

from typing import NamedTuple

from t5prep.errors import UsageError

DEFAULT = "2GiB"
# Memory of the first process, and of a worker before its first block, measured by tests/benchmarks/bench_memory.py.
MAIN_BYTES = 320 << 20
WORKER_BYTES = 160 << 20
# A worker's peak memory, as a multiple of a block while it tokenizes, and of a range while it merges.
BLOCK_SHARE = 32
RANGE_SHARE = 8
LARGEST_BLOCK = 2 << 20  # an eighth of a second of tokenizing, so that the last blocks end together
LARGEST_RANGE = 32 << 20
SMALLEST_BLOCK = 256 << 10
# A source up to this size is prepared by one process in less time than worker processes need to start.
SMALL = 4 << 20


class Budget(NamedTuple):
    """The number of workers, the source bytes of a block, and the bytes of records that are merged at a time."""

    workers: int
    block_bytes: int = LARGEST_BLOCK
    range_bytes: int = LARGEST_RANGE


LARGEST = Budget(1)


def share(memory: int, *, workers: int) -> Budget:
    """Return the budget for `memory` bytes in all, with fewer than `workers` workers if each would have too little.

    >>> share(2 << 30, workers=2)
    Budget(workers=2, block_bytes=2097152, range_bytes=33554432)
    >>> share(768 << 20, workers=8)
    Budget(workers=2, block_bytes=2097152, range_bytes=8388608)

    Raises UsageError if even one worker has too little.
    """
    least = WORKER_BYTES + SMALLEST_BLOCK * BLOCK_SHARE
    if memory < MAIN_BYTES + least:
        raise UsageError(
            f"--memory {memory / 2**20:.4g}MiB is too small for one worker. Use at least --memory {MAIN_BYTES + least >> 20}MiB.",
            code="option.out-of-range",
        )
    fitting = max(1, (memory - MAIN_BYTES) // (WORKER_BYTES + LARGEST_BLOCK * BLOCK_SHARE))
    count = min(workers, fitting)
    worker_share = (memory - MAIN_BYTES) // max(1, count) - WORKER_BYTES
    return Budget(
        count, min(LARGEST_BLOCK, worker_share // BLOCK_SHARE), min(LARGEST_RANGE, worker_share // RANGE_SHARE)
    )
