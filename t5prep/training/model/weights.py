"""Read a published model's weights into our layout (`weight_layout`), write them as `model.safetensors`, or draw random ones.

Float32 values stay the same bit for bit: tensors are only stacked and transposed.
"""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from t5prep.errors import UsageError
from t5prep.io import atomic_files, model_files
from t5prep.io.model_files import ModelFiles
from t5prep.io.progress import list_names
from t5prep.training.model.architecture import (
    CLASS_NAMES,
    FAMILIES,
    Config,
    EncoderConfig,
    ModelConfig,
    family_module,
    filling_masks,
    read_config,
    with_classes,
)
from t5prep.training.model.entries import class_order, names_classes
from t5prep.training.model.weight_layout import HEAD_PREFIXES, IN_CLASSIFIER, WeightLayout, of_encoder, weight_layouts
from t5prep.training.published import choosing, safetensors_file, t5x_file
from t5prep.training.published.stored import Array, Index, LazyArray

WEIGHTS_NAME = "model.safetensors"
# Names of a T5's input embedding. A program that stores shared memory only once keeps any one of them.
EMBEDDING_ALIASES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# Rows of embeddings that are compared at once, so that memory never holds a full copy.
COMPARED_ROWS = 4096
# A tensor that old versions of transformers wrote; no T5 ever used it.
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def load_config(model: str | Path | ModelFiles) -> Config:
    """Return the config of a model: a directory, its files, or a Hub name, of which only the config is downloaded.

    A T5X checkpoint has no config.json, so its config is derived from the shapes of its tensors. Raises UsageError if there is
    no config, or it describes no known model.
    """
    files = _files(model)
    if "config.json" not in files.names and choosing.tells_shape(files):
        return read_config(choosing.shape(files), location=f"{files.name}/{t5x_file.NAME}")
    if "config.json" not in files.names:
        if "manifest.json" in files.names:
            raise UsageError(
                f"{files.name} is a prepared dataset, not a model. Name a run, an exported model or a model "
                "of the Hub.",
                code="model.dataset-folder",
            )
        raise UsageError(
            f'"{files.name}" has no config.json. Name a directory in Hugging Face layout.',
            code="model.missing-config",
        )
    return read_config(files.read("config.json"), location=f"{files.name}/config.json")


def load_weights(
    model: str | Path | ModelFiles,
    *,
    encoder: bool = False,
    masked: bool = False,
    for_classes: bool = False,
    head_seed: int | None = 0,
    say: Callable[[str], object] = str,
) -> tuple[Config, dict[str, Array]]:
    """Return a model's config and its weights, float32, in our layout (`weight_layout`).

    Values are read only when a part of a weight is taken, one tensor after the other. A host that takes its part of the weights
    thus holds no more than this part and one tensor (docs/decisions/017-read-published-weights-in-parts.md). Embeddings of a T5
    are tied if the file has no `lm_head.weight`, whatever the config says.

    Args:
        model: A directory, its files, or a Hub name.
        encoder: Read only the weights of the encoder.
        masked: An encoder's head is the one that fills masks.
        for_classes: Read only the weights of the encoder if the model is a T5 that writes texts.
        head_seed: The seed that draws the tensors of a head if the checkpoint lacks them; None raises UsageError.
        say: Gets a message with the tensors that are drawn, and one with the checkpoint's tensors that are not used.

    Raises:
        UsageError: There are no weights, or they do not fit the config.
    """
    files = _files(model)
    config = load_config(files)
    stored = choosing.tensors(files)
    if isinstance(config, EncoderConfig):
        config = filling_masks(config) if masked else config
        tensors = _of_encoder(config, stored, model=files.name)
    elif config.model_type in FAMILIES:
        tensors = family_module(config.model_type).rename_tensors(config, stored)
    else:
        encoder = encoder or (for_classes and not config.classes)
        config, tensors = _of_t5(config, stored, model=files.name, encoder=encoder)
    layouts = of_encoder(config) if encoder else weight_layouts(config)
    fresh = {
        name: layout
        for name, layout in layouts.items()
        if name.startswith(HEAD_PREFIXES) and not tensors.keys() >= {*layout.tensors}
    }
    read = {name: layout for name, layout in layouts.items() if name not in fresh}
    required_names = {tensor for layout in read.values() for tensor in layout.tensors}
    _check_complete(config, tensors, required_names, model=files.name, encoder=encoder)
    extra = {id(tensors[name]) for name in tensors.keys() - required_names} - {
        id(tensors[name]) for name in required_names
    }
    if unused := sorted(name for name, tensor in stored.items() if id(tensor) in extra):  # by their names in the file
        say(f"Ignoring tensors of {files.name} that this model does not use: {_listed(unused)}.")
    if fresh:
        fresh_names = sorted({tensor for layout in fresh.values() for tensor in layout.tensors})
        if head_seed is None:
            raise UsageError(
                f"{files.name} has no {fresh_names[0]}, so its head is not trained yet. Train the model first: "
                f"t5prep train --model {files.name} --data DATA --out RUN",
                code="weights.untrained-head",
            )
        say(f"Initializing tensors that {files.name} lacks, with seed {head_seed}: {_listed(fresh_names)}.")
    weights: dict[str, Array] = {name: _stacked(layout, tensors, files.name) for name, layout in read.items()}
    return config, {**weights, **draw(fresh, seed=head_seed or 0)}


