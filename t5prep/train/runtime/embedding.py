"""Call lowered programs as functions of jax. Only this file uses private parts of jax (tested with 0.10.2).

A module of TensorFlow comes as a serialized HloModuleProto, because protocol buffers stay readable across versions.
StableHLO text of TensorFlow 2.20 cannot always be parsed by a newer parser (for example large boolean constants). jax
has no public way from HLO to StableHLO: `hlo_to_stablehlo` and `make_ir_context` are private. The rest is public:
`jax.export` calls a StableHLO module as it calls any other.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax._src.interpreters.mlir import make_ir_context
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jaxlib._jax.mlir import hlo_to_stablehlo

from t5prep.train.model.switches import is_on

Arrays = Sequence[Any]

_COPY = re.compile(r"= mhlo\.copy (%\S+) : (tensor<\S+>)")
_PHILOX = re.compile(
    r"%(\S+), %(\S+) = stablehlo\.rng_bit_generator (%\S+), algorithm = +PHILOX : "
    r"\(tensor<3xui64>\) -> \(tensor<3xui64>, (tensor<\S+>)\)"
)
_CONSTANT = re.compile(r"(%\S+) = stablehlo\.constant dense<([^>]*)> : (tensor<[^>]+>)")
_BROADCAST = re.compile(r"(= )stablehlo\.broadcast_in_dim (%\S+), dims = \[\] : \(tensor<\w+>\) -> (tensor<[^>]+>)")
_FILLER = re.compile(r"-7\.8886\d*[eE]-31")  # `tpu_only.FILLER`
_ALLOCATE = "stablehlo.custom_call @AllocateBuffer() : () -> "
_DTYPES = {
    **{"f32": np.float32, "bf16": jnp.bfloat16, "f16": np.float16, "f64": np.float64, "i1": np.bool_},
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}


def embed(module: bytes, *, platform: str) -> Callable[..., list[Any]]:
    """Return a serialized HloModuleProto as a function that jax can trace, from arrays to the list of its results.

    platform: "tpu", "cpu" or "cuda"; a TPU has another operation for random bits (`for_tpu`).
    """
    with make_ir_context():
        text = ir.Module.parse(hlo_to_stablehlo(module)).operation.get_asm(enable_debug_info=True)
        text = for_tpu(text) if platform == "tpu" else without_copies(text)
        parsed = ir.Module.parse(text)
        (main,) = [function for function in parsed.body.operations if function.name.value == "main"]
        inputs, outputs = _shapes(main.type.inputs), _shapes(main.type.results)
        portable = stablehlo.serialize_portable_artifact(parsed, stablehlo.get_current_version())

    def like_it(*_: Any) -> list[Any]:
        return [jnp.zeros(output.shape, output.dtype) for output in outputs]

    with jax.enable_x64(any(np.dtype(one.dtype).itemsize == 8 for one in (*inputs, *outputs))):
        likeness = jax.export.export(jax.jit(like_it, keep_unused=True), platforms=[platform])(*inputs)
    exported = dataclasses.replace(likeness, mlir_module_serialized=portable)
    call: Callable[..., list[Any]] = exported.call
    return call


def input_shapes(module: bytes) -> list[jax.ShapeDtypeStruct]:
    """Return the shape and dtype of each argument of a serialized HloModuleProto."""
    with make_ir_context():
        parsed = ir.Module.parse(hlo_to_stablehlo(module))
        (main,) = [function for function in parsed.body.operations if function.name.value == "main"]
        return _shapes(main.type.inputs)


def without_copies(module: str) -> str:
    """Return a module's text with the copies of another dialect, which do nothing, replaced by StableHLO reshapes."""
    return _COPY.sub(r"= stablehlo.reshape \1 : (\2) -> \2", module)


def for_tpu(module: str) -> str:
    """Return the text of a module lowered for a CPU as TensorFlow lowers it for a TPU, both in StableHLO.

    The text comes from `without_copies`; arrays that a loop fills are left unfilled (`unfilled`). Random bits:
    `auto_select` means Philox on CPU and GPU; on a TPU it means the chip's own generator, with the key and the first
    word of the counter as its key (tensorflow/compiler/tf2xla/kernels/stateless_random_ops_v2.cc, MaybeSliceCounter).
    """
    module = without_copies(module)
    if is_on("unfilled"):
        module = unfilled(module)
    if not is_on("random-bits"):
        return module
    return _PHILOX.sub(
        lambda m: (
            f"%{m[1]}_in = stablehlo.slice {m[3]} [0:2] : (tensor<3xui64>) -> tensor<2xui64>\n"
            f"%{m[1]}_two, %{m[2]} = stablehlo.rng_bit_generator %{m[1]}_in, algorithm = DEFAULT : "
            f"(tensor<2xui64>) -> (tensor<2xui64>, {m[4]})\n"
            f"%{m[1]}_one = stablehlo.slice %{m[1]}_two [1:2] : (tensor<2xui64>) -> tensor<1xui64>\n"
            f"%{m[1]} = stablehlo.concatenate %{m[1]}_two, %{m[1]}_one, dim = 0 : "
            f"(tensor<2xui64>, tensor<1xui64>) -> tensor<3xui64>\n"
        ),
        module,
    )


def unfilled(module: str) -> str:
    """Return a module's text with memory that nothing is written into for each tensor of `tpu_only.FILLER`.

    The operation is that of `jax.lax.empty`.

    >>> unfilled("%c = stablehlo.constant dense<-7.88861E-31> : tensor<2x3xf32>")
    '%c = stablehlo.custom_call @AllocateBuffer() : () -> tensor<2x3xf32>'
    """
    fillers: set[str] = set()  # their names; a region may give a name again that another region gave

    def constant(match: re.Match[str]) -> str:
        name, value, kind = match.groups()
        fillers.discard(name)
        if not _FILLER.fullmatch(value):
            return match[0]
        fillers.add(name)
        return f"{name} = {_ALLOCATE}{kind}" if "x" in kind else match[0]

    def broadcast(match: re.Match[str]) -> str:
        return match[1] + _ALLOCATE + match[3] if match[2] in fillers else match[0]

    lines = (_BROADCAST.sub(broadcast, _CONSTANT.sub(constant, line)) for line in module.splitlines(keepends=True))
    return "".join(lines)


def _shapes(types: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    ranked = [ir.RankedTensorType(one) for one in types]
    return [jax.ShapeDtypeStruct(tuple(one.shape), _DTYPES[str(one.element_type)]) for one in ranked]
