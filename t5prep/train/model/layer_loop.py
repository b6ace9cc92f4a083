"""Run all layers of a stack as one loop over their stacked weights, with a backward loop that rematerializes.

Only each layer's input is kept for the backward pass, which runs the layer again. All layers share one program, so XLA
compiles in the time of one layer; and a layer's gradients overwrite its weights' slots after they were read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

# A layer: (x, inputs that all layers share, this layer's weights, its number) → x.
Layer = Callable[[tf.Tensor, Sequence[tf.Tensor], Mapping[str, tf.Tensor], tf.Tensor], tf.Tensor]


def loop_over_layers(
    layer: Layer, x: tf.Tensor, shared: Sequence[tf.Tensor], stacked: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Apply the layers one after the other to x, and return the result.

    stacked: weights with a leading axis of layers; shared: other inputs with gradients, which are added up over the
    layers. Tensors in the closure of `layer` get no gradient.
    """
    names = list(stacked)
    layers = int(stacked[names[0]].shape[0])

    def own(values: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        return dict(zip(names, values, strict=True))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(x: tf.Tensor, shared: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, Any]:
        def forward(number: tf.Tensor, x: tf.Tensor, inputs: tf.TensorArray) -> tuple[Any, ...]:
            y = layer(x, shared, own([value[number] for value in values]), number)
            return number + 1, y, inputs.write(number, x)

        inputs = tf.TensorArray(x.dtype, size=layers, element_shape=x.shape)
        _, y, inputs = tf.while_loop(lambda n, *_: n < layers, forward, (0, x, inputs), maximum_iterations=layers)
        layer_inputs = inputs.stack()

        def gradient(upstream: tf.Tensor) -> tuple[Any, ...]:
            def backward(
                done: tf.Tensor, of_x: tf.Tensor, of_shared: list[tf.Tensor], arrays: list[tf.TensorArray]
            ) -> tuple[Any, ...]:
                number = layers - 1 - done
                inputs = (layer_inputs[number], list(shared), own([array.read(number) for array in arrays]))
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(inputs)
                    y = layer(*inputs, number)
                zero = tf.UnconnectedGradients.ZERO
                of_x, more, of_own = tape.gradient(y, inputs, output_gradients=of_x, unconnected_gradients=zero)
                of_shared = [total + part for total, part in zip(of_shared, more, strict=True)]
                # These weights are not read again: write their gradients in their place.
                arrays = [array.write(number, of_own[name]) for array, name in zip(arrays, names, strict=True)]
                return done + 1, of_x, of_shared, arrays

            arrays = [array_of(value) for value in values]
            begin = (0, upstream, [tf.zeros_like(one) for one in shared], arrays)
            _, of_x, of_shared, arrays = tf.while_loop(
                lambda done, *_: done < layers, backward, begin, maximum_iterations=layers
            )
            return of_x, of_shared, [array.stack() for array in arrays]

        return y, gradient

    return run(x, list(shared), [stacked[name] for name in names])


def array_of(value: tf.Tensor) -> tf.TensorArray:
    """Return a tensor as the array of slices of its first axis; each slice may be overwritten after it was read."""
    array = tf.TensorArray(value.dtype, size=value.shape[0], element_shape=value.shape[1:], clear_after_read=False)
    return array.unstack(value)
