"""Read the estimated cycles of each instruction from the program that the TPU compiler made.

Every scheduled instruction has `"estimated_cycles":"N"` and the name of the TensorFlow operation it came from. A step
takes the sum over the entry computation. The body of a loop counts once for each iteration, for loops that count from 0
to a constant, as those of TensorFlow and jax do. The estimate is for one device that never waits for its host.
"""

import collections
import math
import re
from collections.abc import Iterator

# What is said instead of a time where no instruction has the number.
UNREAD = "libtpu {} writes no estimated cycles that t5prep can read into its programs; memory and FLOPs are known"

_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\([^\n]*\) -> [^\n]*)?\{$")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_LOOP = re.compile(r"\bwhile\(.*\bcondition=%?([\w.\-]+), body=%?([\w.\-]+)")
_BOUND = re.compile(r" = [su](?:32|64)\[\]\S* constant\((\d+)\)")
_CALL = re.compile(r"\b(?:call|conditional)\(.*\b(?:to_apply|branch_computations|true_computation)=\{?%?([\w.\-]+)")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_COLLECTIVE = re.compile(r" (?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
_SHAPE = re.compile(r"\b(pred|[a-z]+\d+)\[([\d,]*)\]")
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s64": 8, "u64": 8, "f64": 8}
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")


def estimated_cycles(text: str) -> int:
    """Return the cycles of one run of a compiled module, as the compiler estimates them.

    >>> estimated_cycles('''ENTRY %main (p: f32[8]) -> f32[8] {
    ...   %a = f32[8]{0} fusion(%p), backend_config={"estimated_cycles":"40"}
    ...   ROOT %b = f32[8]{0} add(%a, %a), backend_config={"estimated_cycles":"2"}
    ... }''')
    42
    """
    return sum(cycles for cycles, _, _ in instructions(text))


def has_loops(text: str) -> bool:
    """Check whether a module has loops. Except for cycles, the compiler's figures count the body of a loop once."""
    return _LOOP.search(text) is not None


def exchanged_bytes(text: str) -> int:
    """Return the bytes that devices get from each other in one run of a module; the compiler estimates no cycles for it.

    >>> exchanged_bytes('''ENTRY %main (p: f32[8]) -> f32[8] {
    ...   %all-reduce.7 = (f32[8,2]{1,0:T(8,128)}, bf16[4]{0}) all-reduce(%p, %q), replica_groups={{0,1}}
    ...   ROOT %b = f32[8]{0} add(%a, %a), backend_config={"estimated_cycles":"2"}
    ... }''')
    72
    """
    return sum(times * _size(line) for times, line in _executed(text) if _COLLECTIVE.search(line))


def by_operation(text: str, *, depth: int) -> dict[str, int]:
    """Return the cycles summed over the first `depth` parts of the operations' names, the most expensive first."""
    total: collections.Counter[str] = collections.Counter()
    for cycles, _, operation in instructions(text):
        total["/".join(operation.split("/")[:depth]) or "(unnamed)"] += cycles
    return dict(total.most_common())


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
    """Yield each line that one run of the entry computation executes, and how often it does."""
    computations, entry = _split(text)

    def walk(name: str, times: int) -> Iterator[tuple[int, str]]:
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
    """Return the bytes of an instruction's result."""
    result = line.partition(" = ")[2].partition(" all-")[0].partition(" reduce-scatter")[0].partition(" collective")[0]
    sizes = 0
    for kind, dimensions in _SHAPE.findall(result):
        sizes += _BYTES.get(kind, 4) * math.prod(int(one) for one in dimensions.split(",") if one)
    return sizes


def _split(text: str) -> tuple[dict[str, list[str]], str]:
    """Return the lines of each computation of a module, by name, and the name of the entry computation."""
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
