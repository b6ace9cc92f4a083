"""Place what a run holds on its devices: weights, optimizer slots, and the number of steps made."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from t5prep.train.model.architecture import Config
from t5prep.train.model.lora import variable_layouts
from t5prep.train.runtime.layout import Layout

Index = tuple[slice, ...]
Read = Callable[[Index], np.ndarray]  # returns the slice of one tensor that a device holds


class Variables(NamedTuple):
    """Hold the arguments that a step takes and returns: nested dicts of jax.Array, and an int32 scalar."""

    weights: dict[str, Any]
    slots: dict[str, dict[str, Any]]
    step: Any


def place(read: Read, shape: tuple[int, ...], sharding: Any) -> Any:
    """Return a jax.Array whose parts are read one after the other, each once; only those that this process holds."""
    parts: dict[str, np.ndarray] = {}

    def part(index: Index | None) -> np.ndarray:
        where = index or ()
        if str(where) not in parts:
            parts[str(where)] = np.asarray(read(where), order="C")
        return parts[str(where)]

    return jax.make_array_from_callback(shape, sharding, part)


def put_weights(weights: Mapping[str, Any], shape: Config, layout: Layout) -> dict[str, Any]:
    """Return a model's weights on the devices. `weights`: by name, arrays or objects whose slices are arrays."""
    shardings = layout.weights(shape)

    def reader(whole: Any) -> Read:
        return lambda index: np.asarray(whole[index], np.float32)

    return {
        name: place(reader(weights[name]), own.shape, shardings[name]) for name, own in variable_layouts(shape).items()
    }


def zero_slots(
    shapes: Mapping[str, Mapping[str, tuple[int, ...]]], shape: Config, layout: Layout
) -> dict[str, dict[str, Any]]:
    """Return the optimizer's slots at the beginning of a run: zeros of these shapes."""
    shardings = layout.slots(shape, shapes)
    return {
        name: {slot: place(_zeros(size), size, shardings[name][slot]) for slot, size in own.items()}
        for name, own in shapes.items()
    }


def put_step(step: int, layout: Layout) -> Any:
    """Return the step number on the devices."""
    return place(lambda _: np.array(step, np.int32), (), layout.everywhere)


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


def _zeros(size: tuple[int, ...]) -> Read:
    def read(index: Index) -> np.ndarray:
        spans = [range(length)[part] for part, length in zip(index, size, strict=True)] if index else []
        return np.zeros([len(span) for span in spans] if index else size, np.float32)

    return read
