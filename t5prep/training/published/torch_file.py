"""Read tensors of a `pytorch_model.bin`, without executing pickled code: PyTorch's zip archive since 1.6, or its older format.

Python's unpickler calls any function that a pickle names, so a stranger's file could run code. Here two checks allow only dicts,
lists, numbers, text and tensors. First the pickle's instructions are read, and any that tensors do not need is an error. Then
the unpickler resolves only the names in `_CALLS` and PyTorch's storages; any other name is an error.
"""

import dataclasses
import os
import pickle
import pickletools
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from t5prep.training.published.stored import DTYPES, Index, LazyArray, UnreadableError, in_file, size_of, without_values

# PyTorch's class of a storage → the dtype of its values. Weights are floats; buffers such as `position_ids` are integers.
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
# A model has some hundred tensors, each of a few dozen instructions. A pickle with far more is not a model.
MOST_INSTRUCTIONS = 5_000_000
# A tensor has four tuples, and none occurs twice. A forged file could hang or crash Python by the hash of a tuple. A tuple nested
# 200,000 deep overflows the stack of C. In ((a, a), (a, a)), where each pair holds one tuple twice, each level doubles the time.
MOST_TUPLES, MOST_REPEATED = 40_000, 16
INSTRUCTIONS = frozenset(
    (
        *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BINPUT", "LONG_BINPUT", "MEMOIZE"),
        *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "BINGET", "LONG_BINGET"),
        *("APPEND", "APPENDS", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID"),
        *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINSTRING"),
    )
)


class _Fixed:
    """A base class whose objects a pickle cannot change: the instruction BUILD would write any attribute, unchecked."""

    def __setstate__(self, _: object) -> None:
        raise UnreadableError(
            "it sets the state of an object that is not a dict; none of its code was run", code="weights.unsafe-pickle"
        )


@dataclasses.dataclass(frozen=True)
class Storage(_Fixed):
    """A storage: a sequence of `size` values that tensors share. `key` is its name in the archive.

    `begin` is the number of values before the first one, if this is a view of a larger storage.
    """

    key: str
    dtype: str
    size: int
    begin: int = 0


@dataclasses.dataclass(frozen=True)
class Cut(_Fixed):
    """A tensor as a part of a storage; offset and strides are in values, not bytes."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def load_pickle(file: BinaryIO) -> object:
    """Return the value of the pickle at the file's position, and move the position to its end.

    Raises UnreadableError if the pickle is damaged or names anything but parts of tensors; no such name is called.
    """
    begin = file.tell()
    try:
        _check_instructions(file)
        file.seek(begin)
        return _Unpickler(file, encoding="latin1").load()
    except (
        *(ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError, EOFError),
        *(pickle.UnpicklingError, RecursionError),
    ) as error:
        raise UnreadableError(
            f"its pickle is damaged or cut short ({type(error).__name__})", code="weights.damaged"
        ) from error


def _check_instructions(file: BinaryIO) -> None:
    """Raise UnreadableError if the pickle at the file's position has more or other instructions than tensors need."""
    tuples, repeated, last = 0, 0, ""
    memo: dict[int, bool] = {}  # number in the pickle's memo → whether it is a tuple
    for number, (instruction, argument, _) in enumerate(pickletools.genops(file)):
        name = instruction.name
        tuples += name.startswith("TUPLE")
        if name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else argument] = last.startswith("TUPLE")
        repeated += name.endswith("BINGET") and memo.get(argument or 0, False)
        last = name
        if number > MOST_INSTRUCTIONS or tuples > MOST_TUPLES or repeated > MOST_REPEATED:
            raise UnreadableError(
                "its pickle has far more instructions than tensors need", code="weights.unsafe-pickle"
            )
        if name not in INSTRUCTIONS:
            raise UnreadableError(
                f"its pickle has an instruction that tensors do not need ({name})", code="weights.unsafe-pickle"
            )
        if name == "LONG_BINPUT" and int(argument or 0) > MOST_INSTRUCTIONS:
            raise IndexError  # the unpickler would allocate a memo of this size


