"""Check the limit of the address space (`ulimit -v`). Below what libraries need, they fail with obscure messages, or abort."""

import resource

from t5prep.errors import UsageError

# Python with pyarrow and a thread of each core; the drawing of charts; TensorFlow and XLA, which abort at 2,400 MiB.
PREPARING_BYTES, CHARTS_BYTES, TRAINING_BYTES = 2 << 30, 512 << 20, 3 << 30


def check(least_bytes: int) -> None:
    """Raise UsageError if the shell allows this process fewer than `least_bytes` of address space."""
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY and allowed < least_bytes:
        raise UsageError(
            f"`ulimit -v` allows {allowed >> 20:,} MiB of address space, but t5prep needs "
            f"{least_bytes >> 20:,} MiB. Raise the limit: ulimit -v unlimited",
            code="device.address-space-limit",
        )
