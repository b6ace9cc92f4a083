"""Read from `modules.json`, beside an encoder, how sentence-transformers makes one vector of a text: pooling, matrices, length."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence

import numpy as np

from t5prep.errors import UsageError
from t5prep.io.model_files import MODULES, ModelFiles
from t5prep.json_values import MALFORMED_ERRORS, JSONObject
from t5prep.tasks.example import Example, Part, Protected
from t5prep.training.model.entries import Entries
from t5prep.training.published import choosing

# Files with the maximum length of a text, in the order of preference. The first versions of sentence-transformers named the
# file by the type of the model; new models of any type have the first one.
LENGTHS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# The pooling of sentence-transformers 6 → the value of --pooling.
POOLINGS = {"cls": "first", "mean": "mean"}
# The boolean entry of earlier versions → its name in version 6.
OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
LONGEST = 1 << 20  # tokens; transformers writes 10^30 for a tokenizer without a limit, so larger values are no limit
LEAST_NORM = 1e-12  # the smallest divisor when a vector is normalized (torch.nn.functional.normalize)


@dataclasses.dataclass(frozen=True)
class Dense:
    """A layer after pooling: its matrix, float32[in, out], its bias, float32[out], and the name of its activation."""

    matrix: np.ndarray
    bias: np.ndarray
    activation: str

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Return the outputs, float32[..., out], for `vectors`, float32[..., in]."""
        outputs: np.ndarray = ACTIVATIONS[self.activation](vectors @ self.matrix + self.bias)
        return outputs


def normalize(vectors: np.ndarray) -> np.ndarray:
    """Return vectors, float[..., width], divided by their Euclidean norms."""
    unit_vectors: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), LEAST_NORM)
    return unit_vectors


@dataclasses.dataclass(frozen=True)
class SentenceRecipe:
    """The steps by which a model's own files make one vector of a text.

    `pooling`: "first" or "mean"; "" if the pooling is not supported. `after_pooling`: the layers in their order, None for a
    division by the norm. `length`: the maximum tokens of a text; 0 if the files do not say. `lowercase` and `prompt` change
    the text first. `unsupported_steps`: the names of steps that are not supported here.
    """

    pooling: str
    after_pooling: tuple[Dense | None, ...] = ()
    length: int = 0
    lowercase: bool = False
    prompt: str = ""
    unsupported_steps: tuple[str, ...] = ()

    def words(self) -> str:
        """Return the steps in words."""
        steps = [f"{self.pooling} pooling" if self.pooling else "", *self.unsupported_steps]
        steps += ["Normalize" if step is None else "Dense" for step in self.after_pooling]
        texts = ["lowercase" if self.lowercase else "", f'the prompt "{self.prompt}"' if self.prompt else ""]
        return ", ".join(step for step in (*texts, *steps) if step)

    @property
    def has_matrices(self) -> bool:
        """Check whether a Dense layer follows pooling."""
        return any(step for step in self.after_pooling)

    def width(self, pooled: int) -> int:
        """Return the width of a text's vector after all steps; `pooled` is the width after pooling."""
        return next((int(step.matrix.shape[1]) for step in reversed(self.after_pooling) if step), pooled)

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """Return the vectors of texts, float32, after the steps that follow pooling."""
        for step in self.after_pooling:
            vectors = normalize(vectors) if step is None else step(vectors)
        return vectors

    def prepare(self, example: Example) -> Example:
        """Return the example with its text in lower case and the prompt in front, if the recipe has these steps."""
        is_text = isinstance(example.inputs, str)
        parts: Sequence[Part] = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
        new_parts = [part.lower() if isinstance(part, str) and self.lowercase else part for part in parts]
        if self.prompt and new_parts and isinstance(new_parts[0], str | Protected):
            first = new_parts[0].text if isinstance(new_parts[0], Protected) else new_parts[0]
            new_parts[0] = f"{self.prompt}{first}"
        inputs = str(new_parts[0]) if is_text else tuple(new_parts)
        return dataclasses.replace(example, inputs=inputs)

    def identity(self) -> JSONObject:
        """Return the steps, and a digest of the layers, as JSON: recipes with equal JSON give equal vectors."""
        digest = hashlib.sha256()
        for step in self.after_pooling:
            if step:
                digest.update(np.ascontiguousarray(step.matrix).tobytes() + step.bias.tobytes())
        return {"steps": self.words(), "weights": digest.hexdigest()}


