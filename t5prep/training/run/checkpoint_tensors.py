"""Write and read a checkpoint's tensors: each host writes its own parts, and any number of devices and hosts reads them.

The format is TensorFlow's checkpoint (`tf.train.load_checkpoint` reads it), which stores tensors in slices.
"""

import concurrent.futures
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np
import tensorflow as tf

from t5prep.errors import OutputError
from t5prep.training.model.weight_layout import WeightLayout
from t5prep.training.published.stored import LazyArray
from t5prep.training.run import checkpoints
from t5prep.training.run.checkpoints import TENSORS, State, reason
from t5prep.training.runtime import hosts
from t5prep.training.runtime.state import Index, Variables, put_array

STEP = "step/.ATTRIBUTES/VARIABLE_VALUE"


Part = tuple[str, str, np.ndarray]  # a tensor's name, the slice (`slice_spec`), and the slice's values


def copied(variables: Variables) -> list[Part]:
    """Return a copy, in this host's memory, of the parts that this host writes.

    A copy is needed on CPUs too, where numpy shares the devices' memory: the next step reuses it.
    """
    return [(name, spec, np.array(values)) for name, spec, values in _parts(variables)]


def write(prefix: str, parts: Sequence[Part]) -> None:
    """Write this host's parts of a run's variables. `prefix.index` appears when all hosts have written theirs."""
    part = prefix if hosts.count() == 1 else f"{prefix}-{jax.process_index():05d}"
    if parts:  # a host has none if other hosts hold the first copies of all tensors
        names, specs, values = map(list, zip(*parts, strict=True))
        tf.raw_ops.SaveV2(prefix=part, tensor_names=names, shape_and_slices=specs, tensors=values)
    if part == prefix:
        return
    hosts.wait(f"{prefix} parts")
    if hosts.writes():
        every = [f"{prefix}-{number:05d}" for number in range(hosts.count())]
        every = [part_prefix for part_prefix in every if tf.io.gfile.exists(f"{part_prefix}.index")]
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=every, destination_prefix=prefix, delete_old_dirs=False, allow_missing_files=False
        )


def restore(path: str, variables: Variables) -> Variables:
    """Return a checkpoint's tensors on the devices, without `copies`.

    `variables` gives names, shapes and shardings: as arrays, or as jax.ShapeDtypeStructs. Weights without slots are not trained
    and not stored, so they are the arrays of `variables`. Raises OutputError if names or shapes differ.
    """
    _check(path, variables)
    arrays = iter([_read_array(path, name, array) for name, array in _iterate_tensors(variables)])
    weights = variables.weights | {name: next(arrays) for name in variables.slots}
    slots = {name: {slot: next(arrays) for slot in slots} for name, slots in variables.slots.items()}
    return Variables(weights, slots, next(arrays))


def restore_weights(path: str, variables: Variables) -> dict[str, jax.Array]:
    """Return a checkpoint's weights on the devices of `variables`.

    The trained weights, slots and copies in `variables` are deleted first, so that the devices hold the weights only once. Raises
    OutputError if names or shapes differ.
    """
    _check(path, variables)
    for array in (*(array for _, array in _iterate_tensors(variables)), *variables.copies.values()):
        array.delete()
    trained = {name: _read_array(path, _key("weights", name), variables.weights[name]) for name in variables.slots}
    return variables.weights | trained


def _check(path: str, variables: Variables) -> None:
    """Raise OutputError unless the checkpoint at `path` has exactly the names and shapes of `variables`."""
    reader = _reader(path)
    expected_shapes = {name: tuple(array.shape) for name, array in _iterate_tensors(variables)}
    stored_shapes = {
        name: tuple(shape)
        for name, shape in reader.get_variable_to_shape_map().items()
        if not name.startswith(("_CHECKPOINTABLE", "save_counter"))
    }
    if expected_shapes != stored_shapes:
        name = sorted(
            variable
            for variable in expected_shapes.keys() | stored_shapes.keys()
            if expected_shapes.get(variable) != stored_shapes.get(variable)
        )[0]
        raise OutputError(
            _other_shape(path, _plain(name), stored_shapes.get(name, "missing"), expected_shapes.get(name, "missing")),
            code="checkpoint.model-mismatch",
        )


def _other_shape(path: str, name: str, stored_shape: object, expected_shape: object) -> str:
    return f"The checkpoint {path} does not fit this model: {name} is {stored_shape} instead of {expected_shape}."


def read_weights(path: str, layouts: Mapping[str, WeightLayout]) -> dict[str, LazyArray]:
    """Return the weights of a checkpoint that `layouts` names, as lazy arrays.

    Raises OutputError if a weight is missing or has another shape.
    """
    shapes = _reader(path).get_variable_to_shape_map()

    def lazy(name: str, shape: tuple[int, ...]) -> LazyArray:
        key = _key("weights", name)
        if key not in shapes:
            raise OutputError(
                f"The weights of {path} cannot be read: {name} is missing.", code="checkpoint.model-mismatch"
            )
        if tuple(shapes[key]) != shape:
            raise OutputError(_other_shape(path, name, shapes[key], shape), code="checkpoint.model-mismatch")
        return LazyArray(shape, lambda index: _read_part(path, key, slice_spec(shape, index), tf.float32))

    return {name: lazy(name, tuple(layout.shape)) for name, layout in layouts.items()}


