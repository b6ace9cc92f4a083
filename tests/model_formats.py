"""Weights written as PyTorch, Flax and Keras lay them out, for tests without these.

What they write themselves is in tests/data/published, and made by tests/torch_t5.py.
"""

import collections
import io
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_pytorch(path: Path, tensors: Mapping[str, np.ndarray], *, same: Mapping[str, str] | None = None) -> None:
    """`pytorch_model.bin` as a zip; `same` are names of tensors that have another's storage."""
    state = collections.OrderedDict(
        (name, tensor(str(at), value.shape)) for at, (name, value) in enumerate(tensors.items())
    )
    for name, other in (same or {}).items():
        state[name] = tensor(str(list(tensors).index(other)), tensors[other].shape)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(state))
        for at, value in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{at}", np.ascontiguousarray(value, np.float32).tobytes())


def write_flax(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """`flax_model.msgpack` of tensors by PyTorch's names."""
    tree: dict[str, Any] = {}
    for name, value in tensors.items():
        *parts, _ = name.split(".")
        last, value = _flax_name(parts[-1], value)
        node = tree
        for part in parts:
            node = node.setdefault(part, {})
        node[last] = value
    path.write_bytes(_packed(tree))


def write_hdf5(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """`tf_model.h5` of tensors by PyTorch's names."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, value in tensors.items():
            *parts, _ = name.split(".")
            last, value = _flax_name(parts[-1], value)
            joined = "/".join(parts).replace("block/", "block_._").replace("layer/", "layer_._")
            last = {"embedding": "embeddings"}.get(last, last)
            file[f"{parts[0]}/tf_t5for_conditional_generation/{joined}/{last}:0"] = value


def _flax_name(part: str, value: np.ndarray) -> tuple[str, np.ndarray]:
    if part in ("shared", "relative_attention_bias"):
        return "embedding", value
    return ("weight", value) if value.ndim == 1 else ("kernel", value.T)


def _packed(value: Any) -> bytes:
    """MessagePack, with arrays as flax.serialization has them."""
    if isinstance(value, dict):
        return b"\xdf" + struct.pack(">I", len(value)) + b"".join(_packed(part) for kv in value.items() for part in kv)
    if isinstance(value, str):
        return b"\xd9" + bytes([len(value.encode())]) + value.encode()
    if isinstance(value, int):
        return b"\xce" + struct.pack(">I", value)
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(_packed, value))
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    content = _packed([list(value.shape), value.dtype.name, np.ascontiguousarray(value).tobytes()])
    return b"\xc9" + struct.pack(">I", len(content)) + b"\x01" + content


class FloatStorage:
    """Stands for torch.FloatStorage when pickled."""


FloatStorage.__module__, FloatStorage.__qualname__ = "torch", "FloatStorage"


class Call:
    """Pickled as a call of a function, as `__reduce__` may make it."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


class _Torch(pickle._Pickler):  # the one in Python, whose methods may be replaced
    """Pickles globals by name alone, so that nothing need exist; tensors as calls of PyTorch's function."""

    def persistent_id(self, value: Any) -> Any:
        return value.id if isinstance(value, Storage) else None

    def save_global(self, obj: Any, name: str | None = None) -> None:
        module = getattr(obj, "__module__", None) or "builtins"
        self.write(b"c" + f"{module}\n{obj.__qualname__}\n".encode())

    dispatch = {**pickle._Pickler.dispatch, type: save_global, type(len): save_global}  # noqa: RUF012


class Storage:
    def __init__(self, key: str, size: int) -> None:
        self.id = ("storage", FloatStorage, key, "cpu", size)


def _rebuild_tensor_v2() -> None: ...


_rebuild_tensor_v2.__module__ = "torch._utils"
_Torch.dispatch[type(_rebuild_tensor_v2)] = _Torch.save_global


def tensor(key: str, shape: tuple[int, ...], *, offset: int = 0, strides: tuple[int, ...] | None = None) -> Call:
    size = int(np.prod(shape))
    own = strides or tuple(int(np.prod(shape[at + 1 :])) for at in range(len(shape)))
    return Call(_rebuild_tensor_v2, Storage(key, size), offset, shape, own, False, collections.OrderedDict())


def pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Torch(file, protocol=2).dump(value)
    return file.getvalue()
