import math

import numpy as np
import pytest
import tensorflow as tf

from t5prep.training.model.weight_layout import WeightLayout
from t5prep.training.step.optimizer import Adafactor, AdamW


def layout(shape, stacked_axes=0, stddev=1.0):
    return WeightLayout(shape, stacked_axes, stddev, ("encoder.x.weight",))


def adafactor_reference(weight, gradients, rates, *, factored, scaled=True):
    """T5X's Adafactor for one unstacked weight, in float64, line by line as its paper's algorithm 4 and 5."""
    weight = weight.astype(np.float64)
    rows = columns = squares = 0.0
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True)):
        gradient = gradient.astype(np.float64)
        decay = 1 - (step + 1.0) ** -0.8
        if factored:
            rows = decay * rows + (1 - decay) * (gradient**2 + 1e-30).mean(1)
            columns = decay * columns + (1 - decay) * (gradient**2 + 1e-30).mean(0)
            estimate = np.outer(rows, columns) / rows.mean()
        else:
            squares = decay * squares + (1 - decay) * (gradient**2 + 1e-30)
            estimate = squares
        direction = gradient / np.sqrt(estimate)
        direction /= max(1.0, np.sqrt((direction**2).mean()))
        size = max(1e-3, np.sqrt((weight**2).mean())) if scaled else 1.0
        weight = weight - rate * size * direction
    return weight


def run(optimizer, weight, gradients, rates, layout):
    weight = tf.constant(weight)
    slots = {name: tf.zeros(shape) for name, shape in optimizer.slot_shapes(layout).items()}
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True)):
        weight, slots = optimizer.update(
            weight, tf.constant(gradient), slots, layout=layout, learning_rate=tf.constant(rate), step=tf.constant(step)
        )
    return weight.numpy()


@pytest.mark.parametrize(
    ("weight_shape", "factored"),
    [((130, 128), True), ((128, 127), False), ((200,), False)],
    ids=["matrix", "small matrix", "vector"],
)
@pytest.mark.parametrize("scaled", [True, False])
def test_adafactor_follows_the_reference_for_twenty_steps_in_every_slice_of_a_stack(weight_shape, factored, scaled):
    rng = np.random.default_rng(0)
    # Slices of different sizes: one mean over the whole stack would be seen. The second is below the floor of 1e-3.
    sizes = np.array([1.0, 1e-4, 0.1, 3.0]).reshape(2, 2, *[1] * len(weight_shape))
    weights = (rng.standard_normal((2, 2, *weight_shape)) * sizes).astype(np.float32)
    gradients = rng.standard_normal((20, 2, 2, *weight_shape)) * rng.lognormal(size=(20, 2, 2, *weight_shape)) * sizes
    gradients[10] *= 50  # an outlier, for clipping
    gradients = gradients.astype(np.float32)
    rates = np.linspace(0.1, 0.01, 20).astype(np.float32)
    optimizer = Adafactor(multiply_by_parameter_scale=scaled)
    ours = run(optimizer, weights, gradients, rates, layout(weights.shape, 2))
    for i, j in np.ndindex(2, 2):
        expected = adafactor_reference(weights[i, j], gradients[:, i, j], rates, factored=factored, scaled=scaled)
        np.testing.assert_allclose(ours[i, j], expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())


def test_adafactor_keeps_one_float_for_each_row_and_column_of_a_large_matrix():
    layouts = {
        "a": layout((512, 2048)),
        "b": layout((6, 2, 512, 256), 2),
        "c": layout((32, 8)),
        "d": layout((6, 512), 1),
    }
    slots = {name: Adafactor().slot_shapes(layout) for name, layout in layouts.items()}
    floats = {name: sum(math.prod(shape) for shape in slot_shapes.values()) for name, slot_shapes in slots.items()}
    assert floats == {"a": 512 + 2048, "b": 12 * (512 + 256), "c": 32 * 8, "d": 6 * 512}


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adamw_follows_the_reference(weight_decay):
    rng = np.random.default_rng(0)
    weight, gradients = (
        rng.standard_normal((2, 5)).astype(np.float32),
        rng.standard_normal((20, 2, 5)).astype(np.float32),
    )
    rates = np.linspace(0.1, 0.01, 20).astype(np.float32)
    ours = run(AdamW(weight_decay=weight_decay), weight, gradients, rates, layout((2, 5), 1))
    expected, mean, square = weight.astype(np.float64), 0.0, 0.0
    for step, (gradient, rate) in enumerate(zip(gradients.astype(np.float64), rates, strict=True), start=1):
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        adam = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        expected = expected - rate * (adam + weight_decay * expected)
    np.testing.assert_allclose(ours, expected, rtol=2e-6, atol=1e-6)


def test_norms_and_biases_do_not_decay():
    bias = WeightLayout((32, 4), 0, 1.0, ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",))
    matrix = WeightLayout((4, 4), 0, 0.02, ("roberta_prelayernorm.encoder.layer.0.output.dense.weight",))
    layouts = (layout((3, 4)), layout((3, 4), 1, None), bias, matrix)
    assert [item.decays for item in layouts] == [True, False, False, True]
    optimizer, zeros = AdamW(weight_decay=0.5), np.zeros((1, 32, 4), np.float32)
    np.testing.assert_array_equal(run(optimizer, zeros[0] + 1, zeros, np.ones(1, np.float32), bias), zeros[0] + 1)
    assert run(optimizer, zeros[0] + 1, zeros, np.ones(1, np.float32), layout((32, 4))).max() == 0.5
