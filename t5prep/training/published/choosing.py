"""Choose the weight files of a model, in the first of four formats that it has, and read their tensors by name."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from t5prep.errors import UsageError
from t5prep.io.model_files import ModelFiles
from t5prep.json_values import MALFORMED_ERRORS
from t5prep.training.published import flax_file, safetensors_file, t5x_file, torch_file
from t5prep.training.published.stored import Index, LazyArray, UnreadableError, unreadable_code

# File → reader, in order of preference: fast and safe formats first. A file may be split into parts, which `FILE.index.json`
# lists.
FORMATS: dict[str, Callable[[Path], dict[str, LazyArray]]] = {
    "model.safetensors": safetensors_file.tensors,
    "pytorch_model.bin": torch_file.tensors,
    "flax_model.msgpack": flax_file.tensors,
    t5x_file.NAME: t5x_file.tensors,
}


# The file by which an unsupported format is recognized → how to convert it once with the libraries that write it.
CONVERT = {
    "tf_model.h5": (
        'with transformers 4, which reads TensorFlow\'s weights (pip install "transformers<5" tensorflow tf-keras torch): '
        'python -c "from transformers import AutoModelForSeq2SeqLM as M; '
        "M.from_pretrained('{0}', from_tf=True).save_pretrained('CONVERTED')\""
    ),
    "_METADATA": (
        "with the program that wrote Orbax's checkpoint (pip install orbax-checkpoint flax), into a folder with the model's "
        'config.json: python -c "import os, orbax.checkpoint as o, flax.serialization as f; '
        "open('flax_model.msgpack', 'wb').write(f.to_bytes(o.StandardCheckpointer().restore(os.path.abspath('{0}'))['params']))\""
    ),
}


def tensors(model: ModelFiles) -> dict[str, LazyArray]:
    """Return the tensors of a model by PyTorch's names. Only the files of the chosen format are downloaded from the Hub.

    Raises UsageError, with the user's name of the model, if there are no weights or they cannot be read.
    """
    for file_name, read in FORMATS.items():
        if file_name in model.names:
            return _read(model, file_name, read)
        if f"{file_name}.index.json" in model.names:
            parts = _parts(model, f"{file_name}.index.json")
            return {
                name: stored
                for part in sorted(set(parts.values()))
                for name, stored in _read(model, part, read).items()
                if parts.get(name, part)
                == part  # a part may hold a copy of a tensor for which the index names another part
            }
    if name := _unread(model):
        raise UsageError(
            f"{model.name} has weights only in {name}, which t5prep cannot read. Convert the weights "
            f"once, {CONVERT[name].format(model.name)}",
            code="weights.unsupported-format",
        )
    raise UsageError(
        f'"{model.name}" contains no weights. Add one of these files: {", ".join(FORMATS)}.', code="weights.not-found"
    )


def tells_shape(model: ModelFiles) -> bool:
    """Check whether `shape` should be called for a model without config.json: it is T5X's, or of an unsupported format.

    In the second case `shape` raises the error that names the conversion.
    """
    return t5x_file.NAME in model.names or _unread(model) is not None


def shape(model: ModelFiles) -> bytes:
    """Return a config.json for a T5X checkpoint, derived from the shapes of its tensors. Raises UsageError."""
    try:
        return json.dumps(t5x_file.shape_of(tensors(model))).encode()
    except UnreadableError as error:
        raise UsageError(
            f"{model.name} has no config.json, and its weights do not reveal the model's shape: {error}. "
            "Add a config.json.",
            code="model.missing-config",
        ) from error


def _unread(model: ModelFiles) -> str | None:
    """Return the weight file of a model in an unsupported format (CONVERT), or None."""
    return next((name for name in CONVERT if {name, f"{name}.index.json"} & model.names), None)


def _parts(model: ModelFiles, index: str) -> dict[str, str]:
    """Return the file of each tensor, by the index file `index`. Raises UsageError if a file is missing."""
    try:
        parts = {str(name): str(file) for name, file in json.loads(model.read(index))["weight_map"].items()}
    except MALFORMED_ERRORS as error:
        raise UsageError(
            f"{model.name}: {index} is damaged ({type(error).__name__}). Fetch the file again.", code="weights.damaged"
        ) from error
    if missing := sorted(set(parts.values()) - model.names):
        raise UsageError(
            f"{model.name} has no {missing[0]}, although {index} lists it. Fetch the model again.",
            code="weights.missing-file",
        )
    return parts


def _read(model: ModelFiles, file: str, read: Callable[[Path], dict[str, LazyArray]]) -> dict[str, LazyArray]:
    path = model.path(file)
    try:
        tensors = read(path)
    except UnreadableError as error:
        raise UsageError(
            f"{file} of {model.name} cannot be read: {error}. Fetch the file again, or use another model.",
            code=error.code,
        ) from error
    except OSError as error:
        raise UsageError(f"{model.name}: {file} cannot be read ({error.strerror}).", code="model.unreadable") from error
    return {name: _wrap_errors(model, file, stored) for name, stored in tensors.items()}


def _wrap_errors(model: ModelFiles, file: str, stored: LazyArray) -> LazyArray:
    """Return the tensor with errors that name the model, for a file that changes before its values are read."""

    def part(index: Index) -> np.ndarray:
        try:
            return stored.read(index)
        except (UnreadableError, OSError) as error:
            raise UsageError(
                f"{file} of {model.name} cannot be read: {error}. Fetch the file again, or use another model.",
                code=unreadable_code(error),
            ) from error

    return LazyArray(stored.shape, part, stored_dtype=stored.stored_dtype)
