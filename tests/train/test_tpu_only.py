"""Tricks change no value on a CPU, and for a TPU become what they stand for."""

import functools
import re

import pytest
import readme

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow", reason="needs the extra train")
pytest.importorskip("jax", reason="needs the extra train")

from t5prep.errors import UsageError  # noqa: E402
from t5prep.train.model import switches  # noqa: E402
from t5prep.train.model.architecture import EncoderConfig  # noqa: E402
from t5prep.train.model.forward import forward  # noqa: E402
from t5prep.train.model.layers import FILLER, gradients_in_turn, row_sums, unfilled  # noqa: E402
from t5prep.train.model.weight_layout import encoder_layouts  # noqa: E402
from t5prep.train.runtime import probe  # noqa: E402
from t5prep.train.runtime.lowering import embed, lower  # noqa: E402
from t5prep.train.settings.config import TrainConfig  # noqa: E402
from t5prep.train.step.optimizer import AdamW  # noqa: E402
from t5prep.train.step.step import TrainStep  # noqa: E402


def filled_by_a_loop(x: tf.Tensor) -> tf.Tensor:
    array = tf.TensorArray(x.dtype, size=4, element_shape=[2], clear_after_read=False)
    array = array.unstack(unfilled([4, 2], x.dtype))
    return tf.while_loop(lambda n, _: n < 4, lambda n, a: (n + 1, a.write(n, x * tf.cast(n, x.dtype))), (0, array))[
        1
    ].stack()


def text_of(function, *specs: tf.TensorSpec, platform: str = "tpu") -> str:
    return embed(lower(function, *specs).module, platform=platform).mlir_module()


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_an_unfilled_array_is_no_constant_on_a_tpu(dtype):
    spec = tf.TensorSpec([2], dtype)
    assert "AllocateBuffer" not in text_of(filled_by_a_loop, spec, platform="cpu")
    assert text_of(filled_by_a_loop, spec).count("AllocateBuffer") == 1
    assert float(tf.cast(unfilled([1], dtype), tf.float32)[0]) == FILLER
    found = filled_by_a_loop(tf.constant([1.0, 2.0], dtype))
    assert found.numpy().tolist() == [[0, 0], [1, 2], [2, 4], [3, 6]]


def test_only_arrays_of_the_filler_are_left_unfilled():
    """Not other constants, nor the filler as a number that is computed with."""

    def several(x: tf.Tensor) -> list[tf.Tensor]:
        return [
            unfilled([8], tf.float32),
            tf.fill([8], 2.0),
            tf.constant(np.full([3, 2], FILLER, np.float32)),
            tf.constant(np.arange(6, dtype=np.float32) * FILLER),
            x + FILLER,
        ]

    text = text_of(several, tf.TensorSpec([], tf.float32))
    kinds = [line.rpartition("-> ")[2].split()[0] for line in text.splitlines() if "AllocateBuffer" in line]
    assert sorted(kinds) == ["tensor<3x2xf32>", "tensor<8xf32>"]


def random_bits(seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform([8, 4], seed, None, None, tf.uint32)


def test_random_bits_come_from_the_chip_as_tensorflow_has_it():
    spec = tf.TensorSpec([2], tf.int32)
    assert "PHILOX" in text_of(random_bits, spec, platform="cpu")
    text = text_of(random_bits, spec)
    assert "PHILOX" not in text
    assert re.search(r"rng_bit_generator.*DEFAULT.*tensor<2xui64>\) -> \(tensor<2xui64>, tensor<\S*xui32>\)", text)


def test_each_trick_is_turned_off_by_itself(monkeypatch):
    matrix, weights = tf.TensorSpec([2, 3], tf.bfloat16), [{"matrix": tf.TensorSpec([3, 3], tf.bfloat16)}]
    weights[0]["vectors"] = [tf.TensorSpec([3], tf.bfloat16)] * 2
    in_turn = functools.partial(layers, in_turn=True)
    step = TrainStep(probe.TOY, AdamW(), TrainConfig(), tf.bfloat16)
    tricks = {
        "unfilled": ("AllocateBuffer", lambda: text_of(filled_by_a_loop, tf.TensorSpec([2], tf.float32))),
        "random-bits": ("DEFAULT", lambda: text_of(random_bits, tf.TensorSpec([2], tf.int32))),
        "copies": ("decoder.wo", lambda: " ".join(step.rounded)),
        "sums": ("stablehlo.dot", lambda: text_of(row_sums, matrix)),
        "barriers": ("optimization_barrier", lambda: text_of(in_turn, matrix, weights, matrix)),
    }
    assert tricks.keys() == switches.SWITCHES.keys()
    for name, (sign, text) in tricks.items():
        assert sign in text()
        monkeypatch.setenv("T5PREP_WITHOUT", ",".join(switches.SWITCHES.keys() - {name}))
        assert sign in text()
        monkeypatch.setenv("T5PREP_WITHOUT", name)
        assert sign not in text()
        monkeypatch.delenv("T5PREP_WITHOUT")


def test_the_page_on_nans_has_every_switch():
    page = (readme.ROOT / "docs" / "google-cloud.md").read_text(encoding="utf-8")
    told = re.findall(r"^   \| `([\w,-]+)` \|", page[page.index("| `T5PREP_WITHOUT=` |") :], re.MULTILINE)
    assert set(told[:-1]) == switches.SWITCHES.keys() == set(told[-1].split(","))


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
        text = text_of(functools.partial(layers, in_turn=way), *specs)
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
            scores = forward(weights, config, {"input_ids": ids, "attention_mask": ids}, dtype=dtype)
        return tape.gradient(scores, weights)

    # The GELU of each layer has two barriers of its own.
    for dtype, barriers in ((tf.float32, 0), (tf.bfloat16, 2 * (1 + 2))):
        text = text_of(functools.partial(gradients, dtype=dtype), weights, ids)
        assert text.count("optimization_barrier") == barriers
