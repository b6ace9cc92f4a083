"""The custom calls of a decoding step: the same numbers as numpy's, for every instruction set of this processor."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed")

from t5prep.train.model import custom_calls  # noqa: E402
from t5prep.train.model.step_operations import OwnOperations, StepOperations  # noqa: E402
from t5prep.train.runtime.embedding import embed  # noqa: E402
from t5prep.train.runtime.lowered import lower  # noqa: E402

pytestmark = pytest.mark.skipif(
    not custom_calls.usable(), reason="what is in C is not built, or not for this processor"
)
SETS = list(custom_calls._native.custom_calls()) if custom_calls.usable() else []


def _run(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """Return the result of a function of TensorFlow, as a program of jax on the CPU."""
    lowered = lower(function, *(tf.TensorSpec(array.shape, array.dtype) for array in arrays))
    (result,) = jax.jit(embed(lowered.module, platform="cpu"))(*arrays)
    return np.asarray(result)


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture(params=SETS)
def call(request: pytest.FixtureRequest) -> Callable[..., np.ndarray]:
    """Return how to call a custom call of one instruction set, with the shape of its result and its arguments."""
    own = custom_calls._native.custom_calls()[request.param]

    def run(name: str, shape: tuple[int, ...], *arrays: np.ndarray) -> np.ndarray:
        jax.ffi.register_ffi_target(f"{name}_{request.param}", own[name], platform="cpu")
        kind = jax.ShapeDtypeStruct(shape, np.float32)
        return np.asarray(jax.jit(jax.ffi.ffi_call(f"{name}_{request.param}", kind))(*arrays))

    return run


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 7, 1), (16, 64, 96), (27, 5, 40), (33, 24, 31)])
def test_products(call: Callable[..., np.ndarray], rows: int, inner: int, columns: int) -> None:
    x, matrix, table = _random(rows, inner), _random(inner, columns), _random(columns, inner)
    panels = custom_calls.panels_of(tf.constant(matrix))
    product = call("t5prep_rows_by_panels", (rows, columns), x, panels.values.numpy())
    np.testing.assert_allclose(product, x @ matrix, rtol=1e-4, atol=1e-5)
    product = call("t5prep_table_by_rows", (columns, rows), table, x)
    np.testing.assert_allclose(product, table @ x.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("heads", "length", "size"), [(1, 1, 16), (3, 9, 48), (2, 5, 64), (1, 4, 128)])
@pytest.mark.parametrize("shared", [True, False])
def test_attention(call: Callable[..., np.ndarray], heads: int, length: int, size: int, shared: bool) -> None:
    rows, count = 3, -(-length // 2)
    query, keys, values = _random(rows, heads * size), *_random(2, rows, heads, length, size)
    biases = _random(1, heads, length) if shared else _random(rows, 1, length)
    attended = call("t5prep_attend", query.shape, query, keys, values, biases, np.int32(count))
    scores = np.einsum("bhd,bhkd->bhk", query.reshape(rows, heads, size), keys) + biases
    shares = np.exp(scores[..., :count] - scores[..., :count].max(axis=2, keepdims=True))
    shares /= shares.sum(axis=2, keepdims=True)
    wanted = np.einsum("bhk,bhkd->bhd", shares, values[:, :, :count]).reshape(query.shape)
    np.testing.assert_allclose(attended, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [16, 24])  # 24 is not a size of the custom call
def test_a_step_is_the_one_of_tensorflow(size: int) -> None:
    rows, heads, length = 3, 2, 6
    query, one = _random(rows, 1, heads, size), _random(rows, 1, heads, size)
    keys, bias = _random(rows, heads, length, size), _random(heads, 1, length)
    mask = (np.arange(length) < np.array([[6], [1], [4]]))[:, None, None, :]

    def step(operations: StepOperations, *arrays: Any) -> Any:
        query, one, keys, bias, mask, position = arrays
        keys = operations.write(keys, one, position)
        own = operations.attend_to_targets(query, keys, keys + 1.0, bias=bias, position=position)
        return tf.stack([own, operations.attend_to_inputs(query, keys, keys - 1.0, mask=mask)])

    arrays = (query, one, keys, bias, mask, np.int32(4))
    ours, theirs = (_run(lambda *x, k=kind: [step(k(), *x)], *arrays) for kind in (OwnOperations, StepOperations))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
