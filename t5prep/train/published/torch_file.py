"""Read tensors of a `pytorch_model.bin`: PyTorch's zip archive since 1.6, and the older file of pickles.

Of a pickle only dicts, lists, numbers, text and tensors can be built, nothing else. Python's own unpickler calls
whatever a pickle names. This one reads the instructions with `pickletools`, keeps a stack of plain values, and accepts
three functions and PyTorch's storages by name; any other name is an error.
"""

import dataclasses
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from t5prep.train.published.stored import DTYPES, Index, Stored, UnreadableError, in_file, size_of

# PyTorch's storages of floats; a T5 has no others.
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
}
# A model has some hundred tensors; a pickle with far more values is not a model.
MOST_INSTRUCTIONS = 5_000_000


@dataclasses.dataclass(frozen=True)
class Storage:
    """A storage: a run of values that tensors are parts of; `key` is its place in the archive.

    `begin` counts in values.
    """

    key: str
    dtype: str
    size: int
    begin: int = 0


@dataclasses.dataclass(frozen=True)
class Cut:
    """A tensor as a part of a storage; offset and strides count in values."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Name:
    """The name of a function or class in a pickle: it is compared, never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class _Mark:
    """Mark the place on the stack where a list of values begins."""


MARK = _Mark()


def load_pickle(file: BinaryIO) -> Any:
    """Return the value of the pickle at the file's position, and leave the position after the pickle.

    Raises UnreadableError when it names anything but a tensor's parts, or is damaged. Nothing it names is called.
    """
    reader = _Reader()
    try:
        for number, (instruction, argument, _) in enumerate(pickletools.genops(file)):
            if number > MOST_INSTRUCTIONS:
                raise UnreadableError("it holds far more than tensors")
            step = _STEPS.get(instruction.name)
            if step is None:
                raise UnreadableError(f"it wants to do what no tensor needs ({instruction.name})")
            step(reader, argument)
        return reader.stack.pop()
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, EOFError) as error:
        raise UnreadableError(f"its pickle is damaged or cut short ({type(error).__name__})") from error


class _Reader:
    """The stack and the memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop_to_mark(self) -> list[Any]:
        """Remove and return the values that were pushed since the last mark; remove the mark too."""
        at = len(self.stack) - 1
        while self.stack[at] is not MARK:
            at -= 1
            if at < 0:
                raise IndexError
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values

    def pop_two(self) -> tuple[Any, Any]:
        """Remove and return the two topmost values, the lower one first."""
        upper = self.stack.pop()
        return self.stack.pop(), upper


def _push(reader: _Reader, argument: Any) -> None:
    reader.stack.append(argument)


def _constant(make: Callable[[], Any]) -> Callable[[_Reader, Any], None]:
    return lambda reader, _: reader.stack.append(make())


def _name(reader: _Reader, argument: str) -> None:
    module, _, name = argument.partition(" ")
    reader.stack.append(_known(_Name(module, name)))


def _stack_name(reader: _Reader, _: Any) -> None:
    module, name = reader.pop_two()
    reader.stack.append(_known(_Name(str(module), str(name))))


def _known(name: _Name) -> _Name:
    storage = name.module == "torch" and name.name in STORAGES
    if not storage and str(name) not in _CALLS:
        kind = "holds other values than floats" if str(name).startswith("torch.") else "wants to run code"
        raise UnreadableError(f"it {kind} ({str(name)[:60]}), and only tensors are read; nothing of it was run")
    return name


def _call(reader: _Reader, _: Any) -> None:
    function, arguments = reader.pop_two()
    if not isinstance(function, _Name) or str(function) not in _CALLS:
        raise UnreadableError(f"it wants to call {str(function)[:60]!r}; nothing of it was run")
    reader.stack.append(_CALLS[str(function)](*arguments))


def _build(reader: _Reader, _: Any) -> None:
    """Ignore the state of a dict: transformers' `_metadata`, which does not affect the weights."""
    target, _ = reader.pop_two()
    if not isinstance(target, dict):
        raise UnreadableError("it sets the state of something that is not a dict; nothing of it was run")
    reader.stack.append(target)


