"""Lower functions of TensorFlow to XLA programs, and call these as functions of jax, by its public API alone.

A module of TensorFlow comes as a serialized HloModuleProto, because protocol buffers stay readable across versions.
jax parses it as StableHLO; what a device needs otherwise is changed operation by operation; and `jax.export` calls the
result as it calls any other program. Lowering needs no device, and runs nothing.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from t5prep.errors import T5prepError
from t5prep.training.model.switches import is_on

try:
    from jax.extend.mlir import hlo_to_stablehlo, ir
    from jax.extend.mlir.dialects import stablehlo
except ImportError as error:
    raise T5prepError(
        f'jax {jax.__version__} lacks a part that t5prep calls programs by ({error}): pip install "jax>=0.10,<0.13"'
    ) from error

_DTYPES = {
    **{"f32": np.float32, "bf16": jnp.bfloat16, "f16": np.float16, "f64": np.float64, "i1": np.bool_},
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}


# A pytree of jax, or a structure of tf.nest: dicts and tuples of arrays, of tensors, or of their specs.
Tree: TypeAlias = Any


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A function as a serialized HloModuleProto.

    `inputs` and `outputs` are nested like the function's arguments and its result, with a tf.TensorSpec for each
    tensor; the module takes and returns the same tensors, flattened by `tf.nest`.
    """

    module: bytes
    inputs: tuple[Tree, ...]
    outputs: Tree


def lower(function: Callable[..., Tree], *inputs: Tree, dtype: tf.DType = tf.float32) -> Lowered:
    """Return `function` as a program for arguments like `inputs`: nested tf.TensorSpecs of static shape.

    dtype: that of the model's products; with float32 every device
    multiplies in float32, which a TPU and a GPU otherwise round (to bfloat16, to TF32).

    No memory is needed for the tensors, so a model of 11 billion weights can be lowered on a laptop.
    """
    flat = tf.nest.flatten(inputs)
    result: list[Tree] = []

    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        outputs = function(*tf.nest.pack_sequence_as(inputs, tensors))
        result[:] = [tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), outputs)]
        return tf.nest.flatten(outputs)

    if tf.config.list_physical_devices("GPU") and tf.config.get_visible_devices("GPU"):
        tf.config.set_visible_devices([], "GPU")  # TensorFlow would take their memory, which the runtime needs
    program = tf.function(run, jit_compile=True, autograph=False)
    rounding = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(dtype != tf.float32)
    try:
        module = program.experimental_get_compiler_ir(*flat)(stage="hlo_serialized")
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(rounding)
    return Lowered(module, inputs, result[0])


def specs(like: Tree) -> Tree:
    """Return tf.TensorSpecs that are nested like arrays, or like jax.ShapeDtypeStructs.

    >>> specs({"a": np.zeros((2, 3), np.float32)})["a"].shape
    TensorShape([2, 3])
    """
    return jax.tree.map(lambda array: tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)), like)


def embed(module: bytes, *, platform: str) -> jax.export.Exported:
    """Return a serialized HloModuleProto as an exported program: `call` takes arrays, and returns the list of results.

    `in_avals` has the shape and dtype of each argument. platform: "tpu", "cpu" or "cuda"; a TPU has another operation for
    random bits, which `switches` turns off.
    """
    # The context of any lowered function knows the dialects of jax.
    context = jax.jit(lambda x: x).lower(0.0).compiler_ir("stablehlo").context
    with context, ir.Location.unknown():
        parsed = ir.Module.parse(hlo_to_stablehlo(module))
        for copy in _find_operations(parsed, "mhlo.copy"):  # which does nothing, and StableHLO has no such operation
            copy.results[0].replace_all_uses_with(copy.operands[0])
            copy.erase()
        if platform != "cpu":
            multiply_rounded(parsed)
        if platform == "tpu" and is_on("random-bits"):
            draw_bits_on_the_chip(parsed)
        if platform == "cuda":
            share_kernels_of_philox(parsed)
        parsed.operation.verify()
        (main,) = [function for function in parsed.body.operations if function.name.value == "main"]
        inputs, outputs = _shapes(main.type.inputs), _shapes(main.type.results)
        portable = stablehlo.serialize_portable_artifact(parsed, stablehlo.get_current_version())

    # jax has no public way to make an Exported of a module: one of the same arguments and results gets the module.
    with jax.enable_x64(any(np.dtype(spec.dtype).itemsize == 8 for spec in (*inputs, *outputs))):
        like_it = jax.jit(lambda *_: [jnp.zeros(spec.shape, spec.dtype) for spec in outputs], keep_unused=True)
        likeness = jax.export.export(like_it, platforms=[platform])(*inputs)
    return dataclasses.replace(likeness, mlir_module_serialized=portable)


def draw_bits_on_the_chip(module: ir.Module) -> None:
    """Replace Philox by the chip's own generator of random bits.

    `auto_select` means Philox on CPU and GPU; on a TPU it means the chip's own generator, with the key and the first
    word of the counter as its key (tensorflow/compiler/tf2xla/kernels/stateless_random_ops_v2.cc, MaybeSliceCounter).
    """
    key_type = ir.RankedTensorType.get([2], ir.IntegerType.get_unsigned(64))
    default = stablehlo.RngAlgorithmAttr.get("DEFAULT")
    for philox in _find_operations(module, "stablehlo.rng_bit_generator"):
        with ir.InsertionPoint(philox), philox.location:
            key = stablehlo.slice(philox.operands[0], [0], [2], [1])
            generator = stablehlo.RngBitGeneratorOp(key_type, philox.results[1].type, default, key)
            counter = stablehlo.slice(generator.results[0], [1], [2], [1])
            state = stablehlo.concatenate([generator.results[0], counter], 0)
        philox.results[0].replace_all_uses_with(state)
        philox.results[1].replace_all_uses_with(generator.results[1])
        philox.erase()


def share_kernels_of_philox(module: ir.Module) -> None:
    """Keep the counter of Philox out of its kernels: with a dropout site's number in it, each site would have kernels of its own."""
    for philox in _find_operations(module, "stablehlo.rng_bit_generator"):
        with ir.InsertionPoint(philox), philox.location:
            philox.operands[0] = stablehlo.optimization_barrier([philox.operands[0]])


def multiply_rounded(module: ir.Module) -> None:
    """Let products of float32 numbers that were bfloat16 before take these: a GPU would multiply the float32 ones in TF32."""
    rounded = {
        cast.results[0]: cast.operands[0]
        for cast in _find_operations(module, "stablehlo.convert")
        if isinstance(ir.RankedTensorType(cast.operands[0].type).element_type, ir.BF16Type)
    }
    for dot in _find_operations(module, "stablehlo.dot_general"):
        if all(operand in rounded for operand in dot.operands):
            for number, operand in enumerate(list(dot.operands)):
                dot.operands[number] = rounded[operand]


def _find_operations(module: ir.Module, name: str) -> list[ir.Operation]:
    """Return all operations of that name, those of inner regions too; a list, because callers erase operations."""

    def walk(operation: ir.Operation) -> Iterator[ir.Operation]:
        for region in operation.regions:
            for block in region.blocks:
                for child in block.operations:
                    if child.operation.name == name:
                        yield child.operation
                    yield from walk(child.operation)

    return list(walk(module.operation))


def _shapes(types: Sequence[ir.Type]) -> list[jax.ShapeDtypeStruct]:
    ranked = [ir.RankedTensorType(tensor_type) for tensor_type in types]
    return [
        jax.ShapeDtypeStruct(tuple(tensor_type.shape), _DTYPES[str(tensor_type.element_type)]) for tensor_type in ranked
    ]
