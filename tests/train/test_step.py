import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import tensorflow as tf

from t5prep.errors import UsageError
from t5prep.train.model.t5_config import ModelConfig
from t5prep.train.model.weight_layout import weight_layouts
from t5prep.train.model.weights import create_variables, random_weights
from t5prep.train.optimizer import Adafactor, AdamW, create_slots
from t5prep.train.schedules import schedule
from t5prep.train.step import StepOptions, TrainStep, batch_specs, lowerable

CONFIG = ModelConfig(vocab_size=64, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=3)
ROWS = 8
CPU = tf.config.list_physical_devices("CPU")[0]
if len(tf.config.get_logical_device_configuration(CPU) or []) < 4:
    tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 4)


def make_batch():
    """Eight rows; the third quarter, the share of the third of four replicas, has no target at all."""
    rng = np.random.default_rng(0)
    batch = {"input_ids": rng.integers(2, 64, (ROWS, 10)), "labels": rng.integers(2, 64, (ROWS, 5))}
    batch["attention_mask"] = np.ones((ROWS, 10))
    batch["attention_mask"][:, 7:] = batch["input_ids"][:, 7:] = 0
    batch["labels"][1, 2:] = batch["labels"][4:6] = -100
    return {name: values.astype(np.int32) for name, values in batch.items()}


def make_step(optimizer=None, **options):
    weights = create_variables(random_weights(CONFIG, seed=1))
    optimizer = optimizer or Adafactor(min_dim_size_to_factor=8)
    return TrainStep(
        config=CONFIG,
        weights=weights,
        optimizer=optimizer,
        slots=create_slots(optimizer, weight_layouts(CONFIG)),
        step=tf.Variable(0, dtype=tf.int64),
        schedule=schedule("linear", learning_rate=0.05, total_steps=10),
        options=StepOptions(**{"dropout": False, **options}),
    )


def train(steps, *, replicas=1, **options):
    """The metrics of each step and the weights after the last."""
    batch = make_batch()
    if replicas == 1:
        step = make_step(**options)
        metrics = [step({name: tf.constant(x) for name, x in batch.items()}) for _ in range(steps)]
    else:
        strategy = tf.distribute.MirroredStrategy(
            [f"CPU:{number}" for number in range(replicas)], cross_device_ops=tf.distribute.ReductionToOneDevice()
        )
        with strategy.scope():
            step = make_step(**options)

        def share(context):
            number = context.replica_id_in_sync_group
            return {name: tf.constant(np.split(x, replicas)[number]) for name, x in batch.items()}

        shares = strategy.experimental_distribute_values_from_function(share)
        metrics = []
        for _ in range(steps):
            of_replicas = strategy.run(step, (shares,))
            metrics.append({name: strategy.experimental_local_results(x) for name, x in of_replicas.items()})
            assert all(len({float(x) for x in values}) == 1 for values in metrics[-1].values())
            metrics[-1] = {name: values[0] for name, values in metrics[-1].items()}
        for variable in step.weights.values():
            copies = strategy.experimental_local_results(variable)
            assert all(np.array_equal(copy, copies[0]) for copy in copies)
    weights = {name: np.asarray(variable) for name, variable in step.weights.items()}
    return [{name: float(x) for name, x in one.items()} for one in metrics], weights