def _storage(reader: _Reader, _: Any) -> None:
    """Push the storage that a persistent id names: `("storage", type, key, device, size[, view])`."""
    kind, type_, key, _, size, *view = reader.stack.pop()
    if kind != "storage" or not isinstance(type_, _Name) or type_.name not in STORAGES:
        raise UnreadableError(f"it has a part that is not a storage of tensors ({str(kind)[:40]!r})")
    begin = int(view[0][1]) if view and view[0] else 0
    reader.stack.append(Storage(str(key), STORAGES[type_.name], int(view[0][2] if begin else size), begin))


def _rebuilt(storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> Cut:
    if not isinstance(storage, Storage) or len(shape) != len(strides):
        raise TypeError
    return Cut(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


def _parameter(tensor: Cut, *_: Any) -> Cut:
    if not isinstance(tensor, Cut):
        raise TypeError
    return tensor


def _dict(items: Any = ()) -> dict:
    return {str(key): value for key, value in items}


_CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _rebuilt,
    "torch._utils._rebuild_tensor": _rebuilt,
    "torch._utils._rebuild_parameter": _parameter,
    "collections.OrderedDict": _dict,
}


def _set_items(reader: _Reader, _: Any) -> None:
    values = reader.pop_to_mark()
    reader.stack[-1].update(zip(values[::2], values[1::2], strict=True))


def _set_item(reader: _Reader, _: Any) -> None:
    key, value = reader.pop_two()
    reader.stack[-1][key] = value


def _tuple_of(count: int) -> Callable[[_Reader, Any], None]:
    def step(reader: _Reader, _: Any) -> None:
        values = tuple(reader.stack[-count:]) if count else ()
        if len(values) < count:
            raise IndexError
        del reader.stack[len(reader.stack) - count :]
        reader.stack.append(values)

    return step


def _memoize(reader: _Reader, argument: int | None) -> None:
    reader.memo[len(reader.memo) if argument is None else argument] = reader.stack[-1]


_STEPS: dict[str, Callable[[_Reader, Any], Any]] = {
    "PROTO": lambda reader, _: None,
    "FRAME": lambda reader, _: None,
    "STOP": lambda reader, _: None,
    "MARK": _constant(lambda: MARK),
    "NONE": _constant(lambda: None),
    "NEWTRUE": _constant(lambda: True),
    "NEWFALSE": _constant(lambda: False),
    "EMPTY_DICT": _constant(dict),
    "EMPTY_LIST": _constant(list),
    "EMPTY_TUPLE": _constant(tuple),
    "TUPLE": lambda reader, _: reader.stack.append(tuple(reader.pop_to_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "APPEND": lambda reader, _: reader.stack[-2].append(reader.stack.pop()),
    "APPENDS": lambda reader, _: reader.stack[-1].extend(values) if (values := reader.pop_to_mark()) else None,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "BINPUT": _memoize,
    "LONG_BINPUT": _memoize,
    "MEMOIZE": _memoize,
    "BINGET": lambda reader, at: reader.stack.append(reader.memo[at]),
    "LONG_BINGET": lambda reader, at: reader.stack.append(reader.memo[at]),
    "GLOBAL": _name,
    "STACK_GLOBAL": _stack_name,
    "REDUCE": _call,
    "BUILD": _build,
    "BINPERSID": _storage,
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINSTRING"),
        _push,
    ),
}


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
            state = load_pickle(content)  # type: ignore[arg-type]
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
    if load_pickle(file) != MAGIC or load_pickle(file) != PROTOCOL:
        raise UnreadableError("it is not a file of PyTorch's")
    system = load_pickle(file)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise UnreadableError("its numbers are big-endian")
    state, keys = load_pickle(file), load_pickle(file)
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
