"""Compile a program with the real TPU compiler in a separate process (`compiler`), and read its answer."""

import dataclasses
import importlib.metadata
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from t5prep.errors import T5prepError, UsageError
from t5prep.io import atomic_files, byte_sizes
from t5prep.io.installation import install_command
from t5prep.planning.chips import GIB, Chip
from t5prep.planning.compiler import ENVIRONMENT, Request, Step

# The compiler's error if a program does not fit: the only figure in it is the memory that the program needs.
_OUT_OF_MEMORY = re.compile(r"total memory required for HLO temporaries \(([\d.]+)([KMGT]?)\)")


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Hold the compiler's figures for one program on one device. Bytes are in HBM, including the layout's padding.

    * hbm_bytes: the bytes that the program needs: arguments + outputs - outputs in the memory of arguments + temporaries +
      program. If `fits` is False, this is the compiler's own figure, and most others are 0.
    * loops: True if the program has a loop. Then `flops` and `accessed_bytes` count a loop's body only once.
      `estimated_cycles` counts every iteration.
    * unread: the reason why the cycles are unknown (and 0), else "".
    * exchanged_bytes: bytes that a device gets from other devices.
    * by_operation: cycles by kind of operation, the most expensive first.
    * weight_bytes, slot_bytes: bytes of the model's weights and of the optimizer's slots.
    * saved, digest: the file of the saved executable, and the digest of its program.
    """

    fits: bool
    hbm_bytes: int
    argument_bytes: int = 0
    temp_bytes: int = 0
    program_bytes: int = 0
    flops: int = 0
    accessed_bytes: int = 0
    estimated_cycles: int = 0
    exchanged_bytes: int = 0
    unread: str = ""
    loops: bool = False
    by_operation: dict[str, int] = dataclasses.field(default_factory=dict)
    weight_bytes: int = 0
    slot_bytes: int = 0
    saved: str = ""
    digest: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)


def room_of(answer: Compiled, chip: Chip) -> str:
    """Return as text the memory that a program needs, and the memory of a device."""
    return f"{answer.hbm_bytes / GIB:.2f} GiB of the {chip.hbm_bytes / GIB:.2f} GiB that a program may use"


def time_of(answer: Compiled, chip: Chip) -> str:
    """Return as text the compiler's estimate of the time of one run of a program."""
    cycles = answer.estimated_cycles
    return f"{cycles / chip.clock_hz * 1e3:.1f} ms estimated ({cycles / 1e6:.1f} M cycles at {chip.clock_hz / 1e9:.2f} GHz)"


def planned_memory(step: Step, *, chip: Chip, devices: int) -> Compiled:
    """Plan the memory of a training step without generating its code, which takes nearly all of a compilation's time.

    In the result, only `fits` and `temp_bytes` are valid; if the step does not fit, `hbm_bytes`. Raises the errors of
    `compile_for`.
    """
    with atomic_files.temporary_folder() as dump:
        return compile_for({"step": step, "dump": dump}, chip=chip, devices=devices)


def compile_for(request: Request, *, chip: Chip, devices: int) -> Compiled:
    """Compile `request` (see `compiler`) for all devices of a TPU.

    Raises UsageError if the `plan` extra is missing or libtpu does not know the chip's topology. Raises T5prepError if the
    program does not compile for a reason other than memory.
    """
    made_by, topology = versions(), topology_of(chip, devices=devices)
    answer = _run(request, topology=topology, devices=devices)
    return dataclasses.replace(_read(answer, chip=chip, topology=topology), versions=made_by)


