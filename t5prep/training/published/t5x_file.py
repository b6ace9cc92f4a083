"""Read checkpoints of T5X: a folder with a `checkpoint` in MessagePack, and a Zarr array beside it for each large tensor.

The layout is that of google-research/t5x at cc342d4 (checkpoints.py, version 3). `checkpoint` is the tree that
flax.serialization writes, {"version": 3, "optimizer": {"target": weights, "state": ...}}. A leaf is one of these:

* an array;
* TensorStore's spec of an array, a map with `driver` and `kvstore`;
* the text `PLACEHOLDER://NAME`, in checkpoints that T5X writes through Orbax; there `target` is not inside `optimizer`.

An array is Zarr 2: `.zarray` holds shape, dtype and chunks, and each chunk is a file, compressed by gzip. A checkpoint has no
config.json, so the config is derived from the shapes of its tensors.
"""

import itertools
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from t5prep.json_values import MALFORMED_ERRORS, JSONObject
from t5prep.training.published.flax_file import CHUNKED, Value, array_at, mapped, unpack
from t5prep.training.published.stored import (
    DTYPES,
    MOST_DESCRIPTION_BYTES,
    Index,
    LazyArray,
    UnreadableError,
    read_small,
    weight_size,
)

NAME = "checkpoint"
MOST_NAME_BYTES = 255  # of a file name on Linux
GZIP_OR_ZLIB = 47  # the `wbits` with which zlib accepts either header
PLACEHOLDER = "PLACEHOLDER://"
# T5X's names of a stack's parts → PyTorch's names. Those inside `layers_N` follow `block.N.layer.`.
NORMS = {
    "encoder": {"pre_attention_layer_norm": 0, "pre_mlp_layer_norm": 1},
    "decoder": {"pre_self_attention_layer_norm": 0, "pre_cross_attention_layer_norm": 1, "pre_mlp_layer_norm": 2},
}
ATTENTIONS = {
    "encoder": {"attention": "0.SelfAttention"},
    "decoder": {"self_attention": "0.SelfAttention", "encoder_decoder_attention": "1.EncDecAttention"},
}
PROJECTIONS = {"query": "q", "key": "k", "value": "v", "out": "o"}
# Zarr's names of types; T5X's TensorStore writes bfloat16 by its own name.
ZARR_TYPES = {"<f4": "float32", "<f2": "float16", "<f8": "float64", "bfloat16": "bfloat16"}


def tensors(path: Path) -> dict[str, LazyArray]:
    """Return the weights of a checkpoint by PyTorch's names. `path` is its MessagePack file. Raises UnreadableError."""
    data = mapped(path)
    tree = unpack(data)
    tree = tree.get("optimizer", tree) if isinstance(tree, dict) else {}
    target = tree.get("target") if isinstance(tree, dict) else None
    if not isinstance(target, dict):
        raise UnreadableError("it has no optimizer/target, so it is not a checkpoint of T5X", code="weights.no-tensors")
    weights = {}
    for names, leaf in _leaves(target, ()):
        name, transposed = pytorch_name(names)
        stored = _stored(path, data, leaf)
        weights[name] = stored.transposed if transposed else stored
    return weights


