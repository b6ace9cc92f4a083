"""Tricks change no value on a CPU, and for a TPU become what they stand for."""

import re

import readme
import tensorflow as tf
from raised import raises

from t5prep.errors import UsageError
from t5prep.training.model import switches
from t5prep.training.model.layers import product
from t5prep.training.runtime import probe
from t5prep.training.runtime.lowering import embed, lower
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step.optimizer import AdamW
from t5prep.training.step.step import TrainStep


def text_of(function, *specs: tf.TensorSpec, platform: str = "tpu") -> str:
    return embed(lower(function, *specs).module, platform=platform).mlir_module()


def test_products_of_rounded_numbers_take_the_rounded_numbers():
    """A GPU multiplies float32 numbers in TF32, at half the speed of bfloat16."""

    def several(x: tf.Tensor, wide: tf.Tensor) -> list[tf.Tensor]:
        return [product("ij,kj->ik", x, x), product("ij,kj->ik", x, wide)]

    specs = tf.TensorSpec([2, 4], tf.bfloat16), tf.TensorSpec([3, 4], tf.float32)
    for platform, rounded in (("cuda", 1), ("tpu", 1), ("cpu", 0)):
        text = text_of(several, *specs, platform=platform)
        dots = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
        assert len(dots) == 2
        assert sum("bf16>) -> tensor<2x2xf32>" in line for line in dots) == rounded


def random_bits(seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform([8, 4], seed, None, None, tf.uint32)


def test_random_bits_come_from_the_chip_as_tensorflow_has_it():
    spec = tf.TensorSpec([2], tf.int32)
    assert "PHILOX" in text_of(random_bits, spec, platform="cpu")
    text = text_of(random_bits, spec)
    assert "PHILOX" not in text
    assert re.search(r"rng_bit_generator.*DEFAULT.*tensor<2xui64>\) -> \(tensor<2xui64>, tensor<\S*xui32>\)", text)


def test_a_gpu_draws_the_same_bits_and_no_kernel_has_the_number_of_a_dropout_site():
    """XLA puts constants into kernels: each site of a model would have kernels of its own to compile."""
    spec = tf.TensorSpec([2], tf.int32)
    text, on_cpu = text_of(random_bits, spec, platform="cuda"), text_of(random_bits, spec, platform="cpu")
    state = re.search(r"rng_bit_generator (%\w+), algorithm = +PHILOX", text)
    assert re.search(rf"{state[1]} = stablehlo.optimization_barrier ", text)
    ours, cpu_lines = (
        [re.sub(r"%\w+|#\w+", "", line) for line in program_text.splitlines() if "= stablehlo." in line]
        for program_text in (text, on_cpu)
    )
    assert [line for line in ours if "optimization_barrier" not in line] == cpu_lines


def test_each_trick_is_turned_off_by_itself(monkeypatch):
    step = TrainStep(probe.TOY, AdamW(), TrainConfig(), tf.bfloat16)
    tricks = {
        "random-bits": ("DEFAULT", lambda: text_of(random_bits, tf.TensorSpec([2], tf.int32))),
        "copies": ("decoder.wo", lambda: " ".join(step.rounded)),
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
    switch_names = re.findall(r"^   \| `([\w,-]+)` \|", page[page.index("| `T5PREP_WITHOUT=` |") :], re.MULTILINE)
    assert set(switch_names[:-1]) == switches.SWITCHES.keys() == set(switch_names[-1].split(","))


def test_an_unknown_switch_is_named(monkeypatch):
    monkeypatch.setenv("T5PREP_WITHOUT", "copies,barier")
    with raises(UsageError, "option.invalid-variable", "barier", "random-bits, copies"):
        switches.is_on("copies")
