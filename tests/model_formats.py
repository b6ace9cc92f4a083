"""Weights written as PyTorch, Flax and Keras lay them out, for tests without these.

What they write themselves is in tests/data/published, and made by tests/torch_t5.py.
"""

import collections
import gzip
import io
import json
import pickle
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_pytorch(path: Path, tensors: Mapping[str, np.ndarray], *, aliases: Mapping[str, str] | None = None) -> None:
    """`pytorch_model.bin` as a zip; `aliases` are names of tensors that have another's storage."""
    state = collections.OrderedDict(
        (name, tensor(str(index), value.shape)) for index, (name, value) in enumerate(tensors.items())
    )
    for name, target_name in (aliases or {}).items():
        state[name] = tensor(str(list(tensors).index(target_name)), tensors[target_name].shape)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(state))
        for index, value in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{index}", np.ascontiguousarray(value, np.float32).tobytes())


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


# PyTorch's names → T5X's (google-research/t5x at cc342d4; names of examples/t5/network.py).
T5X_NAMES = (
    (r"shared\.weight", "token_embedder/embedding"),
    (r"lm_head\.weight", "decoder/logits_dense/kernel"),
    (r"(\w+)\.final_layer_norm\.weight", r"\1/\1_norm/scale"),
    (r"(\w+)\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.weight", r"\1/relpos_bias/rel_embedding"),
    (r"encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.(\w)\.weight", r"encoder/layers_\1/attention/\2/kernel"),
    (r"decoder\.block\.(\d+)\.layer\.0\.SelfAttention\.(\w)\.weight", r"decoder/layers_\1/self_attention/\2/kernel"),
    (
        r"decoder\.block\.(\d+)\.layer\.1\.EncDecAttention\.(\w)\.weight",
        r"decoder/layers_\1/encoder_decoder_attention/\2/kernel",
    ),
    (r"(\w+)\.block\.(\d+)\.layer\.\d\.DenseReluDense\.(\w+)\.weight", r"\1/layers_\2/mlp/\3/kernel"),
    (r"encoder\.block\.(\d+)\.layer\.0\.layer_norm\.weight", r"encoder/layers_\1/pre_attention_layer_norm/scale"),
    (r"encoder\.block\.(\d+)\.layer\.1\.layer_norm\.weight", r"encoder/layers_\1/pre_mlp_layer_norm/scale"),
    (r"decoder\.block\.(\d+)\.layer\.0\.layer_norm\.weight", r"decoder/layers_\1/pre_self_attention_layer_norm/scale"),
    (r"decoder\.block\.(\d+)\.layer\.1\.layer_norm\.weight", r"decoder/layers_\1/pre_cross_attention_layer_norm/scale"),
    (r"decoder\.block\.(\d+)\.layer\.2\.layer_norm\.weight", r"decoder/layers_\1/pre_mlp_layer_norm/scale"),
)


def t5x_leaves(tensors: Mapping[str, np.ndarray]) -> dict[tuple[str, ...], np.ndarray]:
    """Weights by their paths in T5X's tree, of tensors by PyTorch's names."""
    leaves = {}
    for name, value in tensors.items():
        (path,) = (re.sub(pattern, ours, name) for pattern, ours in T5X_NAMES if re.fullmatch(pattern, name))
        for letter, long in zip("qkvo", ("query", "key", "value", "out"), strict=True):
            path = path.replace(f"/{letter}/kernel", f"/{long}/kernel")
        turned = path.rpartition("/")[2] in ("kernel", "rel_embedding")
        leaves[tuple(path.split("/"))] = np.ascontiguousarray(value.T if turned else value)
    return leaves


def nested(leaves: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """The tree that has these leaves."""
    tree: dict[str, Any] = {}
    for names, value in leaves.items():
        node = tree
        for name in names[:-1]:
            node = node.setdefault(name, {})
        node[names[-1]] = value
    return tree


def write_t5x(folder: Path, tensors: Mapping[str, np.ndarray], *, kind: str) -> None:
    """A checkpoint of T5X of tensors by PyTorch's names.

    kind: "msgpack", all in one file; "zarr", matrices in arrays of Zarr beside it, as published; "orbax", all of them.
    """
    leaves: dict[tuple[str, ...], Any] = {}
    for path, value in t5x_leaves(tensors).items():
        array = f"target.{'.'.join(path)}"
        leaves[path] = value
        if kind == "orbax":
            leaves[path] = f"PLACEHOLDER://{array}"
        elif kind == "zarr" and value.ndim > 1:
            about = {"chunks": [-(-size // 2) for size in value.shape], "shape": list(value.shape)}
            store = {"driver": "gfile", "path": f"{array}/"}
            leaves[path] = {"driver": "zarr", "dtype": "float32", "kvstore": store, "metadata": about}
        if leaves[path] is not value:
            write_zarr(folder / array, value)
    tree = {"target": nested(leaves), "state": {"step": np.array(7, np.int32), "param_states": {}}}
    (folder / "checkpoint").write_bytes(_packed(tree if kind == "orbax" else {"version": 3, "optimizer": tree}))


def write_zarr(folder: Path, value: np.ndarray) -> None:
    """An array of Zarr 2 in two chunks for each axis, of which the last ones may reach over the end."""
    folder.mkdir()
    chunk = [-(-size // 2) for size in value.shape]
    about = {"chunks": chunk, "compressor": {"id": "gzip", "level": 1}, "dtype": value.dtype.str, "fill_value": None}
    about |= {"filters": None, "order": "C", "shape": list(value.shape), "zarr_format": 2}
    (folder / ".zarray").write_text(json.dumps(about))
    for chunk_index in np.ndindex(
        *(-(-size // chunk_size) for size, chunk_size in zip(value.shape, chunk, strict=True))
    ):
        spans = tuple(
            slice(n * chunk_size, (n + 1) * chunk_size) for n, chunk_size in zip(chunk_index, chunk, strict=True)
        )
        padded_chunk = np.zeros(chunk, value.dtype)
        part = value[spans]
        padded_chunk[tuple(slice(size) for size in part.shape)] = part
        (folder / ".".join(map(str, chunk_index))).write_bytes(gzip.compress(padded_chunk.tobytes(), 1))


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


class LongStorage:
    """Stands for torch.LongStorage when pickled."""


for _storage in (FloatStorage, LongStorage):
    _storage.__module__, _storage.__qualname__ = "torch", _storage.__name__


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
    def __init__(self, key: str, size: int, kind: type) -> None:
        self.id = ("storage", kind, key, "cpu", size)


def _rebuild_tensor_v2() -> None: ...


_rebuild_tensor_v2.__module__ = "torch._utils"
_Torch.dispatch[type(_rebuild_tensor_v2)] = _Torch.save_global


def tensor(
    key: str,
    shape: tuple[int, ...],
    *,
    offset: int = 0,
    strides: tuple[int, ...] | None = None,
    kind: type = FloatStorage,
) -> Call:
    size = int(np.prod(shape))
    resolved_strides = strides or tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    storage = Storage(key, size, kind)
    return Call(_rebuild_tensor_v2, storage, offset, shape, resolved_strides, False, collections.OrderedDict())


def pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Torch(file, protocol=2).dump(value)
    return file.getvalue()
