"""Place what a run holds on its devices: weights, optimizer slots, and the number of steps made."""

import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from t5prep.train.model.architecture import Config
from t5prep.train.model.lora import variable_layouts
from t5prep.train.runtime.layout import Layout

Index = tuple[slice, ...]
NO_DTYPES: Mapping[str, Any] = types.MappingProxyType({})
Read = Callable[[Index], np.ndarray]  # returns the slice of one tensor that a device holds


class Variables(NamedTuple):
    """The arguments that a step takes and returns: nested dicts of jax.Array, and an int32 scalar.

    `copies` are the matrices in the dtype of products, so that no step begins by rounding them: an update that writes a
    weight writes its copy too, which costs half of what reading and rounding all weights costs. They are made by
    `copies_of` when a run begins or goes on, and never saved.
    """

    weights: dict[str, Any]
    slots: dict[str, dict[str, Any]]
    step: Any
    copies: dict[str, Any] = {}  # noqa: RUF012 - a step returns new ones, and changes none


def place(read: Read, shape: tuple[int, ...], sharding: Any) -> Any:
    """Return a jax.Array whose parts are read one after the other, each once; only those that this process holds.

    A part is on its devices before the next one is read, so that the process holds at most one part twice.
    """
    indices = sharding.addressable_devices_indices_map(shape)
    holders: dict[str, list[Any]] = {}
    for device, index in indices.items():
        holders.setdefault(str(index), []).append(device)
    placed = {}
    for devices in holders.values():
        part = np.asarray(read(indices[devices[0]] or ()), order="C")
        placed.update({device: jax.device_put(part, device) for device in devices})
        jax.block_until_ready([placed[device] for device in devices])
    return jax.make_array_from_single_device_arrays(shape, sharding, [placed[device] for device in indices])


def put_weights(
    weights: Mapping[str, Any], shape: Config, layout: Layout, *, dtypes: Mapping[str, Any] = NO_DTYPES
) -> dict[str, Any]:
    """Return weights of a model on the devices. `weights`: by name, arrays or objects whose slices are arrays.

    `dtypes`: of those that are not kept in float32.
    """
    shardings, layouts = layout.weights(shape), variable_layouts(shape)

    def reader(whole: Any, dtype: Any) -> Read:
        return lambda index: np.asarray(whole[index], np.float32).astype(dtype, copy=False)

    return {
        name: place(reader(weights[name], dtypes.get(name, np.float32)), variable.shape, shardings[name])
        for name, variable in layouts.items()
        if name in weights
    }


def variable_specs(
    slot_shapes: Mapping[str, Mapping[str, tuple[int, ...]]], shape: Config, layout: Layout
) -> Variables:
    """Return the shapes and places of a run's variables, without values: what a checkpoint is read by."""
    weights, slots = layout.weights(shape), layout.slots(shape, slot_shapes)

    def spec(size: tuple[int, ...], sharding: Any, dtype: Any = np.float32) -> Any:
        return jax.ShapeDtypeStruct(size, dtype, sharding=sharding)

    return Variables(
        {name: spec(variable.shape, weights[name]) for name, variable in variable_layouts(shape).items()},
        {
            name: {slot: spec(size, slots[name][slot]) for slot, size in sizes.items()}
            for name, sizes in slot_shapes.items()
        },
        spec((), layout.everywhere, np.int32),
    )


def zero_slots(
    shapes: Mapping[str, Mapping[str, tuple[int, ...]]], shape: Config, layout: Layout
) -> dict[str, dict[str, Any]]:
    """Return the optimizer's slots at the beginning of a run: zeros of these shapes."""
    shardings = layout.slots(shape, shapes)
    return {
        name: {slot: _zeros(size, shardings[name][slot]) for slot, size in sizes.items()}
        for name, sizes in shapes.items()
    }


def copies_of(weights: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of weights, rounded. `like`: the dtype and sharding of each (`programs.StepProgram.copies`)."""
    shardings = {name: array.sharding for name, array in like.items()}

    def rounded(whole: Mapping[str, Any]) -> dict[str, Any]:
        return {name: array.astype(like[name].dtype) for name, array in whole.items()}

    copies: dict[str, Any] = jax.jit(rounded, out_shardings=shardings)({name: weights[name] for name in like})
    return copies


def step_zero(layout: Layout) -> Any:
    """Return the number of steps at the beginning of a run, on the devices."""
    return _zeros((), layout.everywhere, np.int32)


def put_rows(batch: Mapping[str, np.ndarray], layout: Layout) -> dict[str, Any]:
    """Return a batch on the devices; this process gives the rows that `layout.row_reader` names."""
    if jax.process_count() == 1:
        placed: dict[str, Any] = jax.device_put(dict(batch), layout.by_rows)
        return placed
    return {name: jax.make_array_from_process_local_data(layout.by_rows, rows) for name, rows in batch.items()}


def put_whole_rows(batch: Mapping[str, np.ndarray], layout: Layout) -> dict[str, Any]:
    """Return a batch on the devices; every process gives all rows."""
    return {
        name: jax.make_array_from_callback(rows.shape, layout.by_rows, lambda index, rows=rows: rows[index])
        for name, rows in batch.items()
    }


def _zeros(size: tuple[int, ...], sharding: Any, dtype: Any = np.float32) -> Any:
    return place(lambda _: np.zeros(sharding.shard_shape(size), dtype), size, sharding)