def for_classes(
    config: Config,
    weights: dict[str, Array],
    classes: Sequence[str],
    *,
    seed: int,
    target: str = "class",
    say: Callable[[str], object] = str,
) -> tuple[Config, dict[str, Array]]:
    """Return the config and weights of a model with a head for `classes` and `target`.

    The head is drawn from `seed` if the model had another number of classes or another target. Otherwise its columns are
    reordered by the names of the classes, if both lists have the same names, and else used by their numbers. `say` gets a message
    about what changes. A T5 that writes texts, or a model that fills masks, keeps only its encoder.
    """
    changed = with_classes(config, classes, target)
    layouts = weight_layouts(changed)
    reused_weights = {name: weights[name] for name in layouts if name in weights}
    last = [name for name in ("head.classifier", "head.classifier_bias") if name in reused_weights]
    if (len(classes), target) != (len(config.classes), config.target):
        for name in last:
            del reused_weights[name]
        if last and names_classes(config.classes):
            say(
                f"Replacing the head for {_listed(config.classes)} by a random head (seed {seed}) for {_listed(classes)}."
            )
    elif (order := class_order(config.classes, classes)) is not None:
        for name in last:
            reused_weights[name] = np.asarray(reused_weights[name])[..., order]
    elif last and names_classes(config.classes) and target != "number":
        pairs = [f"{old} is {new}" for old, new in zip(config.classes, classes, strict=True)]
        say(f"The class names of the model and the data differ. Matching classes by number: {_listed(pairs)}.")
    return changed, reused_weights | draw(
        {name: layout for name, layout in layouts.items() if name not in reused_weights}, seed=seed
    )


# The names of a norm's weight and bias in checkpoints that were converted from TensorFlow → today's names.
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
T5_HEAD = ("classifier.weight", "classifier.bias")  # the head of a T5ForTokenClassification
# Endings of the names of buffers, which are not trained: every program computes them itself.
BUFFERS = ("position_ids", "token_type_ids", "num_batches_tracked", "inv_freq", "masked_bias")
# The name of a tensor in a numbered layer. If the model does not use it, config and weights are of different models.
IN_LAYER = re.compile(r"\b(layers?|block|albert_layers)\.\d+\.")
# Endings of tensors' names in quantized checkpoints (GPTQ, AWQ, bitsandbytes, compressed-tensors, FP8).
QUANTIZED = (
    ".qweight",
    ".qzeros",
    ".scales",
    ".SCB",
    ".absmax",
    ".quant_map",
    ".weight_packed",
    ".weight_scale",
    "_scale_inv",
)


