"""Define the options that decide how a preparation runs. Imports stay cheap, because `--help` loads this module."""

import dataclasses

from t5prep.io import byte_sizes
from t5prep.options.fields import Options, option
from t5prep.preparation.memory_budget import DEFAULT

RUNNERS = ("local", "prism", "flink", "dataflow")


def parse_memory(text: str) -> int:
    """Return the bytes of a size such as "2GiB". Raises UsageError."""
    return byte_sizes.parse(text, name="--memory")


@dataclasses.dataclass(frozen=True)
class RunOptions(Options):
    """The options that decide how a preparation runs, but not what it writes: the records are always the same."""

    runner: str = option(
        "local", "runner of the pipeline; Beam's own options follow after --", choices=RUNNERS, section="Engine"
    )
    workers: int | None = option(None, "number of processes [default: one for each core]", minimum=0, section="Engine")
    memory: int = option(
        parse_memory(DEFAULT),
        "with --runner local: memory limit of all processes together",
        parse=parse_memory,
        default_text=DEFAULT,
        only_with={"runner": ("local",)},
        section="Engine",
    )
    fresh: bool = option(False, "ignore results cached by an earlier run", section="Engine")
    overwrite: bool = option(
        False,
        "replace the dataset in --out; when the new one is complete, the previous one moves to OUT.replaced",
        section="Output",
    )
    price: str | None = option(
        None,
        "with another --runner: prices for the cost estimate, VCPU_HOUR[+GB_SHUFFLED], for example 0.07+0.011",
        only_with={"runner": tuple(name for name in RUNNERS if name != "local")},
        section="Engine",
    )
