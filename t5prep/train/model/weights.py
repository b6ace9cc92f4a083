"""Read a published model's weights into our layout, write them as `model.safetensors`, or draw random ones.

Values in float32 stay the same bit for bit: tensors are only stacked and transposed.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t5prep.errors import UsageError
from t5prep.io import atomic_files, model_files
from t5prep.io.model_files import ModelFiles
from t5prep.train.model.architecture import (
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
from t5prep.train.model.weight_layout import IN_CLASSIFIER, OF_HEADS, WeightLayout, of_encoder, weight_layouts
from t5prep.train.published import choosing, safetensors_file, t5x_file
from t5prep.train.published.stored import Index, LazyArray

# The names of a norm's weight and bias in checkpoints that were converted from TensorFlow.
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def classifier_tensors(config: EncoderConfig, tensors: Mapping[str, LazyArray], *, model: str) -> dict[str, LazyArray]:
    """Return the tensors of a classifier by name, without those of its head that the checkpoint lacks.

    A pretrained model has no classification head, and tensors of another head are ignored. `config` must have as many
    classes as the checkpoint's head. Raises UsageError if other tensors are missing.
    """
    bare = not any(name.startswith(config.prefix) for name in tensors)
    layouts = weight_layouts(config)
    head = {tensor for name, layout in layouts.items() if name.startswith(OF_HEADS) for tensor in layout.tensors}
    found = {}
    for name, stored in tensors.items():
        for old, new in OLD_NAMES.items():
            name = name.replace(old, new)
        found[f"{config.prefix}{name}" if bare and name not in head else name] = stored
    wanted = {tensor for layout in layouts.values() for tensor in layout.tensors}
    if missing := sorted(wanted - head - found.keys()):
        raise UsageError(
            f'"{model}" lacks {missing[0]}: pass a checkpoint of {CLASS_NAMES[config.model_type]}, pretrained or with a '
            "classification head."
        )
    return {name: stored for name, stored in found.items() if name in wanted}


WEIGHTS_NAME = "model.safetensors"
# Other names of the input embedding: files written from shared memory keep any one of them.
EMBEDDING_ALIASES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
Array = np.ndarray | LazyArray
# Rows of the embeddings that are compared at once, so that no whole copy is in memory.
COMPARED_ROWS = 4096
# Written by old versions of transformers; no T5 ever used it.
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def load_config(model: str | Path | ModelFiles) -> Config:
    """Return the config of a model: a directory, or a Hub name, of which nothing else is fetched.

    A checkpoint of T5X has none: its tensors say the same. Raises UsageError if there is none or of another kind.
    """
    files = _files(model)
    if "config.json" not in files.names and choosing.tells_shape(files):
        return read_config(choosing.shape(files), where=f"{files.name}/{t5x_file.NAME}")
    if "config.json" not in files.names:
        if "manifest.json" in files.names:
            raise UsageError(f"{files.name} is a prepared dataset. A model is a run, an exported model, or a Hub name.")
        raise UsageError(f'"{files.name}" holds no config.json: pass a directory in Hugging Face layout.')
    return read_config(files.read("config.json"), where=f"{files.name}/config.json")


def load_weights(
    model: str | Path | ModelFiles, *, encoder: bool = False, masked: bool = False
) -> tuple[Config, dict[str, Array]]:
    """Return a model's config and its weights, float32, in our layout (`weight_layout`).

    Values are read when a part of a weight is taken, one tensor after the other, so that a host which takes its part
    holds no more than this part and one tensor. Of a T5, the file settles whether the embeddings are tied: they are
    when it has no `lm_head.weight`. An encoder without a classification head gets a random one; with `masked` its head is the
    one that fills masks. With `encoder`, of any model only its encoder's weights are looked for. Raises UsageError when
    there are no weights, or they are not a model of that config.
    """
    files = _files(model)
    config = load_config(files)
    tensors = choosing.tensors(files)
    if isinstance(config, EncoderConfig):
        config = filling_masks(config) if masked else config
        tensors = classifier_tensors(config, tensors, model=files.name)
    elif config.model_type in FAMILIES:
        tensors = _of_family(config, tensors, model=files.name)
    else:
        config, tensors = _of_t5(config, tensors, model=files.name, encoder=encoder)
    layouts = of_encoder(config) if encoder else weight_layouts(config)
    fresh = {name: layout for name, layout in layouts.items() if not tensors.keys() >= {*layout.tensors}}
    read = {name: _stacked(own, tensors, files.name) for name, own in layouts.items() if name not in fresh}
    return config, {**read, **draw(fresh, seed=0)}


def for_classes(
    config: Config, weights: dict[str, Array], classes: Sequence[str], *, seed: int, target: str = "class"
) -> tuple[Config, dict[str, Array]]:
    """Return a model with these classes and this target; if it had another number or target, its last matrix begins anew.

    A T5 that writes texts gives its encoder, and so does a model that fills masks.
    """
    changed = with_classes(config, classes, target)
    layouts = weight_layouts(changed)
    kept = {name: weights[name] for name in layouts if name in weights}
    if (len(classes), target) != (len(config.classes), config.target):
        kept = {name: value for name, value in kept.items() if name not in ("head.classifier", "head.classifier_bias")}
    return changed, kept | draw({name: own for name, own in layouts.items() if name not in kept}, seed=seed)


def _of_t5(
    config: ModelConfig, tensors: Mapping[str, LazyArray], *, model: str, encoder: bool
) -> tuple[ModelConfig, dict[str, LazyArray]]:
    """Return a T5's config, whose embeddings are tied as the file has them, and its tensors, the input embedding by its name.

    Of an encoder alone, or one with a head, other tensors may be there. Raises UsageError if one lacks, or a T5 has another.
    """
    inside, one_stack = IN_CLASSIFIER if config.classes else "", encoder or bool(config.classes)
    shared = next((name for alias in EMBEDDING_ALIASES if (name := f"{inside}{alias}") in tensors), None)
    known = {*EMBEDDING_ALIASES, "lm_head.weight", UNUSED, *(tensors if one_stack else ())}
    if not one_stack:
        shared = shared or ("lm_head.weight" if "lm_head.weight" in tensors else None)
        tied = "lm_head.weight" not in tensors or shared == "lm_head.weight"
        tied = tied or (config.tie_word_embeddings and _same(tensors, str(shared)))
        config = dataclasses.replace(config, tie_word_embeddings=tied)
    layouts = of_encoder(config) if encoder else weight_layouts(config)
    wanted = {tensor for layout in layouts.values() for tensor in layout.tensors}
    found = {**tensors, **({f"{inside}shared.weight": tensors[shared]} if shared else {})}
    missing, strange = sorted(wanted - found.keys()), sorted(tensors.keys() - known - wanted)
    if missing or strange:
        what = f"lacks {missing[0]}" if missing else f"has {strange[0]}, which no T5 has"
        kinds = (
            "a checkpoint of T5ForConditionalGeneration, MT5ForConditionalGeneration or UMT5ForConditionalGeneration"
        )
        if one_stack:
            kinds = (
                "the whole model that t5prep exported" if config.classes else "a T5, or its encoder (T5EncoderModel)"
            )
        raise UsageError(f'"{model}" {what}: pass {kinds}.')
    return config, found


def _of_family(config: ModelConfig, tensors: Mapping[str, LazyArray], *, model: str) -> dict[str, LazyArray]:
    """Return the tensors of a model of a family that writes texts. Raises UsageError if it lacks one, or has another."""
    named: dict[str, LazyArray] = family_module(config.model_type).named(config, tensors)
    wanted = {tensor for layout in weight_layouts(config).values() for tensor in layout.tensors}
    for what, names in (("lacks", wanted - named.keys()), ("has the unknown", named.keys() - wanted)):
        if names:
            kind = f"{config.title} that writes texts"
            raise UsageError(f'"{model}" {what} {min(names)}: pass a whole checkpoint of a {kind}.')
    return named


def random_weights(config: Config, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Return weights as a model begins, in our layout: normal, of each tensor's own deviation; the same for a seed."""
    return draw(weight_layouts(config), seed=seed)


