"""Run the TPU compiler in a separate process: `python -m t5prep.plan.compiler TOPOLOGY DEVICES < asked.json`.

libtpu reads its settings from the environment when it is loaded, may end the process, and uses gigabytes of memory; so
it never runs inside the program that asks.

What is asked is one JSON object: {"step": ...}, a step of `train` (`step_of`), or {"module": base64}, a serialized
HloModuleProto for one device; and "keep", a file for the compiled text, "save", a run's directory for whose start the
executable is kept (`kept_programs.place_of`), "answers", a folder of earlier answers; "dump", an empty folder, where the memory
of a step alone is asked: the compiler writes there what it has planned, and is stopped before it generates code, which
takes nearly all of its time.

It prints one JSON object: memory in bytes, FLOPs, bytes, estimated cycles; or `error`, the compiler's own words.
"""

import base64
import hashlib
import importlib.metadata
import json
import math
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

from t5prep.io import signed_files
from t5prep.plan import hlo

# A line of XLA's buffer assignment: the temporaries of the whole program in HBM. Other memories have a `color`.
_TEMPORARIES = re.compile(r"allocation \d+: size (\d+), page \d+, preallocated-temp:")
# Without these, libtpu asks Google's metadata server which machine this is.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}


def compile_here(asked: dict[str, Any], *, topology: str, devices: int) -> dict[str, Any]:
    """Compile in this process, whose environment must hold ENVIRONMENT, and return the compiler's answer."""
    from jax.experimental import topologies

    from t5prep.train.runtime import kept_programs

    state: dict[str, int] = {}
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[:devices]
        program, state = step_of(asked["step"], described) if "step" in asked else module_of(asked["module"], described)
        answer = Path(asked["answers"]) / f"{_key(program)}.json" if "answers" in asked else None
        if answer and not (asked.get("keep") or asked.get("save")) and (kept := signed_files.read(answer)) is not None:
            return dict(json.loads(kept))
        executable = program.lowered.compile()
    except Exception as error:  # jaxlib raises several classes, its own and MLIR's; only the message matters
        return state | {"error": str(error)}
    said = state | read(executable)
    if keep := asked.get("keep"):
        Path(keep).write_text(executable.as_text())
    if save := asked.get("save"):
        said["saved"] = kept_programs.save(
            executable, program, kept_programs.path_of(program, kept_programs.place_of(save))
        )
        said["digest"] = program.digest
        made_by = kept_programs.environment(program)
        said["versions"] = {name: made_by[name] for name in ("jax", "libtpu")}
    elif answer:
        signed_files.write(answer, json.dumps(said).encode())
    return said


def step_of(asked: dict[str, Any], devices: list[Any]) -> tuple[Any, dict[str, int]]:
    """Return the program of a training step, and the bytes of weights (with copies) and of slots on a device.

    asked: `shape`, `settings` and `padding` as dicts, `input_length`, `target_length`, `packed`, `shard`.
    """
    from t5prep.train.model.architecture import config_of
    from t5prep.train.runtime.layout import arrange
    from t5prep.train.runtime.programs import step_program
    from t5prep.train.settings.config import TrainConfig
    from t5prep.train.settings.padding import Padding

    made = step_program(
        config_of(asked["shape"]),
        TrainConfig(**asked["settings"]),
        layout=arrange(devices, shard=asked["shard"]),
        input_length=asked["input_length"],
        target_length=asked["target_length"],
        packed=asked["packed"],
        padding=Padding(**asked["padding"]),
    )
    weights, slots, _, copies, *_ = made.program.arguments
    return made.program, {"weight_bytes": _on_a_device((weights, copies)), "slot_bytes": _on_a_device(slots)}


def module_of(encoded: str, devices: list[Any]) -> tuple[Any, dict[str, int]]:
    """Return a serialized HloModuleProto, base64, as a program for the first device."""
    import jax

    from t5prep.train.runtime.embedding import embed
    from t5prep.train.runtime.layout import arrange
    from t5prep.train.runtime.programs import Program

    program, layout = embed(base64.b64decode(encoded), platform="tpu"), arrange(devices[:1])
    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=layout.everywhere) for one in program.in_avals]
    return Program("module", layout, program.call, tuple(shapes), layout.everywhere), {}


def read(executable: Any) -> dict[str, Any]:
    """Return the figures of a compiled program."""
    text, memory, cost = executable.as_text(), executable.memory_analysis(), executable.cost_analysis()
    cycles = hlo.estimated_cycles(text)
    return {
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "temp_bytes": memory.temp_size_in_bytes,
        "program_bytes": memory.generated_code_size_in_bytes,
        "flops": int(cost.get("flops", 0)),
        "accessed_bytes": int(cost.get("bytes accessed", 0)),
        "estimated_cycles": cycles,
        "unread": "" if cycles else hlo.UNREAD.format(importlib.metadata.version("libtpu")),
        "exchanged_bytes": hlo.exchanged_bytes(text),
        "loops": hlo.has_loops(text),
        "by_operation": dict(list(hlo.by_operation(text, depth=3).items())[:40]),
    }


def _on_a_device(arguments: Any) -> int:
    import jax

    return sum(
        math.prod(one.sharding.shard_shape(one.shape)) * one.dtype.itemsize for one in jax.tree.leaves(arguments)
    )


def _key(program: Any) -> str:
    """Return the digest of what decides an answer: the program, its devices, and the code that reads the answer."""
    from t5prep.train.runtime import kept_programs

    source = b"".join((Path(__file__).parent / name).read_bytes() for name in ("compiler.py", "hlo.py"))
    said = [program.digest, kept_programs.environment_digest(program), hashlib.sha256(source).hexdigest()]
    return hashlib.sha256("".join(said).encode()).hexdigest()


def planned_temporaries(dump: Path) -> int | None:
    """Return the bytes of temporaries that the compiler has planned, or None as long as its dump does not say them.

    A compiler that says them in other words is left to come to its end, where jax has them from its own analysis.
    """
    if not list(dump.glob("*.after_optimizations.txt")):  # the next file that it writes
        return None
    (plan,) = dump.glob("*.after_optimizations-buffer-assignment.txt")
    with plan.open() as lines:
        sizes = [_TEMPORARIES.match(line) for line in lines]
    return sum(int(size[1]) for size in sizes if size) if any(sizes) else None


def _answer_early(dump: Path, out: int) -> None:
    """Write the temporaries as the answer, and end this process, as soon as they are planned."""
    while (temporaries := planned_temporaries(dump)) is None:
        time.sleep(0.2)
    os.write(out, json.dumps({"temp_bytes": temporaries}).encode())
    os._exit(0)


def main() -> None:
    """Read the request from stdin, and write the answer to stdout."""
    os.environ.update(ENVIRONMENT)
    topology, devices = sys.argv[1:]
    asked = json.load(sys.stdin)
    out = os.dup(1)
    os.dup2(2, 1)  # libraries print to stdout, which is for the answer only: send theirs to stderr
    if dump := asked.get("dump"):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={dump}"
        threading.Thread(target=_answer_early, args=(Path(dump), out), daemon=True).start()
    answer = compile_here(asked, topology=topology, devices=int(devices))
    os.write(out, json.dumps(answer).encode())


if __name__ == "__main__":
    main()
