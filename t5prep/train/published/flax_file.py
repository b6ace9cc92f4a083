"""Read tensors of a `flax_model.msgpack`: nested maps of arrays, as flax.serialization writes them.

An array is an extension of type 1 that holds [shape, dtype, bytes]; one of more than 1 GiB is a map of flat chunks.
Flax keeps matrices as [in, out], the transpose of PyTorch's.
"""

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t5prep.train.published import msgpack
from t5prep.train.published.stored import Stored, UnreadableError, in_pieces

ARRAY = 1  # flax.serialization's extension type for an ndarray
CHUNKED = "__msgpack_chunked_array__"


def tensors(path: Path) -> dict[str, Stored]:
    """Return the tensors of a file by PyTorch's names. Raises UnreadableError."""
    if not path.stat().st_size:
        raise UnreadableError("it is empty")
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return dict(_walk(path, data, msgpack.read(data), ()))


def _walk(path: Path, data: memoryview, value: Any, names: tuple[str, ...]) -> Iterator[tuple[str, Stored]]:
    if isinstance(value, dict) and CHUNKED not in value:
        for name, one in value.items():
            yield from _walk(path, data, one, (*names, str(name)))
        return
    stored = _array(path, data, value)
    *parts, last = names or ("",)
    if last == "kernel" and len(stored.shape) == 2:
        stored = stored.transposed
    yield ".".join([*parts, re.sub("^(kernel|embedding)$", "weight", last)]), stored


def _array(path: Path, data: memoryview, value: Any) -> Stored:
    if isinstance(value, dict):
        shape, chunks = _listed(value["shape"]), _listed(value["chunks"])
    else:
        chunks, shape = [value], None
    described = [_described(data, chunk) for chunk in chunks]
    dtypes = {dtype for _, dtype, _ in described}
    if len(dtypes) != 1:
        raise UnreadableError("an array of it has no values, or values of several types")
    pieces = [(content.offset, content.length) for _, _, content in described]
    return in_pieces(path, dtype=dtypes.pop(), shape=described[0][0] if shape is None else shape, pieces=pieces)


def _described(data: memoryview, value: Any) -> tuple[list[int], str, msgpack.Bytes]:
    """Return an array's shape, dtype and bytes."""
    if not isinstance(value, msgpack.Bytes) or value.kind != ARRAY:
        raise UnreadableError(f"it holds a {type(value).__name__} where an array should be")
    try:
        shape, dtype, content = msgpack.read(data, value.offset)
    except (TypeError, ValueError) as error:
        raise UnreadableError("an array of it is damaged") from error
    if isinstance(dtype, msgpack.Bytes):  # versions before 2021 wrote the name as bytes
        dtype = str(data[dtype.offset : dtype.offset + dtype.length], "ascii", "replace")
    if not isinstance(content, msgpack.Bytes) or not isinstance(shape, list):
        raise UnreadableError("an array of it is damaged")
    return shape, str(dtype), content


def _listed(numbered: Any) -> list[Any]:
    """Return the values of {"0": a, "1": b} in order."""
    if not isinstance(numbered, dict):
        raise UnreadableError("an array of it is damaged")
    return [numbered[key] for key in sorted(numbered, key=lambda key: int(key) if str(key).isdigit() else -1)]
