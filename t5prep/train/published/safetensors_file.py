"""Read and write `.safetensors` files: a header in JSON, then values (github.com/huggingface/safetensors, README)."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from t5prep.train.published.stored import Stored, UnreadableError, in_file, narrowed, size_of

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# The format's own limit of the header's bytes, which rejects a wrong length.
MOST_HEADER_BYTES = 100_000_000
ALIGNMENT = 8  # of the first value, in bytes


def tensors(path: Path) -> dict[str, Stored]:
    """Return the tensors of a file by name. Raises UnreadableError."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= MOST_HEADER_BYTES:
            raise UnreadableError("it does not begin as safetensors do")
        content = file.read(length)
    if len(content) < length:
        raise UnreadableError("it is cut short")
    try:
        header = dict(json.loads(content))
        header.pop("__metadata__", None)
        return {name: _tensor(path, entry, 8 + length) for name, entry in header.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UnreadableError(f"its header is damaged ({type(error).__name__})") from error


def write(
    file: BinaryIO, shapes: Mapping[str, Sequence[int]], values: Callable[[str], np.ndarray], *, dtype: str = "float32"
) -> None:
    """Write tensors of these names and shapes; `values` returns one tensor, float32, when it is written.

    So at most one tensor is in memory twice.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, shape in shapes.items():
        end = begin + size_of(dtype, shape)
        short = next(short for short, long in DTYPES.items() if long == dtype)
        header[name] = {"dtype": short, "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    content = json.dumps(header, separators=(",", ":")).encode()
    content += b" " * (-len(content) % ALIGNMENT)
    file.write(len(content).to_bytes(8, "little") + content)
    for name in shapes:
        file.write(np.ascontiguousarray(narrowed(values(name), dtype)).data)


def _tensor(path: Path, entry: dict, values: int) -> Stored:
    """Return one tensor; the values of all tensors begin at byte `values`."""
    dtype, shape = DTYPES.get(entry["dtype"], str(entry["dtype"])), entry["shape"]
    begin, end = entry["data_offsets"]
    if end - begin != size_of(dtype, shape):
        raise UnreadableError(f"a tensor of shape {tuple(shape)} has {end - begin:,} bytes")
    return in_file(path, dtype=dtype, shape=shape, offset=values + begin)
