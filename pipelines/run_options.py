"""Define the options of how a preparation runs; nothing is imported that takes long, because `--help` needs it."""

import dataclasses

from pipelines.engines import RUNNERS
from t5prep.io import byte_sizes
from t5prep.options.fields import Options, option
from t5prep.preparation.memory_budget import DEFAULT


def parse_memory(text: str) -> int:
    """Return a number of bytes. Raises UsageError."""
    return byte_sizes.parse(text, name="--memory")


@dataclasses.dataclass(frozen=True)
class RunOptions(Options):
    """The options of how a preparation runs: the same records come of all of them."""

    runner: str = option("local", "what runs the pipeline; Beam's own options for it go after --", choices=RUNNERS)
    workers: int | None = option(None, "processes [default: all cores]", least=0)
    memory: int = option(
        parse_memory(DEFAULT), "what all processes may use together", parse=parse_memory, shown=DEFAULT
    )
    fresh: bool = option(False, "make anew even what is kept from an earlier run")
    overwrite: bool = option(
        False, "replace another dataset in --out, which moves to OUT.replaced when this one is whole"
    )
    price: str | None = option(
        None, "of a vCPU-hour, and of a gigabyte shuffled, for the estimate of an engine's costs, as in 0.07+0.011"
    )
