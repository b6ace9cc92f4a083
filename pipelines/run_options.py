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

    runner: str = option(
        "local", "runner of the pipeline; Beam's own options follow after --", choices=RUNNERS, section="Engine"
    )
    workers: int | None = option(None, "number of processes [default: one for each core]", minimum=0, section="Engine")
    memory: int = option(
        parse_memory(DEFAULT),
        "memory limit of all processes together",
        parse=parse_memory,
        default_text=DEFAULT,
        section="Engine",
    )
    fresh: bool = option(False, "ignore results cached by an earlier run", section="Engine")
    overwrite: bool = option(
        False,
        "replace the dataset in --out; when the new one is complete, the previous one moves to OUT.replaced",
        section="Output",
    )
    price: str | None = option(
        None, "prices for the cost estimate: VCPU_HOUR[+GB_SHUFFLED], for example 0.07+0.011", section="Engine"
    )