def draw(layouts: Mapping[str, WeightLayout], *, seed: int) -> dict[str, np.ndarray]:
    """Return random values for variables: normal, of each tensor's own deviation; ones for norms."""
    weights = {}
    for name, layout in layouts.items():
        if layout.stddev is None:
            weights[name] = np.ones(layout.shape, np.float32)
            continue
        drawn = np.empty((len(layout.tensors), *layout.shape[layout.stacked_axes :]), np.float32)
        for tensor, values in zip(layout.tensors, drawn, strict=True):
            # Each tensor has a stream of its own, so that a deeper model begins with the same lower layers.
            part = [layout.part] if layout.parts > 1 else []
            generator = np.random.default_rng([seed, *tensor.encode(), *part])
            generator.standard_normal(dtype=np.float32, out=values)
        weights[name] = (drawn * np.float32(layout.stddev)).reshape(layout.shape)
    return weights


def finite(weights: Mapping[str, Any], name: str) -> np.ndarray:
    """Return the values of one weight. Raises UsageError if they are not finite: nobody could use the copy of such a model."""
    values = np.asarray(weights[name])
    if not np.isfinite(values).all():
        raise UsageError(
            f"the model has values that are not numbers (NaN, infinity) in {name}. Take another checkpoint (--checkpoint)."
        )
    return values


