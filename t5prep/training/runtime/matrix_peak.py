"""Measure a device's peak, the FLOP/s of products of large bfloat16 matrices, to which a run's speed is compared.

The peak of a data sheet assumes a clock that the power limit rarely allows. This peak is measured on the device itself.
"""

import time

import jax
import jax.numpy as jnp

from t5prep.training.runtime.compiling import compile_program
from t5prep.training.runtime.layout import Layout, arrange
from t5prep.training.runtime.programs import Program

SIDE = 8192  # rows and columns of a matrix of 128 MB
PRODUCTS = 16  # products in one program, so that the time to start it does not count
ROUNDS = 5  # the fastest round counts


def measure(layout: Layout, *, cache_path: str = "", side: int = SIDE) -> float:
    """Return the FLOP/s of one device of this process in its fastest round.

    side: rows and columns of the matrices. cache_path: see `compiling.compile_program`.
    """
    device_layout = arrange([device for device in layout.devices if device.process_index == jax.process_index()][:1])
    matrix = jax.ShapeDtypeStruct((side, side), jnp.bfloat16, sharding=device_layout.everywhere)
    run = compile_program(
        Program("matrix_products", device_layout, _products, (matrix,), device_layout.everywhere), cache_path=cache_path
    )
    # Random numbers, because a chip needs less power for zeros and would be faster than with any model.
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
    """Return a power of the matrix. Its values neither grow nor vanish, because `measure` scales the matrix."""
    return jax.lax.fori_loop(0, PRODUCTS, lambda _, power: power @ matrix, matrix)
