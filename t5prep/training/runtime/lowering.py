"""Lower functions of TensorFlow to XLA programs, and make these callable in jax, by public APIs alone.

TensorFlow returns a module as a serialized HloModuleProto, because protocol buffers stay readable across versions
(docs/decisions/018-exchange-programs-as-hlo-protos.md). jax parses it as StableHLO. Here a few operations are replaced for the
device, and `jax.export` calls the result like any other program. Lowering needs no device, and runs nothing.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

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
        f"jax {jax.__version__} lacks a module that t5prep needs ({error}). Install a supported "
        'version: pip install "jax>=0.10,<0.13"',
        code="install.incompatible-version",
    ) from error

_DTYPES = {
    **{"f32": np.float32, "bf16": jnp.bfloat16, "f16": np.float16, "f64": np.float64, "i1": np.bool_},
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}


# Nested dicts and tuples (a pytree of jax, a structure of tf.nest) of arrays, of tensors, or of their specs.
Structure = TypeVar("Structure")


@dataclasses.dataclass(frozen=True)
class Lowered(Generic[Structure]):
    """A function as a serialized HloModuleProto, which takes and returns tensors flattened by `tf.nest`.

    `inputs` and `outputs` are nested like the function's arguments and result, with a tf.TensorSpec for each tensor.
    """

    module: bytes
    inputs: tuple[object, ...]
    outputs: Structure


def lower(function: Callable[..., Structure], *inputs: object, dtype: tf.DType = tf.float32) -> Lowered[Structure]:
    """Return `function` as a program for arguments like `inputs`, nested tf.TensorSpecs of static shape.

    dtype: the dtype of the model's products. With float32 every device multiplies in float32. Otherwise a TPU rounds operands to
    bfloat16, and a GPU to TF32.

    The tensors need no memory, so a model of 11 billion weights can be lowered on a laptop.
    """
    flat = tf.nest.flatten(inputs)
    result: list[Structure] = []

    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        outputs = function(*tf.nest.pack_sequence_as(inputs, tensors))
        result[:] = [tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), outputs)]
        return tf.nest.flatten(outputs)

    if tf.config.list_physical_devices("GPU") and tf.config.get_visible_devices("GPU"):
        tf.config.set_visible_devices([], "GPU")  # TensorFlow would reserve the memory of the GPUs, which jax needs
    program = tf.function(run, jit_compile=True, autograph=False)
    # This global switch of TensorFlow sets the precision of all products in the lowered program.
    rounding = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(dtype != tf.float32)
    try:
        module = program.experimental_get_compiler_ir(*flat)(stage="hlo_serialized")
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(rounding)
    return Lowered(module, inputs, result[0])


def specs(like: Structure) -> Structure:
    """Return the tf.TensorSpecs of the arrays or jax.ShapeDtypeStructs in `like`, nested like these.

    >>> specs({"a": np.zeros((2, 3), np.float32)})["a"].shape
    TensorShape([2, 3])
    """
    return jax.tree.map(lambda array: tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)), like)


def embed(module: bytes, *, platform: str) -> jax.export.Exported:
    """Return a serialized HloModuleProto as an exported jax program, whose `call` takes arrays and returns a list of results.

    platform: "tpu", "cpu" or "cuda". Some operations are replaced for it; `switches` can turn off the TPU's random bits.
    """
    # The module is parsed in the context of an arbitrary lowered function, which knows the dialects of jax.
    context = jax.jit(lambda x: x).lower(0.0).compiler_ir("stablehlo").context
    with context, ir.Location.unknown():
        parsed = ir.Module.parse(hlo_to_stablehlo(module))
        for copy in _find_operations(parsed, "mhlo.copy"):  # does nothing, and is no operation of StableHLO
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

    # jax has no public way to make an Exported from a module. So a dummy with the same arguments and results is exported, and its
    # module is replaced.
    with jax.enable_x64(any(np.dtype(spec.dtype).itemsize == 8 for spec in (*inputs, *outputs))):
        like_it = jax.jit(lambda *_: [jnp.zeros(spec.shape, spec.dtype) for spec in outputs], keep_unused=True)
        likeness = jax.export.export(like_it, platforms=[platform])(*inputs)
    return dataclasses.replace(likeness, mlir_module_serialized=portable)


def draw_bits_on_the_chip(module: ir.Module) -> None:
    """Replace Philox by a TPU's own generator of random bits in a module.

    TensorFlow itself does the same when it lowers AUTO_SELECT for a TPU: the key and the first word of the counter become the
    generator's state (tensorflow/compiler/tf2xla/kernels/stateless_random_ops_v2.cc, MaybeSliceCounter). `lower` runs without a
    TPU, where AUTO_SELECT means Philox.
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
    """Put a barrier before the state of each Philox operation, so that all dropout sites of a GPU share kernels.

    Otherwise XLA would fuse the site's number into the kernel, and compile a kernel for each site.
    """
    for philox in _find_operations(module, "stablehlo.rng_bit_generator"):
        with ir.InsertionPoint(philox), philox.location:
            philox.operands[0] = stablehlo.optimization_barrier([philox.operands[0]])


def multiply_rounded(module: ir.Module) -> None:
    """Replace the float32 operands of products by the bfloat16 values that they were cast from.

    The result is the same, and faster: a GPU would multiply float32 operands in TF32. A product is changed only if both its
    operands are such casts.
    """
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
    """Return all operations with `name`, also in inner regions. It is a list, because callers erase operations."""

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