@pytest.fixture
def eagerly():
    """Without XLA: what is equal here is the mathematics, and compiling takes a hundred times as long."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.parametrize(("replicas", "accumulation"), [(1, 2), (1, 4), (2, 1), (4, 1), (2, 4), (4, 2)])
def test_replicas_and_accumulation_change_nothing(replicas, accumulation, eagerly):
    expected, weights = train(3, clip_norm=0.5, label_smoothing=0.1, z_loss=1e-3)
    ours, our_weights = train(
        3, clip_norm=0.5, label_smoothing=0.1, z_loss=1e-3, replicas=replicas, accumulation=accumulation
    )
    assert expected[0]["targets"] == 6 * 5 - 3
    assert expected[-1]["loss"] < expected[0]["loss"]
    for step, metrics in enumerate(expected):
        assert ours[step] == pytest.approx(metrics, rel=1e-5)
    for name, weight in weights.items():
        np.testing.assert_allclose(our_weights[name], weight, rtol=1e-4, atol=1e-5)


def test_the_compiled_step_is_the_eager_one(eagerly):
    expected, weights = train(2, accumulation=2, remat=False)
    tf.config.run_functions_eagerly(False)
    step = make_step(accumulation=2, remat=True)
    compiled = tf.function(step.__call__, jit_compile=True, autograph=False)
    for metrics in expected:
        ours = compiled({name: tf.constant(x) for name, x in make_batch().items()})
        assert {name: float(x) for name, x in ours.items()} == pytest.approx(metrics, rel=1e-4)
    assert int(step.step) == 2
    for name, weight in weights.items():
        np.testing.assert_allclose(step.weights[name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_the_compiled_halves_of_two_replicas_are_the_whole():
    expected, _ = train(2)
    ours, _ = train(2, replicas=2)
    assert [one["loss"] for one in ours] == pytest.approx([one["loss"] for one in expected], rel=1e-5)


@pytest.mark.parametrize("optimizer", [Adafactor(min_dim_size_to_factor=8), AdamW()])
def test_a_batch_without_a_target_changes_nothing(optimizer, eagerly):
    step = make_step(optimizer, clip_norm=1.0, z_loss=1e-4)
    before = {name: variable.numpy() for name, variable in step.weights.items()}
    batch = make_batch()
    batch["labels"][:] = -100
    metrics = step({name: tf.constant(x) for name, x in batch.items()})
    assert {name: float(metrics[name]) for name in ("loss", "targets", "gradient_norm")} == {
        "loss": 0.0,
        "targets": 0.0,
        "gradient_norm": 0.0,
    }
    for name, variable in step.weights.items():
        np.testing.assert_array_equal(variable, before[name])


def test_gradients_are_clipped_to_their_norm_over_all_weights(eagerly):
    batch = {name: tf.constant(x) for name, x in make_batch().items()}
    weights = {name: tf.constant(value) for name, value in random_weights(CONFIG, seed=1).items()}
    moved = {}
    for clip in (None, 0.25):
        step = make_step(_Descent(), clip_norm=clip)
        norm = float(step(batch)["gradient_norm"])
        moved[clip] = sum(float(tf.reduce_sum((step.weights[n] - w) ** 2)) for n, w in weights.items()) ** 0.5
    assert norm > 0.25
    assert moved == pytest.approx({None: 0.05 * norm, 0.25: 0.05 * 0.25}, rel=1e-3)


class _Descent:
    def slot_shapes(self, layout):
        return {}

    def update(self, weight, gradient, slots, *, layout, learning_rate, step, scale):
        return weight - learning_rate * scale * gradient, {}


def test_dropout_differs_between_steps_and_is_the_same_in_another_run(eagerly):
    once, again = (train(2, dropout=True, seed=5)[0] for _ in range(2))
    other, plain = train(2, dropout=True, seed=6)[0], train(2)[0]
    assert once == again
    assert len({one[0]["loss"] for one in (once, other, plain)}) == 3


def test_a_batch_that_cannot_be_cut_is_refused(eagerly):
    with pytest.raises(UsageError, match="8 rows cannot be cut into 3"):
        train(1, accumulation=3)


def test_checkpoints_hold_weights_slots_and_step(tmp_path, eagerly):
    batch = {name: tf.constant(x) for name, x in make_batch().items()}

    def checkpoint(step):
        return tf.train.Checkpoint(weights=step.weights, slots=step.slots, step=step.step)

    first = make_step()
    first(batch)
    path = checkpoint(first).write(str(tmp_path / "checkpoint"))
    expected = first(batch)
    second = make_step()
    checkpoint(second).read(path).assert_consumed()
    assert float(second(batch)["loss"]) == float(expected["loss"])
    assert int(second.step) == 2
    for name, variable in first.weights.items():
        np.testing.assert_array_equal(variable, second.weights[name])


def test_the_step_lowers_to_stablehlo_without_gathers_of_the_bias_or_many_arguments():
    specs = batch_specs(4, input_length=10, target_length=5, packed=True)
    step = make_step()
    text = lowerable(step, specs).experimental_get_compiler_ir(*specs.values())(stage="stablehlo")
    assert "stablehlo.dot" in text
    variables = len(step.weights) + sum(len(own) for own in step.slots.values()) + 1
    assert variables < 60
    # The two embeddings are looked up, and their gradients scattered; nothing else is.
    assert text.count('"stablehlo.gather"') == text.count('"stablehlo.scatter"') == 2
    # Nor are the buckets of all pairs of positions written into the program: 32 x 512 x 512 would be 8 MB of it.
    long = batch_specs(1, input_length=512, target_length=4)
    assert len(lowerable(step, long).experimental_get_compiler_ir(*long.values())(stage="hlo_serialized")) < 2**20