def _of_encoder(config: EncoderConfig, stored: Mapping[str, LazyArray], *, model: str) -> dict[str, LazyArray]:
    """Return the tensors of an encoder's checkpoint by the names in `weight_layouts`, whatever prefix they have in `stored`.

    Raises UsageError if the matrix that fills masks differs from the embeddings.
    """
    layouts = weight_layouts(config)
    (table,) = layouts["embeddings.word"].tensors
    head = {tensor for name, layout in layouts.items() if name.startswith(HEAD_PREFIXES) for tensor in layout.tensors}
    prefix = _prefix(table.removeprefix(config.prefix), stored, model=model, usual=config.prefix)
    renamed_tensors: dict[str, LazyArray] = {}
    for name, tensor in stored.items():
        for old, new in OLD_NAMES.items():
            name = name.replace(old, new)
        if name.startswith(prefix) and (prefix or name not in head):
            name = f"{config.prefix}{name.removeprefix(prefix)}"
        elif prefix.endswith(config.prefix):
            name = name.removeprefix(prefix.removesuffix(config.prefix))
        renamed_tensors[name] = tensor
    if config.masked:
        (bias,) = layouts["masked.bias"].tensors
        root = bias.removesuffix(".bias")
        outputs = [name for name in (f"{root}.decoder.weight", f"{root}.weight") if name in renamed_tensors]
        if outputs and table in renamed_tensors and not _is_tied(renamed_tensors, table, outputs[0]):
            raise UsageError(
                f"{model} predicts masked tokens with {outputs[0]}, which is not tied to its embeddings. "
                "Choose a model with tied embeddings.",
                code="model.untied-embeddings",
            )
        if f"{root}.decoder.bias" in renamed_tensors:
            renamed_tensors.setdefault(bias, renamed_tensors[f"{root}.decoder.bias"])
    return renamed_tensors


def _prefix(anchor: str, stored: Mapping[str, LazyArray], *, model: str, usual: str) -> str:
    """Return the prefix that a checkpoint adds to the names of the model's tensors. `anchor` is one such name.

    If several prefixes occur, "" or the `usual` prefix is returned. Raises UsageError if neither of these occurs then.
    """
    prefixes = sorted(name.removesuffix(anchor) for name in stored if f".{name}".endswith(f".{anchor}"))
    if len(prefixes) > 1 and not {usual, ""} & {*prefixes}:
        raise UsageError(
            f"{model} contains several models ({', '.join(prefixes)}). Name a checkpoint with only one model.",
            code="weights.several-models",
        )
    return prefixes[0] if len(prefixes) == 1 else "" if "" in prefixes else usual


def _of_t5(
    config: ModelConfig, stored: Mapping[str, LazyArray], *, model: str, encoder: bool
) -> tuple[ModelConfig, dict[str, LazyArray]]:
    """Return a T5's config and its tensors by the names in `weight_layouts`.

    The config's `tie_word_embeddings` is set by the tensors in `stored`. With `encoder` the output embeddings are ignored.
    """
    inside = IN_CLASSIFIER if config.classes else ""
    prefix = _prefix("encoder.block.0.layer.0.SelfAttention.q.weight", stored, model=model, usual=inside)
    tensors = {
        f"{inside}{name.removeprefix(prefix)}" if name.startswith(prefix) and name not in T5_HEAD else name: tensor
        for name, tensor in stored.items()
    }
    shared = next((name for alias in EMBEDDING_ALIASES if (name := f"{inside}{alias}") in tensors), None)
    copies = {f"{inside}{alias}" for alias in EMBEDDING_ALIASES}
    if not (encoder or config.classes):
        shared = shared or ("lm_head.weight" if "lm_head.weight" in tensors else None)
        tied = "lm_head.weight" not in tensors or shared == "lm_head.weight"
        tied = tied or (config.tie_word_embeddings and _is_tied(tensors, str(shared), "lm_head.weight"))
        copies |= {"lm_head.weight"} if tied else set()
        config = dataclasses.replace(config, tie_word_embeddings=tied)
    if shared:
        table = tensors[shared]
        tensors = {name: tensor for name, tensor in tensors.items() if name not in copies}
        tensors[f"{inside}shared.weight"] = table
    return config, tensors


def _check_complete(
    config: Config, tensors: Mapping[str, LazyArray], required_names: Set[str], *, model: str, encoder: bool
) -> None:
    """Raise UsageError if weights are missing or quantized, or if `tensors` has a layer that the config does not have."""
    weight_names = {name for name, tensor in tensors.items() if tensor.is_weight}
    missing = sorted(required_names - weight_names)
    rounded = [name for name in missing if name in tensors] + [name for name in tensors if name.endswith(QUANTIZED)]
    if missing and rounded:
        raise UsageError(
            f"{model} is quantized ({rounded[0]} is {tensors[rounded[0]].stored_dtype}). Use its original "
            "checkpoint in float32, float16 or bfloat16.",
            code="weights.quantized",
        )
    if missing:
        raise UsageError(
            f'"{model}" has no tensor {missing[0]}. Use {_kind(config, encoder=encoder)}.',
            code="weights.missing-tensor",
        )
    alone = encoder or bool(config.classes)  # without a decoder
    unused = (name for name in sorted(weight_names - required_names - {UNUSED}) if not (alone and "decoder." in name))
    for name in unused:
        if IN_LAYER.search(name) and not name.endswith(BUFFERS) and np.asarray(tensors[name]).any():
            raise UsageError(
                f"{model} has the tensor {name}, which its config.json does not describe. Fetch both files "
                "again, or merge the adapters if the model has any.",
                code="weights.unknown-tensor",
            )


