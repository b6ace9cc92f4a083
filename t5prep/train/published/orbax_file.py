"""Read and write checkpoints of Orbax, as programs of Flax keep them: one array a weight, nested by its name.

Orbax writes them (`StandardCheckpointer`); TensorStore reads them, in parts and without opening a device. An array is
Zarr, and its name is the path through the tree, joined by dots (`params.encoder.block.0...`). All arrays lie in one
OCDBT database (`manifest.ocdbt`), or each in a folder of its name where Orbax was told so. The tree has the names of
transformers' Flax models or those of T5X, at the top or below `params`, `target` or `optimizer.target`. The extra
`orbax` installs both packages.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t5prep.errors import UsageError
from t5prep.io.installation import install_command
from t5prep.train.published import flax_file, t5x_file
from t5prep.train.published.stored import MOST_DESCRIPTION_BYTES, Index, LazyArray, UnreadableError, size_of

# Beside the arrays, and written after them.
NAME = "_METADATA"
DATABASE = "manifest.ocdbt"
# Zarr 2's and Zarr 3's description of an array, and TensorStore's drivers of both.
DRIVERS = {".zarray": "zarr", "zarr.json": "zarr3"}
# Where programs keep a model's weights in the tree of all that they save.
ROOTS = (("optimizer", "target"), ("target",), ("params", "params"), ("params",), ())


def tensors(path: Path) -> dict[str, LazyArray]:
    """Return the weights of the checkpoint whose `_METADATA` is `path`, by PyTorch's names. Raises UnreadableError, UsageError."""
    tensorstore = _package("tensorstore")
    place = f"{path.parent.absolute().as_uri()}/"
    if odd := next((one for one in path.parent.rglob("*") if not (one.is_file() or one.is_dir())), None):
        raise UnreadableError(f"{odd.name} beside it is neither a file nor a folder")
    # TensorStore reads whole files.
    listing = [one for one in path.parent.rglob("*") if one.name in (*DRIVERS, DATABASE)]
    if large := next((one for one in listing if one.stat().st_size > MOST_DESCRIPTION_BYTES), None):
        raise UnreadableError(f"{large.name} beside it is larger than any list of arrays")
    database = (path.parent / DATABASE).is_file()
    store = {"driver": "ocdbt", "base": place} if database else place
    try:
        keys = [key.decode() for key in tensorstore.KvStore.open(store).result().list().result()]
    except ValueError as error:
        raise UnreadableError(f"its list of arrays is damaged or missing ({_short(error)})") from error
    arrays = {}
    for key in keys:
        name, _, last = key.rpartition("/")
        if last in DRIVERS and "/" not in name:
            inner = {**store, "path": f"{name}/"} if isinstance(store, dict) else f"{place}{name}/"
            # A chunk that is missing is not zeros: Orbax writes all of them.
            spec = {"driver": DRIVERS[last], "kvstore": inner, "fill_missing_data_reads": False}
            arrays[tuple(name.split("."))] = spec
    if not arrays:
        raise UnreadableError("no array is beside it: fetch the whole folder")
    root = next(root for root in ROOTS if any(names[: len(root)] == root for names in arrays))
    weights = {names[len(root) :]: spec for names, spec in arrays.items() if names[: len(root)] == root}
    of_t5x = any(names[0] == "token_embedder" for names in weights)
    found = {}
    for names, spec in weights.items():
        stored = _stored(tensorstore, ".".join(names), spec, folder=path.parent / ".".join((*root, *names)))
        name, transposed = t5x_file.pytorch_name(names) if of_t5x else flax_file.pytorch_name(names, stored)
        found[name] = stored.transposed if transposed else stored
    return found


def write(place: Path, tensors: Mapping[str, np.ndarray], *, dtype: str) -> None:
    """Write weights by PyTorch's names below `params`, with the names of transformers' Flax models, into a folder.

    All of them are in memory at once, and jax runs on the CPU for the rest of the process. dtype: float32, bfloat16 or
    float16. Raises UsageError.
    """
    orbax = _package("orbax.checkpoint")
    import jax

    jax.config.update("jax_platforms", "cpu")  # Orbax asks jax for the number of processes, which opens devices
    tree: dict[str, Any] = {}
    for name, values in tensors.items():
        *parts, last = flax_file.flax_name(name, values.ndim)
        inner = tree
        for part in parts:
            inner = inner.setdefault(part, {})
        turned = values.T if last == "kernel" else values
        inner[last] = np.ascontiguousarray(turned).astype(jax.numpy.dtype(dtype))
    with orbax.StandardCheckpointer() as writer:
        writer.save(place.absolute() / "written", {"params": tree})
    for path in (place / "written").iterdir():  # so that config.json lies beside the arrays
        path.rename(place / path.name)
    (place / "written").rmdir()


def _stored(tensorstore: Any, name: str, spec: Mapping[str, Any], *, folder: Path) -> LazyArray:
    """Return an array, whose chunks are read when a part of it is taken. Raises UnreadableError.

    folder: where its files lie, if it is in no database.
    """
    try:
        array = tensorstore.open(spec, open=True, read=True).result()
    except ValueError as error:
        raise UnreadableError(f"the array {name} is damaged ({_short(error)})") from error
    shape, dtype = tuple(array.shape), array.dtype.name
    size_of(dtype, shape)
    # A chunk is unpacked whole: one larger than its array would take memory that the shape does not tell.
    if any(chunk > max(length, 1) for chunk, length in zip(array.chunk_layout.read_chunk.shape, shape, strict=True)):
        raise UnreadableError(f"the array {name} has chunks that are larger than itself")
    # A file is read whole. In a database only what stands in its tree, under checksums.
    most = size_of(dtype, tuple(array.chunk_layout.write_chunk.shape)) * 9 // 8 + (1 << 20)
    if any(one.stat().st_size > most for one in folder.rglob("*")):
        raise UnreadableError(f"the array {name} has a file that is larger than what its chunks can hold")

    def part(index: Index) -> np.ndarray:
        try:
            return np.asarray(array[index].read().result(), np.float32)
        except ValueError as error:
            raise UnreadableError(f"the array {name} is damaged ({_short(error)})") from error

    return LazyArray(shape, part)


def _package(name: str) -> Any:
    """Import a package of the extra `orbax`. Raises UsageError where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"Orbax's checkpoints need {error.name}, which is missing: {install_command('orbax')}"
        ) from error


def _short(error: Exception) -> str:
    """Return what TensorStore says without the specification that it appends."""
    return str(error).partition(" [")[0][:200]
