"""Tricks change no value on a CPU, and for a TPU become what they stand for."""

import pytest

tf = pytest.importorskip("tensorflow", reason="needs the extra train")
pytest.importorskip("jax", reason="needs the extra train")

from t5prep.train.model.compiler_tricks import FILLER, unfilled  # noqa: E402
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
