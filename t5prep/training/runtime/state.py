"""Place what a run holds on its devices: weights, optimizer slots, and the number of steps made."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from t5prep.training.published.stored import Array
from t5prep.training.runtime.layout import Layout

Index = tuple[slice, ...]
Read = Callable[[Index], np.ndarray]  # returns the slice of one tensor that a device holds


class Variables(NamedTuple):
    """The arguments that a step takes and returns: nested dicts of jax.Array, and an int32 scalar; or their specs.

    `copies` are the matrices in the dtype of products, so that no step begins by rounding them: an update that writes a
    weight writes its copy too, which costs half of what reading and rounding all weights costs. They are made by
    `with_copies` when a run begins or goes on, and never saved. A spec is a jax.ShapeDtypeStruct with its sharding.
    """

    weights: dict[str, jax.Array]
    slots: dict[str, dict[str, jax.Array]]
    step: jax.Array
    copies: dict[str, jax.Array] = {}  # noqa: RUF012 - a step returns new ones, and changes none


def put_array(read: Read, like: jax.ShapeDtypeStruct) -> jax.Array:
    """Return an array in the shape and the place of `like`, whose parts are read one after the other, each once.

    Only those that this process holds are read. A part is on its devices before the next one is read, so that the process
    holds at most one part twice.
    """
    indices = like.sharding.addressable_devices_indices_map(like.shape)
    holders: dict[str, list[jax.Device]] = {}
    for device, index in indices.items():
        holders.setdefault(str(index), []).append(device)
    placed = {}
    for devices in holders.values():
        part = np.asarray(read(indices[devices[0]] or ()), order="C")
        placed.update({device: jax.device_put(part, device) for device in devices})
        jax.block_until_ready([placed[device] for device in devices])
    return jax.make_array_from_single_device_arrays(like.shape, like.sharding, [placed[device] for device in indices])


def put_weights(weights: Mapping[str, Array], specs: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
    """Return weights of a model on the devices, each as its spec says (`Layout.weights`); others are left out.

    `weights`: by name, arrays or objects whose slices are arrays.
    """

    def reader(weight: Array, dtype: np.dtype) -> Read:
        return lambda index: np.asarray(weight[index], np.float32).astype(dtype, copy=False)

    return {name: put_array(reader(weights[name], spec.dtype), spec) for name, spec in specs.items() if name in weights}


def begin(weights: Mapping[str, Array], specs: Variables) -> Variables:
    """Return the variables of a run at its beginning, on the devices: zeros beside the weights, and their copies."""

    def zeros(spec: jax.ShapeDtypeStruct) -> jax.Array:
        return put_array(lambda _: np.zeros(spec.sharding.shard_shape(spec.shape), spec.dtype), spec)

    slots, step = jax.tree.map(zeros, (specs.slots, specs.step))
    return with_copies(Variables(put_weights(weights, specs.weights), slots, step), specs)


def with_copies(variables: Variables, specs: Variables) -> Variables:
    """Return variables with the copies that a step takes: weights, rounded."""

    def rounded(matrices: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: array.astype(specs.copies[name].dtype) for name, array in matrices.items()}

    shardings = {name: spec.sharding for name, spec in specs.copies.items()}
    weights = {name: variables.weights[name] for name in specs.copies}
    return variables._replace(copies=jax.jit(rounded, out_shardings=shardings)(weights))


def put_rows(batch: Mapping[str, np.ndarray], layout: Layout) -> dict[str, jax.Array]:
    """Return a batch on the devices; this process gives the rows that `layout.row_reader` names."""
    if jax.process_count() == 1:
        placed: dict[str, jax.Array] = jax.device_put(dict(batch), layout.by_rows)
        return placed
    return {name: jax.make_array_from_process_local_data(layout.by_rows, rows) for name, rows in batch.items()}


def put_whole_rows(batch: Mapping[str, np.ndarray], layout: Layout) -> dict[str, jax.Array]:
    """Return a batch on the devices; every process gives all rows."""
    return {
        name: jax.make_array_from_callback(rows.shape, layout.by_rows, lambda index, rows=rows: rows[index])
        for name, rows in batch.items()
    }
