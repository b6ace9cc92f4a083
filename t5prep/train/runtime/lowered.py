"""Lower functions of TensorFlow to XLA programs, on any machine and without running them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Lowered:
    """Hold one function as a serialized HloModuleProto.

    `inputs` and `outputs` are nested like the function's arguments and its result, with a tf.TensorSpec for each
    tensor; the module takes and returns the same tensors, flattened by `tf.nest`.
    """

    module: bytes
    inputs: tuple[Any, ...]
    outputs: Any


def lower(function: Callable[..., Any], *inputs: Any, dtype: tf.DType = tf.float32) -> Lowered:
    """Return `function` as a program for arguments like `inputs`: nested tf.TensorSpecs of static shape.

    dtype: that of the model's products; with float32 every device
    multiplies in float32, which a TPU and a GPU otherwise round (to bfloat16, to TF32).

    No memory is needed for the tensors, so a model of 11 billion weights can be lowered on a laptop.
    """
    flat = tf.nest.flatten(inputs)
    result: list[Any] = []

    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        outputs = function(*tf.nest.pack_sequence_as(inputs, tensors))
        result[:] = [tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), outputs)]
        return tf.nest.flatten(outputs)

    hide_gpus()
    program = tf.function(run, jit_compile=True, autograph=False)
    rounding = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(dtype != tf.float32)
    try:
        module = program.experimental_get_compiler_ir(*flat)(stage="hlo_serialized")
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(rounding)
    return Lowered(module, inputs, result[0])


def hide_gpus() -> None:
    """Keep TensorFlow from using the GPUs: it would take their memory, which the runtime needs."""
    if tf.config.list_physical_devices("GPU") and tf.config.get_visible_devices("GPU"):
        tf.config.set_visible_devices([], "GPU")


def specs(shapes: Any) -> Any:
    """Return float32 tf.TensorSpecs for a dict of shapes, or for a dict of such dicts.

    >>> specs({"a": (2, 3)})["a"].shape
    TensorShape([2, 3])
    """
    if isinstance(shapes, dict):
        return {name: specs(own) for name, own in shapes.items()}
    return tf.TensorSpec(shapes, tf.float32)