def has_weight(path: str, name: str) -> bool:
    """Check whether the checkpoint at `path` holds the weight `name`. Raises OutputError."""
    return bool(_reader(path).has_tensor(_key("weights", name)))


def slice_spec(shape: tuple[int, ...], index: Index) -> str:
    """Return a slice of a tensor in the notation of TensorFlow's checkpoints; "" for the whole tensor.

    >>> slice_spec((8, 6), (slice(0, 4), slice(None))), slice_spec((8, 6), (slice(None), slice(None)))
    ('8 6 0,4:-', '')
    """
    spans = [part.indices(size) for part, size in zip(index, shape, strict=True)]
    if all((begin, end) == (0, size) for (begin, end, _), size in zip(spans, shape, strict=True)):
        return ""
    parts = [
        "-" if end - begin == size else f"{begin},{end - begin}"
        for (begin, end, _), size in zip(spans, shape, strict=True)
    ]
    return f"{' '.join(map(str, shape))} {':'.join(parts)}"


def _parts(variables: Variables) -> Iterator[Part]:
    """Yield each part that this host writes. If several devices hold a part, the one with its first copy writes it."""
    for name, array in _iterate_tensors(variables):
        for shard in array.addressable_shards:
            if shard.replica_id == 0:
                yield name, slice_spec(array.shape, shard.index), np.asarray(shard.data)


def _iterate_tensors(variables: Variables) -> Iterator[tuple[str, jax.Array]]:
    """Yield every tensor with its name in the checkpoint. Weights without slots are not trained, so they are left out."""
    for name in variables.slots:
        yield _key("weights", name), variables.weights[name]
    for name, slots in variables.slots.items():
        for slot, array in slots.items():
            yield _key("slots", name, slot), array
    yield STEP, variables.step


def _read_array(path: str, name: str, like: jax.Array) -> jax.Array:
    def read(index: Index) -> np.ndarray:
        return _read_part(path, name, slice_spec(like.shape, index) if index else "", tf.as_dtype(like.dtype))

    return put_array(read, like)


def _read_part(path: str, name: str, spec: str, dtype: tf.DType) -> np.ndarray:
    """Return the slice `spec` (`slice_spec`) of a tensor of a checkpoint. Raises OutputError."""
    try:
        (value,) = tf.raw_ops.RestoreV2(
            prefix=f"{path}/{TENSORS}", tensor_names=[name], shape_and_slices=[spec], dtypes=[dtype]
        )
    except tf.errors.OpError as error:
        raise OutputError(
            f"The checkpoint {path} cannot be read: {reason(error)}", code="checkpoint.unreadable"
        ) from error
    return np.asarray(value)


def _reader(path: str) -> Any:
    try:
        return tf.train.load_checkpoint(f"{path}/{TENSORS}")
    except (tf.errors.OpError, ValueError) as error:
        raise OutputError(
            f"The weights of {path} cannot be read: {reason(error)}", code="checkpoint.unreadable"
        ) from error


def _key(*names: str) -> str:
    """Return the key of a tensor in TensorFlow's checkpoint, in which each dot of a name is doubled."""
    return "/".join(name.replace(".", "..") for name in names) + "/.ATTRIBUTES/VARIABLE_VALUE"


def _plain(key: str) -> str:
    return key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE").replace("..", ".")


class CheckpointWriter:
    """Write the checkpoints of one run in a thread, one after the other. A context manager, whose end waits for the last one.

    A run of several hosts does not use the thread, and waits for each checkpoint. Its hosts meet at the beginning and end of a
    checkpoint by a computation on their devices, and such computations must have the same order on all hosts.
    """

    def __init__(self, run: str, *, keep: int, in_use: Callable[[], Collection[int]] = tuple) -> None:
        """Write checkpoints of `run`; the last `keep`, the best, and those of the steps in `in_use()` are not deleted."""
        self._run, self._keep, self._in_use = run, keep, in_use
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: concurrent.futures.Future[str] | None = None
        self.step = -1  # the step of the newest checkpoint
        self.written: concurrent.futures.Future[str] | None = None  # done when that checkpoint is complete; None: it is

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the checkpoint that is being written. Its error is raised, unless the block itself raised one."""
        try:
            self.wait()
        except Exception:
            if kind is None:
                raise
        finally:
            self._thread.shutdown()

    def save(self, variables: Variables, *, state: State) -> None:
        """Wait for the previous checkpoint, copy the variables, and begin to write them as a checkpoint.

        Raises OutputError if the previous checkpoint could not be written.
        """
        self.wait()
        tensors = functools.partial(write, parts=copied(variables))
        save = functools.partial(
            checkpoints.save, self._run, tensors, state=state, keep=self._keep, in_use=self._in_use
        )
        self.step, self.written = state.step, None
        if hosts.count() > 1:
            save()
        else:
            self._writing = self.written = self._thread.submit(save)

    def describe(self, state: State) -> None:
        """Wait for the checkpoint of `state.step`, and add the evaluation in `state` to it. Raises OutputError."""
        self.wait()
        checkpoints.describe(self._run, state=state, keep=self._keep, in_use=self._in_use)

    def check(self) -> None:
        """Raise OutputError if the last checkpoint could not be written. Do not wait for it."""
        if self._writing and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the last checkpoint is complete. Raises OutputError if it could not be written."""
        writing, self._writing = self._writing, None
        if writing:
            writing.result()
