"""Say what a ModernBERT is: what its `config.json` holds, and its weights with the names of their tensors.

Ettin and mmBERT are ModernBERTs of other sizes, vocabularies and angles of rotation. `modernbert_layers` computes them. This
module imports no TensorFlow, as `architecture` does not.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from t5prep.errors import UsageError
from t5prep.train.model.architecture import ENCODER_ACTIVATIONS, EncoderConfig, check_usual, head_of
from t5prep.train.model.weight_layout import STDDEV, WeightLayout

# Field → its name in a config.json.
NAMES = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "activation": "hidden_activation",
    "max_positions": "max_position_embeddings",
    "layer_norm_epsilon": "norm_eps",
    "dropout_rate": "mlp_dropout",
    "pad_token_id": "pad_token_id",
    "global_every": "global_attn_every_n_layers",
    "window": "local_attention",
    "global_theta": "global_rope_theta",
    "local_theta": "local_rope_theta",
    "pooling": "classifier_pooling",
    "head_activation": "classifier_activation",
}
ACTIVATIONS = (*ENCODER_ACTIVATIONS, "silu")
# What no published model has otherwise, and is computed only so.
USUAL = tuple((f"{part}_bias", False) for part in ("attention", "mlp", "norm", "classifier"))
FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers, in configs of transformers 5


@dataclasses.dataclass(frozen=True)
class ModernBertConfig(EncoderConfig):
    """The numbers that define a ModernBERT's weights and computation; the defaults are ModernBERT base's.

    Every `global_every`-th layer, from the first on, attends to all tokens; the others to those at most `window // 2` away.
    `global_theta` and `local_theta`: the bases of the angles by which the two kinds rotate queries and keys.
    `pooling`: the head reads the mean over the tokens, or the first token ("cls").
    """

    vocab_size: int = 50368
    d_ff: int = 1152
    num_layers: int = 22
    max_positions: int = 8192
    segments: int = 0
    layer_norm_epsilon: float = 1e-5
    dropout_rate: float = 0.0
    pad_token_id: int = 50283
    model_type: str = "modernbert"
    global_every: int = 3
    window: int = 128
    global_theta: float = 160_000.0
    local_theta: float = 10_000.0
    pooling: str = "mean"
    head_activation: str = "gelu"
    norm: str = "layer"  # what its layers norm by: with the mean taken off, or "rms"

    @property
    def heads_of_keys(self) -> int:
        """Return how many heads have keys and values of their own."""
        return int(getattr(self, "key_heads", self.num_heads))

    @property
    def prefix(self) -> str:
        """Return what the names of tensors of the pretrained model begin with."""
        return "model."

    @property
    def wide_matrices(self) -> int:
        """Return how many matrices a feed-forward part has before the last one: one is the gate."""
        return 2

    def attended_keys(self, layer: int, length: int) -> int:
        """Return how many of `length` tokens each one attends to in a layer, at most."""
        return length if layer % self.global_every == 0 else min(length, 2 * (self.window // 2) + 1)

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "ModernBertConfig":
        """Return the config of a parsed `config.json`, of transformers 4 or 5.

        Raises UsageError for a variant that is not computed here.

        >>> ModernBertConfig.from_json({"hidden_size": 384, "num_attention_heads": 6, "local_rope_theta": 160000}).local_theta
        160000.0
        """
        check_usual(config, USUAL)
        values = {field: config[name] for field, name in NAMES.items() if config.get(name) is not None}
        values.setdefault("pooling", "cls")  # ModernBertConfig's own default, which no published model has
        ropes = config.get("rope_parameters") or {}
        for rope in (*ropes.values(), config.get("rope_scaling") or {}):
            check_usual(rope, (("rope_type", "default"), ("type", "default"), ("partial_rotary_factor", 1.0)))
        for kind, field in ((FULL, "global_theta"), (SLIDING, "local_theta")):
            theta = float((ropes.get(kind) or {}).get("rope_theta") or values.get(field, getattr(cls, field)))
            if not (theta > 0 and math.isfinite(theta)):
                raise ValueError(f"{theta} is no base of angles")
            values[field] = theta
        if (kinds := config.get("layer_types")) is not None:
            values["global_every"] = _full_every(kinds)
        made = cls(**values, **head_of(config))
        for field, known in (
            ("activation", ACTIVATIONS),
            ("head_activation", ACTIVATIONS),
            ("pooling", ("mean", "cls")),
        ):
            if getattr(made, field) not in known:
                raise UsageError(
                    f'The model has {NAMES[field]} "{getattr(made, field)}", and known are {", ".join(known)}.'
                )
        if made.d_model % (2 * made.num_heads):
            raise ValueError(f"{made.d_model} values are not divisible by {made.num_heads} heads of pairs")
        return made

    def to_json(self) -> dict[str, Any]:
        """Return a `config.json` that `transformers` 4 and 5 read as this model, and `from_json` as this config."""
        dropouts = ("embedding_dropout", "attention_dropout", "classifier_dropout")
        return {
            "model_type": self.model_type,
            **{name: getattr(self, field) for field, name in NAMES.items()},
            **dict.fromkeys(dropouts, self.dropout_rate),
            **dict(USUAL),
            **self.head_entries,
        }


Config = ModernBertConfig


def _full_every(kinds: Any) -> int:
    """Return n where every n-th layer, from the first on, is a full one. Raises UsageError for another order."""
    for every in range(1, len(kinds) + 1):
        if list(kinds) == [SLIDING if number % every else FULL for number in range(len(kinds))]:
            return every
    raise UsageError(
        f"The model's layer_types are {', '.join(map(str, kinds))[:80]}, and computed here is {FULL} in every n-th layer,"
        f" from the first on, and {SLIDING} in the others."
    )


def layouts(config: ModernBertConfig) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order.

    Matrices that one tensor holds (`Wqkv`, `Wi`) are variables of their own, as those of other encoders.

    >>> layouts(ModernBertConfig())["layers.21.key"].shape
    (768, 768)
    """
    width, hidden, layers = config.d_model, config.d_ff, config.num_layers
    late = STDDEV / math.sqrt(2.0 * layers)  # of what is added to the residual stream (ModernBertPreTrainedModel)
    made = {
        "embeddings.word": WeightLayout(
            (config.vocab_size, width), 0, STDDEV, ("model.embeddings.tok_embeddings.weight",)
        )
    }

    def norms(name: str, tensors: list[str]) -> None:
        if tensors:
            made[name] = WeightLayout((len(tensors), width), 1, None, tuple(tensors))

    def matrix(name: str, tensor: str, shape: tuple[int, int], stddev: float, part: int = 0, parts: int = 1) -> None:
        made[name] = WeightLayout(shape, 0, stddev, (f"{tensor}.weight",), transposed=True, part=part, parts=parts)

    made["embeddings.norm"] = WeightLayout((width,), 0, None, ("model.embeddings.norm.weight",))
    for number in range(layers):
        ours, theirs = f"layers.{number}", f"model.layers.{number}"
        for part, name in enumerate(("query", "key", "value")):
            matrix(f"{ours}.{name}", f"{theirs}.attn.Wqkv", (width, width), STDDEV, part, 3)
        matrix(f"{ours}.attended", f"{theirs}.attn.Wo", (width, width), late)
        for part, name in enumerate(("wide", "gate")):
            matrix(f"{ours}.{name}", f"{theirs}.mlp.Wi", (width, hidden), STDDEV, part, 2)
        matrix(f"{ours}.narrow", f"{theirs}.mlp.Wo", (hidden, width), late)
    # The embeddings are normed already, so the first layer's attention has no norm.
    norms("layers.attention_norms", [f"model.layers.{number}.attn_norm.weight" for number in range(1, layers)])
    norms("layers.feed_forward_norms", [f"model.layers.{number}.mlp_norm.weight" for number in range(layers)])
    made["final_norm"] = WeightLayout((width,), 0, None, ("model.final_norm.weight",))
    if config.masked:
        matrix("masked.dense", "head.dense", (width, width), STDDEV)
        made["masked.norm"] = WeightLayout((width,), 0, None, ("head.norm.weight",))
        made["masked.bias"] = WeightLayout((config.vocab_size,), 0, 0.0, ("decoder.bias",))
        return made
    matrix("head.dense", "head.dense", (width, width), late)
    made["head.norm"] = WeightLayout((width,), 0, None, ("head.norm.weight",))
    matrix("head.classifier", "classifier", (width, len(config.classes)), width**-0.5)
    made["head.classifier_bias"] = WeightLayout((len(config.classes),), 0, 0.0, ("classifier.bias",))
    return made