class _Unpickler(pickle.Unpickler):
    """Build the dicts, lists, numbers, texts and tensors of a pickle, with `Storage` and `Cut` instead of PyTorch's classes."""

    def find_class(self, module: str, name: str) -> "str | _Call":
        """Return the object for a name in a pickle: the dtype of a storage, or a function in `_CALLS`. Nothing is imported."""
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        full_name = f"{module}.{name}"
        if (call := _CALLS.get(full_name)) is None:
            if full_name.startswith("torch."):
                problem, code = "contains values other than floats", "weights.unsupported-dtype"
            else:
                problem, code = "tries to run code", "weights.unsafe-pickle"
            raise UnreadableError(
                f"it {problem} ({full_name[:60]}), but t5prep reads only tensors; none of its code was run", code=code
            )
        return _Call(call)

    def persistent_load(self, pid: Any) -> Storage:
        """Return the storage that a persistent id names: `("storage", type, key, device, size[, view])`."""
        kind, dtype, key, _, size, *view = pid
        if kind != "storage" or dtype not in STORAGES.values() or not isinstance(key, str | int):
            description = repr(kind[:40]) if isinstance(kind, str) else type(kind).__name__
            raise UnreadableError(
                f"it refers to an object that is not a tensor storage ({description})", code="weights.unsafe-pickle"
            )
        begin = int(view[0][1]) if view and view[0] else 0
        return Storage(str(key), dtype, int(view[0][2] if begin else size), begin)


@dataclasses.dataclass(frozen=True)
class _Call(_Fixed):
    """A function of this file that a pickle may call."""

    function: Callable[..., object]

    def __call__(self, *arguments: object) -> object:
        """Return the function's result for the arguments."""
        return self.function(*arguments)


class _Dict(dict[str, object]):
    """A dict of a pickle, which ignores its state: transformers' `_metadata` does not affect the weights."""

    def __init__(self, items: Iterable[tuple[str | int, object]] = ()) -> None:
        items = list(items)
        if not all(isinstance(key, str | int) for key, _ in items):
            raise TypeError
        super().__init__((str(key), value) for key, value in items)

    def __setstate__(self, _: object) -> None:
        pass


