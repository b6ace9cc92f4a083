"""Run the TPU compiler in a separate process: `python -m t5prep.planning.compiler TOPOLOGY DEVICES < request.json`.

libtpu reads its settings from the environment when it is loaded. It may end the process, and it uses gigabytes of memory.
So it never runs inside the program that sends the request.

The request is one JSON object (`Request`). Its keys are:

* "step": a training step (`step_of`).
* "save": a run's directory, in which the executable is saved for the start of `train` (`compiling.place_of`).
* "dump": an empty folder, to plan the memory of a step alone. The compiler writes its plan there, and is stopped before it
  generates code, which takes nearly all of its time.

The answer is one JSON object on stdout (`Figures`): memory in bytes, FLOPs, estimated cycles; or `error`, the compiler's
message.

The compiled text has `"estimated_cycles":"N"` at each scheduled instruction, with the name of its TensorFlow operation. The
time of a step is the sum over the entry computation. The body of a loop counts once for each iteration. This requires a loop
from 0 to a constant, as TensorFlow and jax make it. The estimate is for one device that never waits for its host.
"""

import collections
import importlib.metadata
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from t5prep.json_values import JSONObject

if TYPE_CHECKING:
    import jax

    from t5prep.training.runtime.programs import Program

# The line of XLA's buffer assignment with the temporaries of the program in HBM. Lines of other memories have a `color`.
_TEMPORARIES = re.compile(r"allocation \d+: size (\d+), page \d+, preallocated-temp:")
# The sentence in place of a time if no instruction has the number of its cycles.
UNREAD = "libtpu {} writes no estimated cycles that t5prep can read into its programs; memory and FLOPs are known"

