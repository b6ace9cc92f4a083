"""Read tensors of a `pytorch_model.bin`: PyTorch's zip archive since 1.6, and the older file of pickles."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from t5prep.train.published import torch_pickle
from t5prep.train.published.lazy_array import Index
from t5prep.train.published.stored import DTYPES, Stored, UnreadableError, in_file, size_of
from t5prep.train.published.torch_pickle import Cut, Storage

# The first two pickles of the older format (torch/serialization.py).
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
LOCAL_HEADER = 30  # bytes of a zip entry's local header before its name

# The byte at which a storage's values begin, and the number of its values in the archive.
Place = Callable[[Storage], tuple[int, int]]


def tensors(path: Path) -> dict[str, Stored]:
    """Return the tensors of a file by name. Raises UnreadableError; nothing that the file names is called."""
    with path.open("rb") as file:
        state, place = _zip(file) if file.read(2) == b"PK" else _legacy(file)
    if not isinstance(state, dict):
        raise UnreadableError("it holds no dict of tensors")
    tensors = {name: _tensor(path, cut, place) for name, cut in state.items() if isinstance(cut, Cut)}
    if not tensors:
        raise UnreadableError("it holds no tensors by name")
    return tensors


def _zip(file: BinaryIO) -> tuple[Any, Place]:
    """Return the state and the place of each storage: entry `NAME/data/KEY` beside `NAME/data.pkl`."""
    try:
        archive = zipfile.ZipFile(file)
        entries = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if "byteorder" in entries and archive.read(entries["byteorder"]) != b"little":
            raise UnreadableError("its numbers are big-endian")
        _begin(file, entries["data.pkl"])
        with archive.open(entries["data.pkl"]) as content:
            state = torch_pickle.load(content)  # type: ignore[arg-type]
    except (zipfile.BadZipFile, KeyError, EOFError, OSError) as error:
        raise UnreadableError("it is cut short or no PyTorch archive") from error
    begins = {name: _begin(file, info) for name, info in entries.items() if name.startswith("data/")}

    def place(storage: Storage) -> tuple[int, int]:
        name = f"data/{storage.key}"
        if name not in begins:
            raise UnreadableError("its archive lacks a storage")
        return begins[name], entries[name].file_size // DTYPES[storage.dtype].itemsize

    return state, place


def _begin(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return the byte at which a zip entry's content begins."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise UnreadableError("its archive is compressed, and PyTorch writes none that is")
    file.seek(info.header_offset)
    header = file.read(LOCAL_HEADER)
    if len(header) < LOCAL_HEADER:
        raise UnreadableError("it is cut short")
    name, extra = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    return info.header_offset + LOCAL_HEADER + name + extra


def _legacy(file: BinaryIO) -> tuple[Any, Place]:
    """Return the state and the place of each storage: after five pickles, each with its number of values before it."""
    file.seek(0)
    if torch_pickle.load(file) != MAGIC or torch_pickle.load(file) != PROTOCOL:
        raise UnreadableError("it is not a file of PyTorch's")
    system = torch_pickle.load(file)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise UnreadableError("its numbers are big-endian")
    state, keys = torch_pickle.load(file), torch_pickle.load(file)
    itemsizes = _itemsizes(state)
    begins = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little", signed=True)
        if str(key) not in itemsizes or count < 0:
            raise UnreadableError("it is cut short")
        begins[str(key)] = (file.tell(), count)
        file.seek(count * itemsizes[str(key)], 1)

    def place(storage: Storage) -> tuple[int, int]:
        if storage.key not in begins:
            raise UnreadableError("it lacks a storage")
        return begins[storage.key]

    return state, place


def _itemsizes(state: Any) -> dict[str, int]:
    """Return the bytes of one value of each storage."""
    cuts = [cut for cut in state.values() if isinstance(cut, Cut)] if isinstance(state, dict) else []
    return {cut.storage.key: DTYPES[cut.storage.dtype].itemsize for cut in cuts}


def _tensor(path: Path, cut: Cut, place: Place) -> Stored:
    begin, count = place(cut.storage)
    size_of(cut.storage.dtype, cut.shape)
    first = cut.storage.begin + cut.offset
    last = first + sum((length - 1) * stride for length, stride in zip(cut.shape, cut.strides, strict=True))
    if first < 0 or min(cut.strides, default=0) < 0 or (0 not in cut.shape and last >= count):
        raise UnreadableError("a tensor reaches beyond its storage")
    offset = begin + first * DTYPES[cut.storage.dtype].itemsize
    if cut.strides == _contiguous(cut.shape):
        return in_file(path, dtype=cut.storage.dtype, shape=cut.shape, offset=offset)
    flat = in_file(path, dtype=cut.storage.dtype, shape=[last + 1 - first], offset=offset)

    def part(index: Index) -> np.ndarray:
        strides = [stride * 4 for stride in cut.strides]
        return np.lib.stride_tricks.as_strided(flat.read(), cut.shape, strides, writeable=False)[index]

    return Stored(cut.shape, cut.storage.dtype, part)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps.

    >>> _contiguous((2, 3, 4))
    (12, 4, 1)
    """
    strides = [1]
    for length in shape[:0:-1]:
        strides.append(strides[-1] * max(1, length))
    return tuple(strides[::-1]) if shape else ()
