import numpy as np
import pytest
import tensorflow as tf
from raised import raises

from t5prep.errors import UsageError
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.model.weights import random_weights
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step.optimizer import Adafactor, AdamW
from t5prep.training.step.schedules import schedule
from t5prep.training.step.step import TrainStep, batch_specs

CONFIG = ModelConfig(vocab_size=64, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=3)
ROWS = 8
RATE = schedule("linear", learning_rate=0.05, total_steps=10)


def make_batch():
    """Eight rows; the third quarter, the share of the first accumulation of the second of two replicas, has no target at all."""
    rng = np.random.default_rng(0)
    batch = {"input_ids": rng.integers(2, 64, (ROWS, 10)), "labels": rng.integers(2, 64, (ROWS, 5))}
    batch["attention_mask"] = np.ones((ROWS, 10))
    batch["attention_mask"][:, 7:] = batch["input_ids"][:, 7:] = 0
    batch["labels"][1, 2:] = batch["labels"][4:6] = -100
    return {name: values.astype(np.int32) for name, values in batch.items()}


class Run:
    """A step with weights and slots, run by TensorFlow itself, replica after replica."""

    def __init__(self, optimizer=None, *, replicas=1, **options):
        optimizer = optimizer or Adafactor(min_dim_size_to_factor=8)
        self.step = TrainStep(CONFIG, optimizer, TrainConfig(**{"dropout": 0.0, "z_loss": 0.0, **options}))
        self.weights = {name: tf.constant(value) for name, value in random_weights(CONFIG, seed=1).items()}
        shapes = {name: optimizer.slot_shapes(layout) for name, layout in weight_layouts(CONFIG).items()}
        self.slots = {
            name: {slot: tf.zeros(size) for slot, size in slot_shapes.items()} for name, slot_shapes in shapes.items()
        }
        self.made, self.replicas = 0, replicas

    def __call__(self, batch):
        """Make an update; the metrics as floats."""
        parts = []
        for replica in range(self.replicas):
            replica_batch = {name: tf.constant(np.split(x, self.replicas)[replica]) for name, x in batch.items()}
            parts.append(
                self.step.gradients(self.weights, replica_batch, tf.constant(self.made * self.replicas + replica))
            )
        gradients, sums = tf.nest.map_structure(lambda *values: tf.add_n([*values]), *parts)
        self.weights, self.slots, metrics, _ = self.step.update(
            self.weights, self.slots, gradients, sums, tf.constant(self.made), tf.constant(RATE(self.made))
        )
        self.made += 1
        return {name: float(value) for name, value in metrics.items()}


def train(steps, **options):
    """The metrics of each step and the weights after the last."""
    run = Run(**options)
    return [run(make_batch()) for _ in range(steps)], {name: value.numpy() for name, value in run.weights.items()}


@pytest.fixture
def eagerly():
    """Without XLA: what is equal here is the mathematics, and compiling takes a hundred times as long."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


STEPS, OPTIONS = 2, {"clip_norm": 0.5, "label_smoothing": 0.1, "z_loss": 1e-3}


def test_replicas_and_accumulation_change_nothing(eagerly):
    expected, weights = train(STEPS, **OPTIONS)
    ours, our_weights = train(STEPS, **OPTIONS, replicas=2, accumulate=2)
    assert expected[0]["targets"] == 6 * 5 - 3
    assert expected[-1]["loss"] < expected[0]["loss"]
    for step, metrics in enumerate(expected):
        assert ours[step] == pytest.approx(metrics, rel=1e-5)
    for name, weight in weights.items():
        np.testing.assert_allclose(our_weights[name], weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", [Adafactor(min_dim_size_to_factor=8), AdamW()])
def test_a_batch_without_a_target_changes_nothing(optimizer, eagerly):
    run, batch = Run(optimizer, clip_norm=1.0, z_loss=1e-4), make_batch()
    initial_weights = run.weights
    batch["labels"][:] = -100
    metrics = run(batch)
    assert {name: metrics[name] for name in ("loss", "targets", "gradient_norm")} == {
        "loss": 0.0,
        "targets": 0.0,
        "gradient_norm": 0.0,
    }
    for name, weight in run.weights.items():
        np.testing.assert_array_equal(weight, initial_weights[name])


def test_gradients_are_clipped_to_their_norm_over_all_weights(eagerly):
    moved = {}
    for clip in (0.0, 0.25):
        run = Run(_Descent(), clip_norm=clip)
        initial_weights, norm = run.weights, run(make_batch())["gradient_norm"]
        moved[clip] = sum(float(tf.reduce_sum((run.weights[n] - w) ** 2)) for n, w in initial_weights.items()) ** 0.5
    assert norm > 0.25
    assert moved == pytest.approx({0.0: 0.05 * norm, 0.25: 0.05 * 0.25}, rel=1e-3)


class _Descent:
    def slot_shapes(self, layout):
        return {}

    def update(self, weight, gradient, slots, *, layout, learning_rate, step, scale, rounded):
        return weight - learning_rate * scale * gradient, {}


def test_dropout_differs_between_steps_and_is_the_same_in_another_run(eagerly):
    once, repeated_metrics = (train(2, dropout=0.1, seed=5)[0] for _ in range(2))
    other_seed_metrics, plain = train(1, dropout=0.1, seed=6)[0], train(1)[0]
    assert once == repeated_metrics
    assert len({metrics[0]["loss"] for metrics in (once, other_seed_metrics, plain)}) == 3


def test_a_batch_that_cannot_be_cut_is_refused(eagerly):
    with raises(UsageError, "device.indivisible-batch", "3", "8"):
        train(1, accumulate=3)


def test_the_step_lowers_without_gathers_of_the_bias_or_many_arguments():
    step = TrainStep(CONFIG, Adafactor(), TrainConfig(dropout=0.0, z_loss=0.0))
    weights = {name: tf.TensorSpec(layout.shape) for name, layout in weight_layouts(CONFIG).items()}
    number = tf.TensorSpec([], tf.int32)
    text = tf.function(
        lambda *flat: step.gradients(*tf.nest.pack_sequence_as(specs, flat)), jit_compile=True, autograph=False
    )
    specs = (weights, batch_specs(4, input_length=512, target_length=5, packed=True), number)
    text = text.experimental_get_compiler_ir(*tf.nest.flatten(specs))(stage="stablehlo")
    assert "stablehlo.dot" in text
    slots = sum(len(Adafactor().slot_shapes(layout)) for layout in weight_layouts(CONFIG).values())
    assert len(weights) + slots + 1 < 60
    # The two embeddings are looked up, and their gradients scattered; nothing else is.
    assert text.count('"stablehlo.gather"') == text.count('"stablehlo.scatter"') == 2
    # The gradient of the output table is one product over all rows, not one table for each row.
    assert f"tensor<4x{CONFIG.vocab_size}x{CONFIG.d_model}x" not in text
    assert f"tensor<4x{CONFIG.d_model}x{CONFIG.vocab_size}x" not in text
    # Nor are the buckets of all pairs of positions written into the program: 32 x 512 x 512 would be 8 MB of it.
    assert len(text) < 2**20