def _rebuilt(storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object) -> Cut:
    if not isinstance(storage, Storage) or len(shape) != len(strides):
        raise TypeError
    return Cut(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


_CALLS: dict[str, Callable[..., object]] = {
    "torch._utils._rebuild_tensor_v2": _rebuilt,
    "torch._utils._rebuild_tensor": _rebuilt,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    "collections.OrderedDict": _Dict,
}


# The first two pickles of the older format (torch/serialization.py).
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
MOST_BYTEORDER = 16  # bytes that are read of the entry `byteorder`, which holds "little" or "big"
LOCAL_HEADER = 30  # bytes of a zip entry's local header before its name

# A function from a storage to the byte at which its values begin, and the number of its values in the archive.
StorageLocator = Callable[[Storage], tuple[int, int]]


def tensors(path: Path) -> dict[str, LazyArray]:
    """Return the tensors of a file by name. Raises UnreadableError; no code of the file is executed."""
    with path.open("rb") as file:
        state, locate = _zip(file) if file.read(2) == b"PK" else _legacy(file)
    if not isinstance(state, dict):
        raise UnreadableError("it does not contain a dict of tensors", code="weights.no-tensors")
    tensors = {name: _tensor(path, cut, locate) for name, cut in state.items() if isinstance(cut, Cut)}
    if not tensors:
        raise UnreadableError("it contains no named tensors", code="weights.no-tensors")
    return tensors


def _zip(file: BinaryIO) -> tuple[object, StorageLocator]:
    """Return the state and a locator of storages for a zip archive, which has `NAME/data.pkl` and entries `NAME/data/KEY`."""
    try:
        archive = zipfile.ZipFile(file)
        entries = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if "byteorder" in entries:
            _begin(file, entries["byteorder"])  # raises for a compressed entry, which could unpack to any size
            with archive.open(entries["byteorder"]) as content:
                if content.read(MOST_BYTEORDER) != b"little":
                    raise UnreadableError("its numbers are big-endian", code="weights.unsupported-format")
        _begin(file, entries["data.pkl"])
        with archive.open(entries["data.pkl"]) as content:
            state = load_pickle(content)  # type: ignore[arg-type]
    except (zipfile.BadZipFile, KeyError, EOFError, OSError) as error:
        raise UnreadableError("it is cut short or not a PyTorch archive", code="weights.damaged") from error
    begins = {name: _begin(file, info) for name, info in entries.items() if name.startswith("data/")}

    def locate(storage: Storage) -> tuple[int, int]:
        name = f"data/{storage.key}"
        if name not in begins:
            raise UnreadableError("its archive lacks a storage", code="weights.damaged")
        return begins[name], entries[name].file_size // size_of(storage.dtype, ())

    return state, locate


def _begin(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return the byte at which a zip entry's content begins. Raises UnreadableError for a compressed entry."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise UnreadableError(
            "its archive is compressed, which PyTorch never writes", code="weights.unsupported-format"
        )
    file.seek(info.header_offset)
    header = file.read(LOCAL_HEADER)
    if len(header) < LOCAL_HEADER:
        raise UnreadableError("it is cut short", code="weights.damaged")
    name, extra = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    return info.header_offset + LOCAL_HEADER + name + extra


def _legacy(file: BinaryIO) -> tuple[object, StorageLocator]:
    """Return the state and a locator of storages for the older format.

    It has five pickles (magic, protocol, system, state, storage keys), and then each storage: its number of values as int64, and
    the values.
    """
    file.seek(0)
    if load_pickle(file) != MAGIC or load_pickle(file) != PROTOCOL:
        raise UnreadableError("it is not a PyTorch file", code="weights.wrong-format")
    system = load_pickle(file)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise UnreadableError("its numbers are big-endian", code="weights.unsupported-format")
    state, keys = load_pickle(file), load_pickle(file)
    cuts = [cut for cut in state.values() if isinstance(cut, Cut)] if isinstance(state, dict) else []
    itemsizes = {cut.storage.key: size_of(cut.storage.dtype, ()) for cut in cuts}
    begins, end = {}, os.fstat(file.fileno()).st_size
    if not isinstance(keys, list) or not all(isinstance(key, str | int) for key in keys):
        raise UnreadableError("it does not list its storages", code="weights.damaged")
    for key in keys:
        count = int.from_bytes(file.read(8), "little", signed=True)
        if str(key) not in itemsizes or not 0 <= count * itemsizes[str(key)] <= end:
            raise UnreadableError("it is cut short", code="weights.damaged")
        begins[str(key)] = (file.tell(), count)
        file.seek(count * itemsizes[str(key)], 1)

    def locate(storage: Storage) -> tuple[int, int]:
        if storage.key not in begins:
            raise UnreadableError("it lacks a storage", code="weights.damaged")
        return begins[storage.key]

    return state, locate


def _tensor(path: Path, cut: Cut, locate: StorageLocator) -> LazyArray:
    begin, count = locate(cut.storage)
    size_of(cut.storage.dtype, cut.shape)
    first = cut.storage.begin + cut.offset
    last = first + sum((length - 1) * stride for length, stride in zip(cut.shape, cut.strides, strict=True))
    if first < 0 or min(cut.strides, default=0) < 0 or (0 not in cut.shape and last >= count):
        raise UnreadableError("a tensor reaches beyond its storage", code="weights.damaged")
    if cut.storage.dtype not in DTYPES:
        return without_values(dtype=cut.storage.dtype, shape=cut.shape)
    offset = begin + first * DTYPES[cut.storage.dtype].itemsize
    if cut.strides == _contiguous(cut.shape):
        return in_file(path, dtype=cut.storage.dtype, shape=cut.shape, offset=offset)
    flat = in_file(path, dtype=cut.storage.dtype, shape=[last + 1 - first], offset=offset)

    def part(index: Index) -> np.ndarray:
        strides = [stride * 4 for stride in cut.strides]
        return np.lib.stride_tricks.as_strided(flat.read(), cut.shape, strides, writeable=False)[index]

    return LazyArray(cut.shape, part, stored_dtype=cut.storage.dtype)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps.

    >>> _contiguous((2, 3, 4))
    (12, 4, 1)
    """
    strides = [1]
    for length in shape[:0:-1]:
        strides.append(strides[-1] * max(1, length))
    return tuple(strides[::-1]) if shape else ()
