"""Tricks change no value on a CPU, and for a TPU become what they stand for."""

import functools

import pytest

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow", reason="needs the extra train")
pytest.importorskip("jax", reason="needs the extra train")

from t5prep.errors import UsageError  # noqa: E402
from t5prep.train.model import switches  # noqa: E402
from t5prep.train.model.architecture import EncoderConfig  # noqa: E402
from t5prep.train.model.encoder import classify  # noqa: E402
from t5prep.train.model.layers import FILLER, gradients_in_turn, unfilled  # noqa: E402
from t5prep.train.model.weight_layout import encoder_layouts  # noqa: E402
from t5prep.train.runtime import embedding  # noqa: E402
from t5prep.train.runtime.lowered import lower  # noqa: E402


def filled_by_a_loop(x: tf.Tensor) -> tf.Tensor:
    array = tf.TensorArray(x.dtype, size=4, element_shape=[2], clear_after_read=False)
    array = array.unstack(unfilled([4, 2], x.dtype))
    return tf.while_loop(lambda n, _: n < 4, lambda n, a: (n + 1, a.write(n, x * tf.cast(n, x.dtype))), (0, array))[
        1
    ].stack()


def text_of(function, *specs: tf.TensorSpec) -> str:
    module = lower(function, *specs).module
    with embedding.make_ir_context():
        return embedding.ir.Module.parse(embedding.hlo_to_stablehlo(module)).operation.get_asm(enable_debug_info=True)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_an_unfilled_array_is_no_constant_on_a_tpu(dtype):
    text = text_of(filled_by_a_loop, tf.TensorSpec([2], dtype))
    assert "AllocateBuffer" not in embedding.without_copies(text)
    assert embedding.for_tpu(text).count("AllocateBuffer") == 1
    assert float(tf.cast(unfilled([1], dtype), tf.float32)[0]) == FILLER
    found = filled_by_a_loop(tf.constant([1.0, 2.0], dtype))
    assert found.numpy().tolist() == [[0, 0], [1, 2], [2, 4], [3, 6]]


def test_only_the_filler_of_a_name_is_replaced():
    """A name may stand for another constant in another region."""
    text = (
        "%c = stablehlo.constant dense<-7.88861E-31> : tensor<f32>\n"
        "%0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<8xf32> loc(#loc)\n"
        "%c = stablehlo.constant dense<0.000000e+00> : tensor<f32>\n"
        "%0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<8xf32> loc(#loc)\n"
    )
    lines = embedding.unfilled(text).splitlines()
    assert lines[1] == "%0 = stablehlo.custom_call @AllocateBuffer() : () -> tensor<8xf32> loc(#loc)"
    assert [lines[i] for i in (0, 2, 3)] == [text.splitlines()[i] for i in (0, 2, 3)]


def test_each_trick_is_turned_off_by_itself(monkeypatch):
    text = embedding.without_copies(text_of(filled_by_a_loop, tf.TensorSpec([2], tf.float32)))
    monkeypatch.setenv("T5PREP_WITHOUT", "unfilled, copies")
    assert "AllocateBuffer" not in embedding.for_tpu(text)
    assert (switches.is_on("copies"), switches.is_on("barriers")) == (False, True)


def test_an_unknown_switch_is_named(monkeypatch):
    monkeypatch.setenv("T5PREP_WITHOUT", "copies,barier")
    with pytest.raises(UsageError, match="says barier, and it knows unfilled, random-bits"):
        switches.is_on("copies")


def layers(x: tf.Tensor, weights: list[dict[str, tf.Tensor]], upstream: tf.Tensor, *, in_turn: bool) -> list[tf.Tensor]:
    """Return the gradients of x and of all weights of layers that have a matrix and a list of vectors each."""

    def layer(x: tf.Tensor, w: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.tanh(x @ w["matrix"] + w["vectors"][0]) * w["vectors"][1]

    with tf.GradientTape() as tape:
        tape.watch([x, weights])
        y = x
        for w in weights:
            y = gradients_in_turn(layer, y, w) if in_turn else layer(y, w)
    return tf.nest.flatten(tape.gradient(y, [x, weights], output_gradients=upstream))


def test_gradients_in_turn_are_the_same_and_each_layer_waits_for_its_matrices():
    draw = tf.random.Generator.from_seed(0)

    def drawn(*shape: int) -> tf.Tensor:
        return tf.cast(draw.normal(shape), tf.bfloat16)

    weights = [{"matrix": drawn(4, 4), "vectors": [drawn(4), drawn(4)]} for _ in range(3)]
    x, upstream = drawn(2, 4), drawn(2, 4)
    compiled = {
        way: tf.function(functools.partial(layers, in_turn=way), jit_compile=True)(x, weights, upstream)
        for way in (False, True)
    }
    for found, wanted in zip(compiled[True], compiled[False], strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    specs = tf.nest.map_structure(lambda one: tf.TensorSpec(one.shape, one.dtype), (x, weights, upstream))
    for way, barriers in ((False, 0), (True, 3)):
        text = embedding.for_tpu(text_of(functools.partial(layers, in_turn=way), *specs))
        assert text.count("stablehlo.optimization_barrier") == barriers


def test_an_encoder_in_bfloat16_makes_its_gradients_in_turn():
    config = EncoderConfig(
        vocab_size=32, d_model=8, d_ff=16, num_layers=2, num_heads=2, max_positions=8, classes=("no", "yes")
    )
    weights = {name: tf.TensorSpec(own.shape, tf.float32) for name, own in encoder_layouts(config).items()}
    ids = tf.TensorSpec([2, 8], tf.int32)

    def gradients(weights: dict[str, tf.Tensor], ids: tf.Tensor, dtype: tf.DType) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            scores = classify(weights, config, {"input_ids": ids, "attention_mask": ids}, dtype=dtype)
        return tape.gradient(scores, weights)

    # The GELU of each layer has two barriers of its own.
    for dtype, barriers in ((tf.float32, 0), (tf.bfloat16, 2 * (1 + 2))):
        text = text_of(functools.partial(gradients, dtype=dtype), weights, ids)
        assert text.count("optimization_barrier") == barriers
