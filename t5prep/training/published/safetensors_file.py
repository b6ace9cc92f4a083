"""Read and write `.safetensors` files: a JSON header, then values (github.com/huggingface/safetensors, README)."""

import json
import math
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from t5prep.io import paths
from t5prep.json_values import MALFORMED_ERRORS
from t5prep.training.published import stored
from t5prep.training.published.stored import LazyArray, UnreadableError, in_file, size_of

# The format's names of dtypes → numpy's names: for weights, buffers, and quantized weights.
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0",
    "F6_E2M3": "float6_e2m3",
    "F6_E3M2": "float6_e3m2",
    "F4": "float4",
}
# Bytes of a value, for the dtypes that are written.
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1}
NO_METADATA: Mapping[str, str] = types.MappingProxyType({})
# The format's limit of the header. It also rejects a file whose first bytes are no length.
MOST_HEADER_BYTES = 100_000_000
ALIGNMENT = 8  # bytes; the first value begins at a multiple of it, as in files of the safetensors library


def tensors(path: Path) -> dict[str, LazyArray]:
    """Return the tensors of a file by name. Raises UnreadableError."""
    with paths.opened(path) as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= MOST_HEADER_BYTES:
            raise UnreadableError("it does not begin with a safetensors header", code="weights.wrong-format")
        content = file.read(length)
    if len(content) < length:
        raise UnreadableError("it is cut short", code="weights.damaged")
    try:
        header = dict(json.loads(content))
        header.pop("__metadata__", None)
        return {name: _tensor(path, entry, 8 + length) for name, entry in header.items()}
    except MALFORMED_ERRORS as error:
        raise UnreadableError(f"its header is damaged ({type(error).__name__})", code="weights.damaged") from error


def write(
    file: BinaryIO, shapes: Mapping[str, Sequence[int]], values: Callable[[str], np.ndarray], *, dtype: str = "float32"
) -> None:
    """Write tensors with the names and shapes in `shapes`, rounded to `dtype`.

    `values(name)` returns one float32 tensor when it is due, so that at most one tensor is in memory twice.
    """
    short = next(short for short, long in DTYPES.items() if long == dtype)
    file.write(header({name: (short, shape) for name, shape in shapes.items()}))
    for name in shapes:
        rounded = values(name).astype(stored.DTYPES[dtype], order="C", copy=False)
        file.write(rounded.reshape(-1).view(np.uint8).data)  # bfloat16 is no type of the buffer protocol


def header(tensors: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str] = NO_METADATA) -> bytes:
    """Return the first bytes of a file, up to the first value. Values must follow in the order of `tensors`.

    `tensors` maps a name to the dtype, by the format's name, and the shape.
    """
    entries: dict[str, object] = {"__metadata__": {"format": "pt", **metadata}}
    begin = 0
    for name, (dtype, shape) in tensors.items():
        end = begin + BYTES[dtype] * math.prod(shape)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    content = json.dumps(entries, separators=(",", ":")).encode()
    content += b" " * (-len(content) % ALIGNMENT)
    return len(content).to_bytes(8, "little") + content


def _tensor(path: Path, entry: dict, values: int) -> LazyArray:
    """Return the tensor of a header's `entry`. `values` is the byte at which the values of all tensors begin."""
    dtype, shape = DTYPES.get(entry["dtype"], str(entry["dtype"])), entry["shape"]
    begin, end = entry["data_offsets"]
    if not (type(begin) is type(end) is int and begin >= 0 and end - begin == size_of(dtype, shape)):
        raise UnreadableError(
            f"a tensor of shape {tuple(shape)} has the invalid byte range {begin} to {end}", code="weights.damaged"
        )
    return in_file(path, dtype=dtype, shape=shape, offset=values + begin)
