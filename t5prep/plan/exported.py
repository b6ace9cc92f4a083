"""Plan a step that `t5prep export --format step` wrote: the TPU compiler answers for the file, without TensorFlow."""

import json
import math
import operator
from pathlib import Path
from typing import Any

from t5prep.errors import UsageError
from t5prep.io import paths
from t5prep.plan import chips, compiled
from t5prep.plan.chips import GIB, Tpu
from t5prep.plan.compiled import Compiled


def compile_exported(folder: Path, *, tpu: str) -> Compiled:
    """Compile an exported training step for all devices of a TPU.

    Raises UsageError if the folder has no step for this TPU, or the `plan` extra is missing; T5prepError if the step does not
    compile for another reason than memory.
    """
    target = chips.parse(tpu)
    try:
        said = json.loads(paths.read(folder / "step.json"))
        platform, devices = str(said["platform"]), math.prod(map(operator.index, said["mesh"].values()))
        if not 0 < devices < 1 << 32:
            raise ValueError("its mesh has no number of devices")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{folder} is no step that was exported ({error}). {_again(target)}") from None
    if (platform, devices) != ("tpu", target.devices):
        raise UsageError(
            f"{folder} has a step for {devices} devices of {platform[:20]}, and {target.name} has {target.devices} of tpu. "
            f"{_again(target)}"
        )
    return compiled.compile_for({"exported": str(folder.absolute())}, chip=target.chip, devices=devices)


def lines(answer: Compiled, *, folder: Path, tpu: str) -> list[str]:
    """Return the answer as lines of text."""
    chip = chips.parse(tpu).chip
    room = compiled.room_of(answer, chip)
    head = f"{folder} on {tpu}: the exported step"
    if not answer.fits:
        return [head, f"  DOES NOT FIT  a device needs {room}"]
    return [
        head,
        f"  fits          {room}, on each device",
        f"    arguments   {answer.argument_bytes / GIB:6.2f} GiB  weights, optimizer and a batch",
        f"    temporaries {answer.temp_bytes / GIB:6.2f} GiB  activations and gradients",
        f"    program     {answer.program_bytes / GIB:6.2f} GiB",
        f"  a step        of unknown time: {answer.unread}"
        if answer.unread
        else f"  a step        {compiled.time_of(answer, chip)}, by the compiler's own model of the chip",
    ]


def as_json(answer: Compiled, *, tpu: str) -> dict[str, Any]:
    """Return the answer as a dict, with the keys of `plan --json` that a file can answer."""
    chip = chips.parse(tpu).chip
    return {
        "fits": answer.fits,
        "hbm_bytes": answer.hbm_bytes,
        "hbm_capacity_bytes": chip.hbm_bytes,
        "flops": answer.flops,
        "estimated_cycles": answer.estimated_cycles,
        "estimated_step_seconds": answer.estimated_cycles / chip.clock_hz,
        "temporary_bytes": answer.temp_bytes,
        "program_bytes": answer.program_bytes,
        "tpu": tpu,
    }


def _again(target: Tpu) -> str:
    return f"Write one for {target.devices} devices: t5prep export --model RUN --format step --platform tpu ..."