def topology_of(chip: Chip, *, devices: int) -> str:
    """Return libtpu's name of the smallest slice with at least `devices` devices.

    >>> from t5prep.planning.chips import CHIPS
    >>> topology_of(CHIPS["v5e"], devices=8), topology_of(CHIPS["v3"], devices=8), topology_of(CHIPS["v4"], devices=16)
    ('v5e:2x4', 'v3:2x2', 'v4:2x2x2')
    """
    chips = -(-devices // chip.devices_per_chip)
    sides = [int(side) for side in chip.topology.split(":")[1].split("x")]
    while math.prod(sides) < chips:
        # Double the last of the shortest sides: 1x1, 1x2, 2x2, 2x4; 2x2x1, 2x2x2, 2x2x4.
        shortest = max(i for i, side in enumerate(sides) if side == min(sides))
        sides[shortest] *= 2
    return f"{chip.topology.split(':')[0]}:{'x'.join(map(str, sides))}"


def versions() -> dict[str, str]:
    """Return the versions of jax and libtpu, which decide a compilation. Raises UsageError if one is not installed."""
    if not (importlib.util.find_spec("jax") and importlib.util.find_spec("libtpu")):
        raise UsageError(
            "The TPU compiler (jax and libtpu; no TPU is needed) is not installed. Install it: "
            f"{install_command('train', 'plan')}",
            code="install.extra-missing",
        )
    return {name: importlib.metadata.version(name) for name in ("jax", "libtpu")}


def _run(request: Request, *, topology: str, devices: int) -> dict[str, Any]:
    """Run the compiler's process with a request, and return its JSON answer. Raises T5prepError if it ends without one."""
    command = [sys.executable, "-P", "-m", "t5prep.planning.compiler", topology, str(devices)]
    home = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    # The compiler needs no TPU. By default, libtpu would refuse to start while another process uses a TPU of this machine.
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "CUDA_VISIBLE_DEVICES": "",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TF_USE_LEGACY_KERAS": "1",  # TensorFlow does not import Keras, as in `t5prep.cli`
        "PYTHONPATH": path,
    }
    process = subprocess.run(
        command, input=json.dumps(request).encode(), capture_output=True, env=environment, check=False
    )
    try:
        answer: dict[str, Any] = json.loads(process.stdout)
    except ValueError:
        last = (process.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise T5prepError(
            f"The TPU compiler failed, perhaps for lack of memory (exit {process.returncode}: "
            f"{last[:300]}). Use a smaller --batch, or a machine with more memory.",
            code="plan.compiler-failure",
        ) from None
    return answer


def _read(answer: dict[str, Any], *, chip: Chip, topology: str) -> Compiled:
    """Return the figures of the process's answer. Raises UsageError or T5prepError for an error other than memory."""
    if error := answer.pop("error", ""):
        if needed := _OUT_OF_MEMORY.search(error):
            return Compiled(fits=False, hbm_bytes=byte_sizes.of_compiler(needed[1], needed[2]), **answer)
        if "RESOURCE_EXHAUSTED" in error:
            raise T5prepError(
                f"The step does not fit {chip.name}. The needed memory is unknown, because t5prep cannot read "
                f"the message of libtpu {versions()['libtpu']}: {_first(error)}.",
                code="device.insufficient-memory",
            )
        if "Invalid TPU external name" in error or "topology" in error.lower():
            raise UsageError(
                f'libtpu {versions()["libtpu"]} does not know the topology "{topology}" ({_first(error)}). '
                "Choose another --tpu.",
                code="plan.unsupported-topology",
            )
        raise T5prepError(
            f"The step does not compile for {chip.name}: {_first(error)}.", code="step.compilation-failure"
        )
    if "argument_bytes" not in answer:  # the request was for memory alone (`planned_memory`)
        return Compiled(fits=True, hbm_bytes=answer["temp_bytes"], **answer)
    peak = answer["argument_bytes"] + answer.pop("output_bytes") - answer.pop("alias_bytes")
    return Compiled(fits=True, hbm_bytes=peak + answer["temp_bytes"] + answer["program_bytes"], **answer)


def _first(error: str) -> str:
    """Return the first line of a compiler's message, at most 300 characters."""
    return " ".join(error.split("\n")[0].split())[:300]
