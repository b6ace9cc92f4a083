"""Place the state of a run on its devices: weights, optimizer slots, and the number of finished steps."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import jax
import numpy as np

from t5prep.training.published.stored import Array
from t5prep.training.runtime.layout import Layout

Index = tuple[slice, ...]
Read = Callable[[Index], np.ndarray]  # returns a slice of one tensor, the part for a device
Arrays: TypeAlias = dict[str, jax.Array]


class Variables(NamedTuple):
    """The variables that a step takes and returns, as jax.Arrays; or their specs, jax.ShapeDtypeStructs with shardings.

    `slots` are the optimizer's arrays, by the weight's name, then by the slot's. `step` is an int32 scalar. `copies` are the
    matrices rounded to the dtype of products. An update writes a weight and its copy; this costs half as much as reading and
    rounding all weights in the next step. `with_copies` makes them when a run begins or resumes; they are never saved.
    """

    weights: Arrays
    slots: dict[str, Arrays]
    step: jax.Array
    copies: Arrays = {}  # noqa: RUF012 - a step returns new ones, and changes none


# (*Variables, batch, learning rate) → (*Variables, metrics)
StepResult: TypeAlias = tuple[Arrays, dict[str, Arrays], jax.Array, Arrays, jax.Array]
Step: TypeAlias = Callable[..., StepResult]


def put_array(read: Read, like: jax.ShapeDtypeStruct) -> jax.Array:
    """Return an array with the shape and sharding of `like`. `read` returns its parts, which are read one after the other.

    Only the parts of this process's devices are read, each once. A part is transferred before the next one is read, so that at
    most one part is in memory twice.
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
    """Return the weights on the devices, with the dtype and sharding of their `specs` (`Layout.weights`).

    Weights without a spec are left out. `weights`: numpy or lazy arrays by name.
    """

    def reader(weight: Array, dtype: np.dtype) -> Read:
        return lambda index: np.asarray(weight[index], np.float32).astype(dtype, copy=False)

    return {name: put_array(reader(weights[name], spec.dtype), spec) for name, spec in specs.items() if name in weights}


def begin(weights: Mapping[str, Array], specs: Variables) -> Variables:
    """Return the variables of a new run on the devices: the given weights, their copies, and zeros for slots and step."""

    def zeros(spec: jax.ShapeDtypeStruct) -> jax.Array:
        return put_array(lambda _: np.zeros(spec.sharding.shard_shape(spec.shape), spec.dtype), spec)

    slots, step = jax.tree.map(zeros, (specs.slots, specs.step))
    return with_copies(Variables(put_weights(weights, specs.weights), slots, step), specs)


def with_copies(variables: Variables, specs: Variables) -> Variables:
    """Return `variables` with `copies`: the weights that `specs.copies` names, rounded to its dtypes."""

    def rounded(matrices: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: array.astype(specs.copies[name].dtype) for name, array in matrices.items()}

    shardings = {name: spec.sharding for name, spec in specs.copies.items()}
    weights = {name: variables.weights[name] for name in specs.copies}
    return variables._replace(copies=jax.jit(rounded, out_shardings=shardings)(weights))


def put_rows(batch: Mapping[str, np.ndarray], layout: Layout) -> dict[str, jax.Array]:
    """Return a batch on the devices. `batch` holds only this process's rows, those of `layout.row_reader`."""
    if jax.process_count() == 1:
        placed: dict[str, jax.Array] = jax.device_put(dict(batch), layout.by_rows)
        return placed
    return {name: jax.make_array_from_process_local_data(layout.by_rows, rows) for name, rows in batch.items()}


def put_whole_rows(batch: Mapping[str, np.ndarray], layout: Layout) -> dict[str, jax.Array]:
    """Return a batch on the devices. `batch` holds all rows, in every process."""
    return {
        name: jax.make_array_from_callback(rows.shape, layout.by_rows, lambda index, rows=rows: rows[index])
        for name, rows in batch.items()
    }
