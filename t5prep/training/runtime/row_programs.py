"""Run functions of rows (scores, answers) on the devices, a batch at a time; each shape of a batch is compiled once."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import jax
import numpy as np
import tensorflow as tf

from t5prep.io import signals
from t5prep.training.model.architecture import Config
from t5prep.training.runtime.compiling import compile_program
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.programs import rows_program
from t5prep.training.runtime.state import put_whole_rows

Rows = Mapping[str, np.ndarray]
OnRows = Callable[[Mapping[str, jax.Array], Rows], dict[str, jax.Array]]


def on_rows(
    name: str,
    function: Callable[..., Mapping[str, tf.Tensor]],
    *,
    shape: Config,
    layout: Layout,
    dtype: tf.DType,
    cache_path: str = "",
) -> OnRows:
    """Return a function (weights, batch) → results that runs `function` on the devices.

    A call starts the computation and returns arrays that can be read later. The first axis of every result is the batch's rows,
    whose number must be a multiple of the replicas.

    name: the name of the program. shape: the model's config. dtype: the dtype of matrix products. cache_path: the folder of
    compiled programs; "" for `compiling.place_of`.
    """
    compiled: dict[tuple[tuple[str, tuple[int, ...]], ...], jax.stages.Compiled] = {}
    compiling = threading.Lock()

    def call(weights: Mapping[str, jax.Array], batch: Rows) -> dict[str, jax.Array]:
        key = tuple((column, rows.shape) for column, rows in sorted(batch.items()))
        with compiling:  # concurrent threads wait for one compilation
            if key not in compiled:
                specs = {column: tf.TensorSpec(rows.shape, tf.as_dtype(rows.dtype)) for column, rows in batch.items()}
                weight_specs = {
                    variable: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)
                    for variable, array in weights.items()
                }
                program = rows_program(
                    name, function, shape=shape, layout=layout, batch=specs, dtype=dtype, weights=weight_specs
                )
                compiled[key] = compile_program(program, cache_path=cache_path)
        results: dict[str, jax.Array] = compiled[key](dict(weights), put_whole_rows(batch, layout))
        return results

    return call


def run_batches(
    function: OnRows, weights: Mapping[str, jax.Array], batches: Iterable[Rows]
) -> Iterator[tuple[Rows, dict[str, np.ndarray]]]:
    """Yield every batch with the results of `function` for its int32 columns.

    The next batch is started before the results of a batch are awaited, so that the devices work while the host uses results.
    """
    pending_batch: tuple[Rows, dict[str, jax.Array]] | None = None
    for batch in batches:
        signals.check()
        numbers = {name: rows for name, rows in batch.items() if rows.dtype == np.int32}
        started_batch = (batch, function(weights, numbers))
        if pending_batch:
            yield pending_batch[0], {name: np.asarray(value) for name, value in pending_batch[1].items()}
        pending_batch = started_batch
    if pending_batch:
        yield pending_batch[0], {name: np.asarray(value) for name, value in pending_batch[1].items()}