def pytorch_name(names: tuple[str, ...]) -> tuple[str, bool]:
    """Return PyTorch's name of a weight, and whether T5X stores it transposed. Raises UnreadableError for an unknown name.

    `names` is the path of the weight in the tree.

    >>> pytorch_name(("decoder", "layers_3", "encoder_decoder_attention", "out", "kernel"))
    ('decoder.block.3.layer.1.EncDecAttention.o.weight', True)
    >>> pytorch_name(("token_embedder", "embedding"))
    ('shared.weight', False)
    """
    stack, *parts = names
    of_layer = re.fullmatch(r"layers_(\d+)", parts[0]) if parts else None
    block = f"{stack}.block.{of_layer[1] if of_layer else 0}.layer."
    match parts[1:] if of_layer else parts:
        case ["embedding"] if stack == "token_embedder":
            return "shared.weight", False
        case ["logits_dense", "kernel"] if stack == "decoder":
            return "lm_head.weight", True
        case [norm, "scale"] if not of_layer and norm == f"{stack}_norm":
            return f"{stack}.final_layer_norm.weight", False
        case ["relpos_bias", "rel_embedding"] if stack in NORMS:  # outside of `layers_N`: one table for all layers
            return f"{block}0.SelfAttention.relative_attention_bias.weight", True
        case [norm, "scale"] if norm in NORMS.get(stack, {}):
            return f"{block}{NORMS[stack][norm]}.layer_norm.weight", False
        case ["mlp", ("wi" | "wi_0" | "wi_1" | "wo") as matrix, "kernel"] if stack in NORMS:
            return f"{block}{len(NORMS[stack]) - 1}.DenseReluDense.{matrix}.weight", True
        case [attention, matrix, "kernel"] if attention in ATTENTIONS.get(stack, {}) and matrix in PROJECTIONS:
            return f"{block}{ATTENTIONS[stack][attention]}.{PROJECTIONS[matrix]}.weight", True
    raise UnreadableError(
        f"it has the parameter {'/'.join(names)}, which T5X models do not have", code="weights.unknown-tensor"
    )


def shape_of(tensors: Mapping[str, LazyArray]) -> JSONObject:
    """Return the entries of a config.json that describe `tensors`. Raises UnreadableError if they are not a T5's."""
    first = {stack: f"{stack}.block.0.layer." for stack in NORMS}
    try:
        vocabulary, width = tensors["shared.weight"].shape
        inner = tensors[f"{first['encoder']}0.SelfAttention.q.weight"].shape[0]
        buckets, heads = tensors[f"{first['encoder']}0.SelfAttention.relative_attention_bias.weight"].shape
        gated = f"{first['encoder']}1.DenseReluDense.wi_0.weight" in tensors
        hidden = tensors[f"{first['encoder']}1.DenseReluDense.wo.weight"].shape[1]
    except (KeyError, ValueError) as error:
        raise UnreadableError(f"it is not a complete T5 ({error})", code="weights.missing-tensor") from error
    layers = {
        stack: 1
        + max((int(n[1]) for name in tensors if (n := re.match(rf"{stack}\.block\.(\d+)\.", name))), default=-1)
        for stack in NORMS
    }
    biases = sum(name.startswith("encoder.") and "relative_attention_bias" in name for name in tensors)
    return {
        "model_type": "umt5" if biases > 1 else "t5",
        "vocab_size": vocabulary,
        "d_model": width,
        "d_kv": inner // max(heads, 1),
        "d_ff": hidden,
        "num_layers": layers["encoder"],
        "num_decoder_layers": layers["decoder"],
        "num_heads": heads,
        "relative_attention_num_buckets": buckets,
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }


def _leaves(tree: Mapping[Value, Value], names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Value]]:
    for name, value in tree.items():
        inner = (*names, str(name))
        if isinstance(value, dict) and CHUNKED not in value and "kvstore" not in value:
            yield from _leaves(value, inner)
        else:
            yield inner, value


def _stored(path: Path, data: memoryview, leaf: Value) -> LazyArray:
    if isinstance(leaf, str) and leaf.startswith(PLACEHOLDER):
        return zarr_array(path.parent, leaf.removeprefix(PLACEHOLDER))
    if isinstance(leaf, dict) and "kvstore" in leaf:
        store = leaf["kvstore"]
        name = store.get("path") if isinstance(store, dict) else None
        if leaf.get("driver") != "zarr" or not isinstance(name, str):
            raise UnreadableError(
                f"it stores an array with the driver {leaf.get('driver')}, but t5prep reads only zarr",
                code="weights.unsupported-format",
            )
        return zarr_array(path.parent, name.strip("/"))
    return array_at(path, data, leaf)


