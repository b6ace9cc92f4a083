"""Compile the step of a run for the requested layout, or for the first layout that fits."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from t5prep.errors import T5prepError, UsageError
from t5prep.train.log import duration, say
from t5prep.train.model.architecture import Config
from t5prep.train.runtime.kept_programs import DoesNotFitError, compile_now, compile_program
from t5prep.train.runtime.layout import Layout, arrange
from t5prep.train.runtime.matrix_copies import StepWithCopies
from t5prep.train.runtime.programs import step_program
from t5prep.train.settings.config import TrainConfig
from t5prep.train.settings.padding import Padding
from t5prep.train.step import memory


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """Hold a step that can be run, the function that makes its first copies (`matrix_copies`), and its slots' shapes."""

    run: Callable[..., tuple[Any, ...]]
    copies: Callable[[Any], Any]
    slot_shapes: Mapping[str, Mapping[str, tuple[int, ...]]]
    digest: str


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
    layout: Layout,
    wider: Iterator[Layout],
    *,
    input_length: int,
    target_length: int,
    packed: bool,
    padding: Padding,
    place: str,
) -> tuple[CompiledStep, Layout]:
    """Return the step compiled for `layout`, or for the first of the `wider` ones that fits. Raises T5prepError."""
    while True:
        since = time.monotonic()
        lowered = step_program(
            shape,
            config,
            layout=layout,
            input_length=input_length,
            target_length=target_length,
            packed=packed,
            padding=padding,
        )
        try:
            run = compile_program(lowered.program, place=place, say=say)
        except DoesNotFitError as error:
            if (following := next(wider, None)) is None:
                held = memory.Held.by(layout, shape, lowered.slot_shapes, batch=config.batch)
                raise T5prepError(memory.sentence(error.reason, config, held)) from error
            say(f"It does not fit {layout.words}: trying {following.words}.")
            layout = following
            del error
            continue
        say(f"The step is compiled ({duration(time.monotonic() - since)}).")
        return CompiledStep(run, lowered.copies_from(compile_now), lowered.slot_shapes, lowered.program.digest), layout


def compile_shapes(
    shape: Config,
    config: TrainConfig,
    layout: Layout,
    wider: Iterator[Layout],
    lengths: Sequence[tuple[int, int]],
    *,
    packed: bool,
    padding: Padding,
    place: str,
) -> tuple[CompiledStep, Layout]:
    """Return a step for batches of several (input, target) lengths, the longest first: one program for each.

    The longest decides the layout. Raises T5prepError.
    """
    programs: dict[tuple[int, int], Callable[..., tuple[Any, ...]]] = {}
    for inputs, targets in lengths:
        step, layout = compile_step(
            shape,
            config,
            layout,
            wider,
            input_length=inputs,
            target_length=targets,
            packed=packed,
            padding=padding,
            place=place,
        )
        if not programs:
            longest, wider = step, iter(())
        programs[inputs, targets] = step.run

    def run(weights: Any, slots: Any, number: Any, batch: Mapping[str, Any], rate: Any, copies: Any) -> tuple[Any, ...]:
        program = programs[batch["input_ids"].shape[1], batch["labels"].shape[1]]
        return program(weights, slots, number, batch, rate, copies)

    with_copies = StepWithCopies(run if len(programs) > 1 else longest.run, longest.copies)
    return dataclasses.replace(longest, run=with_copies), layout