def _kind(config: Config, *, encoder: bool) -> str:
    """Return the kind of checkpoint that a model of this config is read from, as the end of an error's sentence."""
    if isinstance(config, EncoderConfig):
        return f"a checkpoint of {CLASS_NAMES[config.model_type]}, pretrained or with a classification head"
    if config.model_type in FAMILIES:
        return f"a whole checkpoint of a {config.title} that writes texts"
    if config.classes:
        return "the whole model that t5prep exported"
    if encoder:
        return "a T5, or its encoder (T5EncoderModel)"
    return "a checkpoint of T5ForConditionalGeneration, MT5ForConditionalGeneration or UMT5ForConditionalGeneration"


LISTED = 6  # the most names that a message lists
_listed = functools.partial(list_names, most=LISTED)


def random_weights(config: Config, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Return initial weights of a model, in our layout: normal values with the standard deviations of `weight_layouts`."""
    return draw(weight_layouts(config), seed=seed)


def draw(layouts: Mapping[str, WeightLayout], *, seed: int) -> dict[str, np.ndarray]:
    """Return random values for the variables in `layouts`: normal with each one's standard deviation; 1 for scales of norms.

    The same `seed` gives the same values.
    """
    weights = {}
    for name, layout in layouts.items():
        if layout.stddev is None:
            weights[name] = np.ones(layout.shape, np.float32)
            continue
        samples = np.empty((len(layout.tensors), *layout.shape[layout.stacked_axes :]), np.float32)
        for tensor, values in zip(layout.tensors, samples, strict=True):
            # The seed includes the tensor's name, so a deeper model has the same initial lower layers.
            part = [layout.part] if layout.parts > 1 else []
            generator = np.random.default_rng([seed, *tensor.encode(), *part])
            generator.standard_normal(dtype=np.float32, out=values)
        weights[name] = (samples * np.float32(layout.stddev)).reshape(layout.shape)
    return weights


def finite(weights: Mapping[str, Array], name: str) -> np.ndarray:
    """Return the values of the weight `name`. Raises UsageError if they are not finite, because such a copy is of no use."""
    values = np.asarray(weights[name])
    if not np.isfinite(values).all():
        raise UsageError(
            f"The weight {name} of the model contains NaN or infinity. Choose another checkpoint (--checkpoint).",
            code="weights.nonfinite",
        )
    return values


def save_weights(
    directory: str | Path, config: Config, weights: Mapping[str, Array], *, dtype: str = "float32"
) -> Path:
    """Write `model.safetensors` with Hugging Face names to `directory`, atomically, and return its path. Raises OutputError.

    weights: arrays in our layout; dtype: float32, bfloat16 or float16, to which values are rounded. No config.json is written;
    its content is `config.to_json()`.
    """
    path = Path(directory) / WEIGHTS_NAME
    write_layouts(path, weight_layouts(config), weights, dtype=dtype)
    return path


def write_layouts(
    path: Path, layouts: Mapping[str, WeightLayout], weights: Mapping[str, Array], *, dtype: str = "float32"
) -> None:
    """Write the variables in `layouts` to a safetensors file at `path`, atomically. Raises OutputError."""
    shapes, values = _by_tensor(layouts, weights)
    with atomic_files.open_atomic(path) as file:
        safetensors_file.write(file, shapes, values, dtype=dtype)


def _by_tensor(
    layouts: Mapping[str, WeightLayout], weights: Mapping[str, Array]
) -> tuple[dict[str, tuple[int, ...]], Callable[[str], np.ndarray]]:
    """Return the shape of each tensor in `layouts` by its Hugging Face name, and a function from such a name to its values."""
    places: dict[str, list[tuple[str, WeightLayout, int]]] = {}
    for name, layout in layouts.items():
        for row, tensor in enumerate(layout.tensors):
            places.setdefault(tensor, []).append((name, layout, row))

    def shape(layout: WeightLayout) -> tuple[int, ...]:
        weight_shape = layout.shape[layout.stacked_axes :]
        first, *columns = weight_shape[::-1] if layout.transposed else weight_shape
        return (layout.parts * first, *columns)

    @functools.lru_cache(maxsize=1)  # one is enough, because tensors are written variable by variable
    def variable(name: str) -> np.ndarray:
        return finite(weights, name).astype(np.float32, copy=False)

    def values(tensor: str) -> np.ndarray:
        parts = [part_of(*location) for location in sorted(places[tensor], key=lambda location: location[1].part)]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def part_of(name: str, layout: WeightLayout, row: int) -> np.ndarray:
        value = variable(name).reshape(-1, *layout.shape[layout.stacked_axes :])[row]
        return value.T if layout.transposed else value

    return {tensor: shape(first[1]) for tensor, (first, *_) in places.items()}, values


def _files(model: str | Path | ModelFiles) -> ModelFiles:
    return model if isinstance(model, ModelFiles) else model_files.find(model)


def fingerprint(config: Config, weights: Mapping[str, Array], layouts: Mapping[str, WeightLayout]) -> str:
    """Return a digest of a config, and of embeddings, norms, biases and one row of each matrix among the `layouts`.

    It tells two models apart without reading all weights, which would take minutes for a T5-XXL. Training changes every row
    of a matrix, so one is enough. Of the embeddings it changes only the rows of tokens in its data, so all are read.
    """
    digest = hashlib.sha256(repr(config).encode())
    for name, layout in layouts.items():
        digest.update(name.encode())
        full_slice, (rows, *other_sizes) = slice(None), layout.shape[layout.stacked_axes :]
        parts: list[tuple[slice, ...]] = [(full_slice, slice(0, 1))]
        if not layout.transposed:
            begins = range(0, rows, COMPARED_ROWS)
            parts = [
                (slice(begin, min(begin + COMPARED_ROWS, rows)), *(full_slice for _ in other_sizes)) for begin in begins
            ]
        for part in parts:
            rows_here = weights[name][(*(full_slice,) * layout.stacked_axes, *part)]
            digest.update(np.ascontiguousarray(rows_here, "<f4").tobytes())
    return digest.hexdigest()


def _is_tied(tensors: Mapping[str, LazyArray], table: str, output: str) -> bool:
    """Check whether the tensor `output` has the same values as the embeddings `table`."""
    embedding, output_matrix = tensors[table], tensors[output]
    begins = range(0, embedding.shape[0], COMPARED_ROWS)
    parts = ((slice(begin, begin + COMPARED_ROWS),) for begin in begins)
    return embedding.shape == output_matrix.shape and all(
        np.array_equal(embedding.read(part), output_matrix.read(part)) for part in parts
    )


def _stacked(layout: WeightLayout, tensors: Mapping[str, LazyArray], model: str) -> LazyArray:
    """Return one variable as a lazy array, which reads only the requested part of each tensor.

    Raises UsageError if a tensor of the checkpoint `model` has another shape than the layout.
    """
    axes = layout.stacked_axes
    weight = layout.shape[axes:]
    rows, *columns = weight[::-1] if layout.transposed else weight
    tensor_shape = (layout.parts * rows, *columns)
    for tensor in layout.tensors:
        if tensors[tensor].shape != tensor_shape:
            raise UsageError(
                f"{model} has {tensor} of shape {tensors[tensor].shape}, but its config.json requires "
                f"{tensor_shape}. Fetch both files again.",
                code="weights.shape-mismatch",
            )

    def read(index: Index) -> np.ndarray:
        weight_index = index[axes:]
        chosen = np.arange(len(layout.tensors)).reshape(layout.shape[:axes])[index[:axes]]
        part = np.empty((chosen.size, *(span.stop - span.start for span in weight_index)), np.float32)
        for row, number in zip(part, chosen.flat, strict=True):
            stored = tensors[layout.tensors[number]].rows(layout.part * rows, rows)
            row[...] = (stored.transposed if layout.transposed else stored).read(weight_index)
        return part.reshape(*chosen.shape, *part.shape[1:])

    return LazyArray(layout.shape, read)