# Parts of the text of a compiled HLO module. Its computations are blocks `NAME (...) -> ... {` ... `}`.
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\([^\n]*\) -> [^\n]*)?\{$")
# An instruction's estimate, a loop with the names of its condition and body, the number of its iterations (a constant in its
# condition), and a call of another computation.
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_LOOP = re.compile(r"\bwhile\(.*\bcondition=%?([\w.\-]+), body=%?([\w.\-]+)")
_BOUND = re.compile(r" = [su](?:32|64)\[\]\S* constant\((\d+)\)")
_CALL = re.compile(r"\b(?:call|conditional)\(.*\b(?:to_apply|branch_computations|true_computation)=\{?%?([\w.\-]+)")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
# Instructions by which devices exchange data, the shapes of their results, and the bytes of a number (others have 4).
_COLLECTIVE = re.compile(r" (?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
_SHAPE = re.compile(r"\b(pred|[a-z]+\d+)\[([\d,]*)\]")
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s64": 8, "u64": 8, "f64": 8}
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
# Without the TPU_ variables, libtpu queries Google's metadata server about this machine. XLA_FLAGS is reset, because
# libtpu ends its process at a flag of another platform; its own flags are in LIBTPU_INIT_ARGS.
ENVIRONMENT = {
    "XLA_FLAGS": "",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}


class Step(TypedDict):
    """Hold a step of `train`, or with `embed` the program of `t5prep embed`, as JSON values.

    `shape`, `settings` and `padding` are the fields of a model's config, a TrainConfig and a Padding. `shard` is the number
    of devices of a replica.
    """

    shape: JSONObject
    settings: dict[str, Any]
    padding: dict[str, Any]
    input_length: int
    target_length: int
    packed: bool
    shard: int
    embed: bool


class Request(TypedDict, total=False):
    """Hold a request to the compiler's process. The module describes the keys."""

    step: Step
    save: str
    dump: str


class Figures(TypedDict, total=False):
    """Hold the answer of the compiler's process: fields of `compiled.Compiled`, and their parts, or `error`."""

    error: str
    weight_bytes: int
    slot_bytes: int
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    program_bytes: int
    flops: int
    accessed_bytes: int
    estimated_cycles: int
    unread: str
    exchanged_bytes: int
    loops: bool
    by_operation: dict[str, int]
    saved: str
    digest: str


def compile_here(request: Request, *, topology: str, devices: int) -> Figures:
    """Compile in this process, whose environment must have ENVIRONMENT, and return the figures, or the `error`."""
    from jax.experimental import topologies

    state: Figures = {}
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[:devices]
        program, state = step_of(request["step"], described)
        executable = program.lowered.compile()
    except Exception as error:  # jaxlib raises classes of its own and of MLIR; only their message is useful
        return {**state, "error": str(error)}
    answer: Figures = {**state, **read(executable)}
    if save := request.get("save"):
        from t5prep.training.runtime import compiling

        answer["saved"] = compiling.save(executable, program, compiling.place_of(save))
        answer["digest"] = program.digest
    return answer


def step_of(request: Step, devices: list["jax.Device"]) -> tuple["Program", Figures]:
    """Return the program of a step, and the bytes of weights (with their copies in the compute dtype) and slots on a device.

    The program of `t5prep embed` has no slots.
    """
    from t5prep.options.models import VectorOptions
    from t5prep.training.embed import vectors
    from t5prep.training.model.architecture import config_of
    from t5prep.training.runtime.layout import arrange
    from t5prep.training.runtime.programs import step_program
    from t5prep.training.settings.padding import Padding
    from t5prep.training.settings.train_config import TrainConfig

    shape, settings = config_of(request["shape"]), TrainConfig(**request["settings"])
    layout = arrange(devices, shard=request["shard"])
    if request["embed"]:
        dtype = "bfloat16" if settings.dtype == "auto" else settings.dtype
        output = VectorOptions(pooling="none", dtype=dtype)
        program = vectors.program_of(shape, output, rows=settings.batch, length=request["input_length"], layout=layout)
        return program, {"weight_bytes": _on_a_device(program.arguments[0]), "slot_bytes": 0}
    step = step_program(
        shape,
        settings,
        layout=layout,
        input_length=request["input_length"],
        target_length=request["target_length"],
        packed=request["packed"],
        padding=Padding(**request["padding"]),
    )
    weights, slots, _, copies, *_ = step.program.arguments
    return step.program, {"weight_bytes": _on_a_device((weights, copies)), "slot_bytes": _on_a_device(slots)}


def read(executable: "jax.stages.Compiled") -> Figures:
    """Return the figures of a compiled program."""
    text, memory, cost = executable.as_text(), executable.memory_analysis(), executable.cost_analysis()
    cycles = estimated_cycles(text)
    return {
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "temp_bytes": memory.temp_size_in_bytes,
        "program_bytes": memory.generated_code_size_in_bytes,
        "flops": int(cost.get("flops", 0)),
        "accessed_bytes": int(cost.get("bytes accessed", 0)),
        "estimated_cycles": cycles,
        "unread": "" if cycles else UNREAD.format(importlib.metadata.version("libtpu")),
        "exchanged_bytes": exchanged_bytes(text),
        "loops": _LOOP.search(text) is not None,  # jax's cost analysis counts the body of a loop once
        "by_operation": by_operation(text),
    }


def _on_a_device(arguments: "jax.ArrayTree") -> int:
    """Return the bytes of all arrays in `arguments` on one device, by their shardings."""
    import jax

    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(arguments)
    )


def planned_temporaries(dump: Path) -> int | None:
    """Return the bytes of temporaries that the compiler has planned, or None while the folder `dump` does not have them.

    For a compiler that writes its plan in another format, this stays None. The compilation then runs to its end, and jax
    knows the temporaries.
    """
    # The compiler writes this file after the plan, so the plan is complete.
    if not list(dump.glob("*.after_optimizations.txt")):
        return None
    (plan,) = dump.glob("*.after_optimizations-buffer-assignment.txt")
    with plan.open() as lines:
        sizes = [_TEMPORARIES.match(line) for line in lines]
    return sum(int(size[1]) for size in sizes if size) if any(sizes) else None


def _answer_early(dump: Path, out: int) -> None:
    """Wait until the temporaries are planned, write them as the answer to the file descriptor `out`, and end this process."""
    while (temporaries := planned_temporaries(dump)) is None:
        time.sleep(0.2)
    os.write(out, json.dumps({"temp_bytes": temporaries}).encode())
    os._exit(0)


def estimated_cycles(text: str) -> int:
    """Return the compiler's estimate of the cycles of one run of a compiled module, given its text.

    >>> estimated_cycles('''ENTRY %main (p: f32[8]) -> f32[8] {
    ...   %a = f32[8]{0} fusion(%p), backend_config={"estimated_cycles":"40"}
    ...   ROOT %b = f32[8]{0} add(%a, %a), backend_config={"estimated_cycles":"2"}
    ... }''')
    42
    """
    return sum(cycles for cycles, _, _ in instructions(text))


def exchanged_bytes(text: str) -> int:
    """Return the bytes that a device gets from others in one run of a module. The compiler estimates no cycles for this.

    >>> exchanged_bytes('''ENTRY %main (p: f32[8]) -> f32[8] {
    ...   %all-reduce.7 = (f32[8,2]{1,0:T(8,128)}, bf16[4]{0}) all-reduce(%p, %q), replica_groups={{0,1}}
    ...   ROOT %b = f32[8]{0} add(%a, %a), backend_config={"estimated_cycles":"2"}
    ... }''')
    72
    """
    return sum(times * _size(line) for times, line in _executed(text) if _COLLECTIVE.search(line))


def by_operation(text: str) -> dict[str, int]:
    """Return the cycles of a compiled module by kind of operation (`kind_of`), the most expensive first."""
    total: collections.Counter[str] = collections.Counter()
    for cycles, _, operation in instructions(text):
        total[kind_of(operation)] += cycles
    return dict(total.most_common())


def kind_of(operation: str) -> str:
    """Return the kind of an operation, given its name from TensorFlow and XLA: without scopes and without its number.

    >>> kind_of("jit(train_step)/einsum_12"), kind_of("jit(step)/gradient_tape/einsum_3/Einsum_1"), kind_of("")
    ('einsum', 'gradient: einsum', 'without a name')
    """
    parts = [part for part in operation.split("/") if part]
    if not parts:
        return "without a name"
    kind = re.sub(r"_\d+$", "", parts[-1]).lower()
    return f"gradient: {kind}" if "gradient_tape" in parts else kind


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (cycles, name, operation) of each instruction in one run of the entry computation.

    Cycles in a loop are multiplied by its iterations.
    """
    for times, line in _executed(text):
        if cycles := _CYCLES.search(line):
            instruction, operation = _INSTRUCTION.match(line), _OP_NAME.search(line)
            yield (
                times * int(cycles[1]),
                instruction[1] if instruction else "?",
                operation[1] if operation else "",
            )


def _executed(text: str) -> Iterator[tuple[int, str]]:
    """Yield (times, line) for each line of text that one run of the entry computation executes `times` times."""
    computations, entry = _split(text)

    def walk(name: str, times: int) -> Iterator[tuple[int, str]]:
        """Yield the lines of a computation that is executed `times` times, and of its loops and calls."""
        for line in computations.get(name, ()):
            if loop := _LOOP.search(line):
                bounds = [int(bound[1]) for part in computations.get(loop[1], ()) if (bound := _BOUND.search(part))]
                yield from walk(loop[2], times * max(bounds, default=1))
            elif call := _CALL.search(line):
                yield from walk(call[1], times)
            else:
                yield times, line

    return walk(entry, 1)


def _size(line: str) -> int:
    """Return the bytes of the result of the collective instruction in `line`."""
    result = line.partition(" = ")[2].partition(" all-")[0].partition(" reduce-scatter")[0].partition(" collective")[0]
    sizes = 0
    for kind, dimensions in _SHAPE.findall(result):
        sizes += _BYTES.get(kind, 4) * math.prod(int(dimension) for dimension in dimensions.split(",") if dimension)
    return sizes


def _split(text: str) -> tuple[dict[str, list[str]], str]:
    """Return the lines of each computation of a compiled module, by name, and the name of the entry computation."""
    computations: dict[str, list[str]] = {}
    entry, current = "", None
    for line in text.splitlines():
        if current is None:
            if head := _HEAD.match(line):
                current = computations[head[2]] = []
                entry = head[2] if head[1] else entry
        elif line == "}":
            current = None
        else:
            current.append(line)
    return computations, entry


def main() -> None:
    """Read a request from stdin, and write the answer to stdout."""
    os.environ.update(ENVIRONMENT)
    topology, devices = sys.argv[1:]
    request: Request = json.load(sys.stdin)
    out = os.dup(1)
    os.dup2(2, 1)  # libraries print to stdout, which is for the answer only: send theirs to stderr
    if dump := request.get("dump"):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={dump}"
        threading.Thread(target=_answer_early, args=(Path(dump), out), daemon=True).start()
    answer = compile_here(request, topology=topology, devices=int(devices))
    os.write(out, json.dumps(answer).encode())


if __name__ == "__main__":
    main()
