"""Train two small matrices beside each large one (LoRA, Hu et al. 2021), for a model of any architecture.

An adapter of the matrix W, [in, out], is A, [in, rank], and B, [rank, out]. The model computes with W + scale * A B, so the
code of architectures knows nothing of adapters; W itself does not change. Every linear layer of attention and feed-forward gets
an adapter. A head for classes or masks is small and often new, so it is trained without one.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from t5prep.training.model.architecture import Config
from t5prep.training.model.weight_layout import HEAD_PREFIXES, WeightLayout, of_head, weight_layouts
from t5prep.training.published.stored import Array, Index, LazyArray

A, B = ".lora_a", ".lora_b"  # endings of the names of an adapter's two variables, after the name of the matrix
# peft's names of the same matrices: `base_model.model.NAME_OF_THE_LAYER.lora_A.weight`.
PREFIX, PEFT_A, PEFT_B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


def adapter_layouts(config: Config) -> dict[str, WeightLayout]:
    """Return the variables of the adapters, by name; an empty dict if `lora_rank` is 0.

    A is initialized with normal values of the variance that peft's uniform values have, 1 / (3 * in), and B with zeros
    (Hu et al. 2021, section 4.1).
    """
    layouts = {}
    for name, layout in weight_layouts(config).items() if config.lora_rank else ():
        if not layout.transposed or name.startswith(HEAD_PREFIXES):  # an embedding, a norm, a bias, or a head's matrix
            continue
        *stack, inputs, outputs = layout.shape
        stems = [PREFIX + tensor.removesuffix(".weight") for tensor in layout.tensors]
        for suffix, shape, deviation, theirs in (
            (A, (inputs, config.lora_rank), (3 * inputs) ** -0.5, PEFT_A),
            (B, (config.lora_rank, outputs), 0.0, PEFT_B),
        ):
            tensors = tuple(stem + theirs for stem in stems)
            layouts[name + suffix] = WeightLayout((*stack, *shape), layout.stacked_axes, deviation, tensors, True)
    return layouts


def variable_layouts(config: Config) -> dict[str, WeightLayout]:
    """Return every variable that a device holds during training, by name: the model's and the adapters'."""
    return weight_layouts(config) | adapter_layouts(config)


def trained_layouts(config: Config) -> dict[str, WeightLayout]:
    """Return the variables that training changes, by name: adapters and head, or all variables in a run without adapters."""
    return of_head(config) | adapter_layouts(config) if config.lora_rank else weight_layouts(config)


def parameters(config: Config) -> str:
    """Return the numbers of all parameters and of trained parameters, as the beginning of a sentence."""
    total, trained = (
        sum(math.prod(layout.shape) for layout in layouts.values())
        for layouts in (weight_layouts(config), trained_layouts(config))
    )
    head = " and a head" if of_head(config) else ""
    return f"{trained:,} parameters in adapters{head} of {total:,}" if config.lora_rank else f"{total:,} parameters"


def merged(weights: Mapping[str, tf.Tensor], config: Config) -> dict[str, tf.Tensor]:
    """Return the weights for the model's computation, as tensors by the model's names, with adapters added to the matrices."""
    if not config.lora_rank:
        return dict(weights)
    scale = config.lora_alpha / config.lora_rank
    return {
        name: _sum(weights[name], weights[name + A], weights[name + B], scale) if name + A in weights else weights[name]
        for name in weight_layouts(config)
    }


def merge_arrays(weights: dict[str, Array], adapters: Mapping[str, np.ndarray], *, scale: float) -> None:
    """Replace each matrix in `weights` that has an adapter by matrix + scale * A B, computed when a part of it is read."""
    for name in [name.removesuffix(A) for name in adapters if name.endswith(A)]:
        weights[name] = _merged_array(weights[name], adapters[name + A], adapters[name + B], scale=scale)


def _merged_array(matrix: Array, a: np.ndarray, b: np.ndarray, *, scale: float) -> LazyArray:
    def read(index: Index) -> np.ndarray:
        *stack, rows, columns = index
        product = a[(*stack, rows)] @ b[(*stack, slice(None), columns)]
        product *= np.float32(scale)
        product += matrix[index]
        return product

    return LazyArray(matrix.shape, read)


def _sum(matrix: tf.Tensor, a: tf.Tensor, b: tf.Tensor, scale: float) -> tf.Tensor:
    """Return matrix + scale * a b, with gradients for a and b only. A bfloat16 gradient is cast to float32 first."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def add(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            wide = scale * tf.cast(upstream, tf.float32)
            return tf.matmul(wide, b, transpose_b=True), tf.matmul(a, wide, transpose_a=True)

        return matrix + scale * tf.matmul(a, b), gradient

    added: tf.Tensor = add(a, b)
    return added
