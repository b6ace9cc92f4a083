"""Measure the most that a device does: the FLOP/s of products of large bfloat16 matrices, by which a run's speed is judged.

The figure of a data sheet is that of a clock which the power rarely allows; this one is of this device, now.
"""

import time

import jax
import jax.numpy as jnp

from t5prep.training.runtime.compiling import compile_program
from t5prep.training.runtime.layout import Layout, arrange
from t5prep.training.runtime.programs import Program

SIDE = 8192  # of the matrices: 128 MB each
PRODUCTS = 16  # in one program, so that its start does not count
ROUNDS = 5


def measure(layout: Layout, *, cache_path: str = "", side: int = SIDE) -> float:
    """Return the FLOP/s of one device of this process in its fastest round. `cache_path`: see `compiling.compile_program`."""
    device_layout = arrange([device for device in layout.devices if device.process_index == jax.process_index()][:1])
    matrix = jax.ShapeDtypeStruct((side, side), jnp.bfloat16, sharding=device_layout.everywhere)
    run = compile_program(
        Program("matrix_products", device_layout, _products, (matrix,), device_layout.everywhere), cache_path=cache_path
    )
    # Numbers at random: with zeros a chip needs less power, and is faster than any model.
    operand = jax.device_put(
        jax.random.normal(jax.random.key(0), (side, side), jnp.bfloat16) * side**-0.5, device_layout.everywhere
    )
    seconds = []
    for _ in range(1 + ROUNDS):
        operand.block_until_ready()
        since = time.perf_counter()
        run(operand).block_until_ready()
        seconds.append(time.perf_counter() - since)
    return 2.0 * side**3 * PRODUCTS / min(seconds[1:])


def _products(matrix: jax.Array) -> jax.Array:
    """Return a power of the matrix, whose numbers keep their size."""
    return jax.lax.fori_loop(0, PRODUCTS, lambda _, power: power @ matrix, matrix)