def read(files: ModelFiles) -> SentenceRecipe | None:
    """Return the recipe in a model's `modules.json`; None without that file. Raises UsageError if a file is damaged."""
    if MODULES not in files.names:
        return None
    try:
        return _read(files)
    except MALFORMED_ERRORS as error:
        raise UsageError(
            f"{files.name}: {MODULES} or a file that it lists for sentence-transformers is damaged "
            f"({str(error)[:80]}). Fetch the model again.",
            code="model.invalid-config",
        ) from error


def _read(files: ModelFiles) -> SentenceRecipe:
    pooling, unsupported_steps = "", []
    steps: list[Dense | None] = []
    for module in json.loads(files.read(MODULES)):
        kind, path = str(module["type"]).rpartition(".")[2], str(module.get("path", "")).strip("/")
        config = _config(files, f"{path}/config.json")
        if kind == "Transformer" and not path:
            continue
        if kind == "Dropout":
            continue  # it does nothing outside of training
        if kind == "Pooling" and not pooling:
            modes = config.get("pooling_mode")
            modes = [mode for key, mode in OLD_POOLINGS.items() if config.get(key)] if modes is None else modes
            modes = [modes] if isinstance(modes, str) else list(modes) or ["mean"]
            pooling = POOLINGS.get(str(modes[0]), "") if len(modes) == 1 else ""
            unsupported_steps += [] if pooling else [f"pooling by {' and '.join(map(str, modes))}"]
            unsupported_steps += [] if config.get("include_prompt", True) else ["pooling without the prompt"]
        elif kind == "Normalize" and pooling:
            steps.append(None)
        elif kind == "Dense" and pooling and _is_of_texts(config) and _activation(config) in ACTIVATIONS:
            steps.append(_dense(files, path, config))
        else:
            unsupported_steps.append(kind)
    sentence_config = next((_config(files, name) for name in LENGTHS if name in files.names), {})
    words = _config(files, "tokenizer_config.json")
    length = sentence_config.get("max_seq_length") or words.get("model_max_length") or 0
    prompts = _config(files, "config_sentence_transformers.json")
    prompt = dict(prompts.get("prompts") or {}).get(prompts.get("default_prompt_name")) or ""
    return SentenceRecipe(
        pooling=pooling,
        after_pooling=tuple(steps),
        length=int(length) if 0 < length < LONGEST else 0,
        lowercase=sentence_config.get("do_lower_case") is True,
        prompt=str(prompt),
        unsupported_steps=tuple(unsupported_steps),
    )


def _is_of_texts(config: Entries) -> bool:
    return all(config.get(key) in (None, "sentence_embedding") for key in ("module_input_name", "module_output_name"))


def _activation(config: Entries) -> str:
    """Return the name of a Dense layer's activation without its module."""
    return str(config.get("activation_function") or "torch.nn.Identity").rpartition(".")[2]


def _dense(files: ModelFiles, path: str, config: Entries) -> Dense:
    names = frozenset(name.removeprefix(f"{path}/") for name in files.names if name.startswith(f"{path}/"))
    tensors = choosing.tensors(ModelFiles(f"{files.name}/{path}", names, lambda file: files.path(f"{path}/{file}")))
    matrix = np.asarray(tensors["linear.weight"])
    bias = np.asarray(tensors["linear.bias"]) if config.get("bias", True) else np.zeros(len(matrix), np.float32)
    if matrix.shape != (config["out_features"], config["in_features"]) or bias.shape != matrix.shape[:1]:
        raise ValueError(f"{path} has a matrix of {matrix.shape}")
    return Dense(np.ascontiguousarray(matrix.T), bias, _activation(config))


def _config(files: ModelFiles, name: str) -> Entries:
    return dict(json.loads(files.read(name))) if name in files.names else {}
