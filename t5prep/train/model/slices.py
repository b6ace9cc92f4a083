"""Cut stacked weights into those of each layer, and write the gradients of all layers into one array."""

from typing import Any

import tensorflow as tf

from t5prep.train.model.tpu_only import unfilled


def slices_of(stacked: tf.Tensor, first: int = 0) -> list[tf.Tensor]:
    """Return the slices of the first axis: the `first` ones, or all of them with 0.

    The gradient of `tf.unstack` is a concatenation, for which a TPU copies the gradients of all layers. Here each is
    written to its place in one array, which is passed from the last slice to the first; a product writes it there
    itself. The gradient of a slice that is left out has no defined value.
    """
    slices, size = [], first or int(stacked.shape[0])
    for number in range(size):
        one, stacked = _cut(stacked, number, last=number == size - 1)
        slices.append(one)
    return slices


def _cut(stacked: tf.Tensor, number: int, *, last: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Return one slice, and all slices unchanged, from which the following ones are cut."""
    size = int(stacked.shape[0])

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def cut(whole: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Any]:
        def gradient(of_slice: tf.Tensor, of_whole: tf.Tensor) -> tf.Tensor:
            if last:  # nothing was cut from the rest
                of_whole = unfilled(whole.shape, of_slice.dtype)
            array = tf.TensorArray(of_slice.dtype, size=size, element_shape=of_slice.shape, clear_after_read=False)
            return array.unstack(of_whole).write(number, of_slice).stack()

        return (whole[number], tf.identity(whole)), gradient

    one, rest = cut(stacked)
    return one, rest
