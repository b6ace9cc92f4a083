"""Read tensors of a `tf_model.h5`: Keras's HDF5, where matrices are [in, out], the transpose of PyTorch's."""

from pathlib import Path
from typing import Any

import numpy as np

from t5prep.train.published.stored import DTYPES, Index, LazyArray, UnreadableError, in_file

# The parts of a T5; a dataset's path names some Keras layers before the last of these parts.
PARTS = ("shared", "encoder", "decoder", "lm_head")


def tensors(path: Path) -> dict[str, LazyArray]:
    """Return the tensors of a file by PyTorch's names. Raises UnreadableError."""
    import h5py

    tensors: dict[str, LazyArray] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            pytorch, transposed = pytorch_name(name)
            stored = _stored(path, name, item)
            tensors[pytorch] = stored.transposed if transposed else stored

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise UnreadableError("it is cut short or no HDF5 file") from error
    return tensors


def pytorch_name(name: str) -> tuple[str, bool]:
    """Return PyTorch's name of a dataset, and whether it is stored transposed.

    >>> pytorch_name("encoder/tf_t5/encoder/block_._0/layer_._1/DenseReluDense/wi/kernel:0")
    ('encoder.block.0.layer.1.DenseReluDense.wi.weight', True)
    >>> pytorch_name("decoder/shared/shared/embeddings:0")
    ('shared.weight', False)
    """
    parts = name.partition(":")[0].split("/")
    begin = max((at for at, part in enumerate(parts) if part in PARTS), default=0)
    *inner, last = [piece for part in parts[begin:] for piece in part.split("_._")]
    return ".".join([*inner, "weight" if last in ("kernel", "embeddings") else last]), last == "kernel"


def _stored(path: Path, name: str, item: Any) -> LazyArray:
    """Return a dataset as a tensor: read directly if it is one contiguous piece of the file, otherwise through h5py."""
    if item.is_virtual or item.external:
        raise UnreadableError("it has tensors in other files")
    dtype, shape = item.dtype.name, tuple(map(int, item.shape))
    offset = item.id.get_offset()
    if offset is not None and item.dtype == DTYPES.get(dtype) and not item.file.userblock_size:
        return in_file(path, dtype=dtype, shape=shape, offset=offset)
    if dtype not in DTYPES:
        raise UnreadableError(f"it has a tensor of {dtype}, and weights are float32, float16 or bfloat16")

    def part(index: Index) -> np.ndarray:
        import h5py

        with h5py.File(path, "r") as file:
            return np.asarray(file[name][index], np.float32)

    return LazyArray(shape, part)