def save_weights(directory: str | Path, config: Config, weights: Mapping[str, Any], *, dtype: str = "float32") -> Path:
    """Write `model.safetensors` in Hugging Face names, whole or not at all, and return its path.

    weights: arrays or variables in our layout; dtype: float32, bfloat16 or float16, to which values are rounded.
    `config.json` is the exporter's: `config.to_json()`. Raises OutputError.
    """
    path = Path(directory) / WEIGHTS_NAME
    write_layouts(path, weight_layouts(config), weights, dtype=dtype)
    return path


def write_layouts(
    path: Path, layouts: Mapping[str, WeightLayout], weights: Mapping[str, Any], *, dtype: str = "float32"
) -> None:
    """Write variables of these layouts as safetensors, whole or not at all. Raises OutputError."""
    shapes, values = _by_tensor(layouts, weights)
    with atomic_files.whole(path) as file:
        safetensors_file.write(file, shapes, values, dtype=dtype)


def _by_tensor(
    layouts: Mapping[str, WeightLayout], weights: Mapping[str, Any]
) -> tuple[dict[str, tuple[int, ...]], Callable[[str], np.ndarray]]:
    """Return the shape of each tensor that these variables are made of, by PyTorch's names, and what gives its values."""
    places: dict[str, list[tuple[str, WeightLayout, int]]] = {}
    for name, layout in layouts.items():
        for row, tensor in enumerate(layout.tensors):
            places.setdefault(tensor, []).append((name, layout, row))

    def shape(layout: WeightLayout) -> tuple[int, ...]:
        own = layout.shape[layout.stacked_axes :]
        first, *others = own[::-1] if layout.transposed else own
        return (layout.parts * first, *others)

    @functools.lru_cache(maxsize=1)  # tensors are written variable by variable
    def variable(name: str) -> np.ndarray:
        return finite(weights, name).astype(np.float32, copy=False)

    def values(tensor: str) -> np.ndarray:
        own = [part_of(*place) for place in sorted(places[tensor], key=lambda place: place[1].part)]
        return np.concatenate(own) if len(own) > 1 else own[0]

    def part_of(name: str, layout: WeightLayout, row: int) -> np.ndarray:
        value = variable(name).reshape(-1, *layout.shape[layout.stacked_axes :])[row]
        return value.T if layout.transposed else value

    return {tensor: shape(first[1]) for tensor, (first, *_) in places.items()}, values


def _files(model: str | Path | ModelFiles) -> ModelFiles:
    return model if isinstance(model, ModelFiles) else model_files.find(model)


def _same(tensors: Mapping[str, LazyArray], shared: str) -> bool:
    """Check whether the output's matrix is equal to the embedding."""
    one, other = tensors[shared], tensors["lm_head.weight"]
    begins = range(0, one.shape[0], COMPARED_ROWS)
    parts = ((slice(begin, begin + COMPARED_ROWS),) for begin in begins)
    return one.shape == other.shape and all(np.array_equal(one.read(part), other.read(part)) for part in parts)


def _stacked(layout: WeightLayout, tensors: Mapping[str, LazyArray], model: str) -> LazyArray:
    """Return one variable, which reads from each tensor of its stack only what a part needs. Raises UsageError."""
    axes = layout.stacked_axes
    weight = layout.shape[axes:]
    rows, *others = weight[::-1] if layout.transposed else weight
    wanted = (layout.parts * rows, *others)
    for tensor in layout.tensors:
        if tensors[tensor].shape != wanted:
            raise UsageError(
                f"{model} has {tensor} of shape {tensors[tensor].shape}, and its config.json says {wanted}: they are not of"
                " one model; fetch both again."
            )

    def read(index: Index) -> np.ndarray:
        own = index[axes:]
        chosen = np.arange(len(layout.tensors)).reshape(layout.shape[:axes])[index[:axes]]
        part = np.empty((chosen.size, *(span.stop - span.start for span in own)), np.float32)
        for row, number in zip(part, chosen.flat, strict=True):
            stored = tensors[layout.tensors[number]].rows(layout.part * rows, rows)
            row[...] = (stored.transposed if layout.transposed else stored).read(own)
        return part.reshape(*chosen.shape, *part.shape[1:])

    return LazyArray(layout.shape, read)
