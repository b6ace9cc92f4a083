"""Weights written as Flax and Keras lay them out, for tests; what those write themselves is in tests/data/published."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


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