def zarr_array(folder: Path, name: str) -> LazyArray:
    """Return the Zarr 2 array `name` in `folder`. Raises UnreadableError.

    The checkpoint may come from a stranger, so `name` must not leave the folder, and a chunk must not be larger than the array.
    """
    if "/" in name or name in ("", ".", "..") or len(name.encode(errors="replace")) > MOST_NAME_BYTES:
        raise UnreadableError(f"it names the array {name!r:.80}, which is not in its folder", code="weights.damaged")
    try:
        about = json.loads(read_small(folder / name / ".zarray", MOST_DESCRIPTION_BYTES))
        shape, chunk = (tuple(about[key]) for key in ("shape", "chunks"))
        dtype, compressor = ZARR_TYPES.get(about["dtype"], str(about["dtype"])), about["compressor"]
        kind = None if compressor is None else compressor["id"]
        plain = about["order"] == "C" and not about.get("filters") and about.get("zarr_format") == 2
        separator = str(about.get("dimension_separator", "."))
    except FileNotFoundError as error:
        raise UnreadableError(f"the array {name} is missing", code="weights.missing-file") from error
    except MALFORMED_ERRORS as error:
        raise UnreadableError(f"{name}/.zarray is damaged", code="weights.damaged") from error
    weight_size(dtype, shape)
    chunk_bytes = weight_size(dtype, chunk)
    if separator not in (".", "/"):  # another separator, such as "/../", could name a file elsewhere
        raise UnreadableError(
            f"the array {name} has the dimension separator {separator!r:.20} instead of . or /",
            code="weights.unsupported-format",
        )
    if not plain or kind not in (None, "gzip", "zlib") or len(shape) != len(chunk) or not all(chunk):
        raise UnreadableError(
            f"the array {name} has a format that T5X does not write ({kind})", code="weights.unsupported-format"
        )
    # A chunk is unpacked as a whole, so a chunk larger than its array would take more memory than the shape suggests.
    if any(chunk_length > max(length, 1) for chunk_length, length in zip(chunk, shape, strict=True)):
        raise UnreadableError(f"the array {name} has chunks that are larger than the array", code="weights.damaged")

    def values(chunk_index: tuple[int, ...]) -> np.ndarray:
        file = folder / name / (separator.join(map(str, chunk_index)) or "0")
        try:
            # Incompressible values become a little larger by gzip, hence the additional eighth.
            raw = read_small(file, chunk_bytes + chunk_bytes // 8 + 1024)
            # Unpack at most one byte too many: it makes frombuffer raise, and a bomb of zeros is never unpacked.
            if kind is not None:
                raw = zlib.decompressobj(GZIP_OR_ZLIB).decompress(raw, chunk_bytes + 1)
            return np.frombuffer(raw, DTYPES[dtype]).reshape(chunk)
        except FileNotFoundError as error:
            raise UnreadableError(f"the array {name} lacks {file.name}", code="weights.missing-file") from error
        except (OSError, ValueError, zlib.error) as error:
            raise UnreadableError(f"{name}/{file.name} is damaged", code="weights.damaged") from error

    def part(index: Index) -> np.ndarray:
        # Read only the chunks that overlap `index`, and copy the overlap of each into `out`.
        out = np.empty([span.stop - span.start for span in index], np.float32)
        needed = [
            range(span.start // size, -(-span.stop // size)) if span.stop > span.start else range(0)
            for span, size in zip(index, chunk, strict=True)
        ]
        for chunk_index in itertools.product(*needed):
            begins = [number * size for number, size in zip(chunk_index, chunk, strict=True)]
            spans = [
                (max(span.start, begin), min(span.stop, begin + size))
                for span, begin, size in zip(index, begins, chunk, strict=True)
            ]
            chunk_slices = tuple(
                slice(low - begin, high - begin) for (low, high), begin in zip(spans, begins, strict=True)
            )
            output_slices = tuple(
                slice(low - span.start, high - span.start) for (low, high), span in zip(spans, index, strict=True)
            )
            out[output_slices] = values(chunk_index)[chunk_slices]
        return out

    return LazyArray(shape, part)
