"""Compile the step of a run for the requested layout, or for the first layout that fits."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from t5prep.errors import T5prepError, UsageError
from t5prep.train.log import duration, say
from t5prep.train.model.architecture import Config
from t5prep.train.runtime.kept_programs import DoesNotFitError, compile_program
from t5prep.train.runtime.layout import Layout, arrange
from t5prep.train.runtime.programs import step_program
from t5prep.train.runtime.state import Variables
from t5prep.train.settings.config import TrainConfig
from t5prep.train.settings.padding import Padding
from t5prep.train.step import memory


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """A step that can be run, the shapes of its slots, and what `state.copies_of` makes its first copies by."""

    run: Callable[..., tuple[Any, ...]]
    slot_shapes: Mapping[str, Mapping[str, tuple[int, ...]]]
    copies: Mapping[str, Any]


def layouts(config: TrainConfig, open_layout: Callable[..., Layout]) -> Iterator[Layout]:
    """Yield the layouts of the devices to try: the one of `config.shard`, or with `auto` each wider than the last.

    Raises UsageError where a batch cannot be divided for one.
    """
    given = 1 if config.shard == "auto" else int(config.shard)
    layout = open_layout(shard=given)
    while True:
        check_batch(config, layout.replicas)
        yield layout
        if config.shard != "auto" or len(layout.devices) % (2 * layout.shard):
            return
        layout = arrange(layout.devices, shard=2 * layout.shard)


def check_batch(config: TrainConfig, replicas: int) -> None:
    """Raise UsageError where a batch cannot be divided into equal parts, or is too large for any program."""
    if config.batch >= 2**31:
        raise UsageError(f"The batch is {config.batch:,}, and no program takes more than {2**31 - 1:,} rows.")
    if config.batch % (replicas * config.accumulate):
        raise UsageError(
            f"A batch of {config.batch} cannot be cut into {replicas} replicas × accumulate={config.accumulate}."
        )
    if config.eval_batch % replicas:
        raise UsageError(
            f"eval_batch is {config.eval_batch}, and cannot be cut into {replicas} replicas: take a multiple of {replicas}."
        )


def compile_step(
    shape: Config,
    config: TrainConfig,
    layouts: Iterable[Layout],
    lengths: Sequence[tuple[int, int]],
    *,
    packed: bool,
    padding: Padding,
    place: str,
) -> tuple[CompiledStep, Layout]:
    """Return a step for batches of several (input, target) lengths, the longest first, and the first layout that it fits.

    Each pair of lengths has a program of its own. Raises T5prepError where it fits none of the layouts.
    """
    refusal, narrower = "", None
    for layout in layouts:
        if narrower:
            say(f"It does not fit {narrower.words}: trying {layout.words}.")
        programs: dict[tuple[int, int], Callable[..., tuple[Any, ...]]] = {}
        for inputs, targets in lengths:
            since = time.monotonic()
            lowered = step_program(
                shape, config, layout=layout, input_length=inputs, target_length=targets, packed=packed, padding=padding
            )
            try:
                programs[inputs, targets] = compile_program(lowered.program, place=place, say=say)
            except DoesNotFitError as error:
                held = memory.Held.by(layout, shape, lowered.slot_shapes, batch=config.batch)
                refusal, narrower = memory.sentence(error.reason, config, held), layout
                break
            say(f"The step is compiled ({duration(time.monotonic() - since)}).")
        else:
            return CompiledStep(_by_length(programs), lowered.slot_shapes, lowered.copies), layout
    raise T5prepError(refusal)


def _by_length(programs: Mapping[tuple[int, int], Callable[..., tuple[Any, ...]]]) -> Callable[..., tuple[Any, ...]]:
    """Return a step that calls the program for the lengths of its batch."""
    if len(programs) == 1:
        return next(iter(programs.values()))

    def run(*arguments: Any) -> tuple[Any, ...]:
        batch = arguments[len(Variables._fields)]
        return programs[batch["input_ids"].shape[1], batch["labels"].shape[1]](*arguments)

    return run
