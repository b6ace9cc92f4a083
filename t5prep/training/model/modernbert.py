"""Define ModernBERT: its config, read from `config.json`, and its variables with the names of their tensors.

Ettin and mmBERT are ModernBERTs of other sizes, vocabularies and angles of rotation. `pre_norm` computes their layers. Like
`architecture`, this module imports no TensorFlow.
"""

import dataclasses
import math
from collections.abc import Mapping

from t5prep.json_values import JSON
from t5prep.training.model.architecture import ENCODER_ACTIVATIONS, SIZES, EncoderConfig
from t5prep.training.model.entries import (
    FULL,
    SLIDING,
    Entries,
    check_known,
    check_usual,
    fields_of,
    full_every,
    head_of,
    rotation_of,
)
from t5prep.training.model.weight_layout import STDDEV, Layouts, WeightLayout

LAYERS = "t5prep.training.model.pre_norm"
# Field → its name in a config.json.
NAMES = SIZES | {
    "activation": "hidden_activation",
    "layer_norm_epsilon": "norm_eps",
    "dropout_rate": "mlp_dropout",
    "global_every": "global_attn_every_n_layers",
    "window": "local_attention",
    "global_theta": "global_rope_theta",
    "local_theta": "local_rope_theta",
    "pooling": "classifier_pooling",
    "head_activation": "classifier_activation",
}
ACTIVATIONS = (*ENCODER_ACTIVATIONS, "silu")
# Entries that have the same value in all published models: no other value is supported.
USUAL = tuple((f"{part}_bias", False) for part in ("attention", "mlp", "norm", "classifier"))
# Matrix of a layer → the tensor that holds it, the number of its part in the tensor, and the number of parts.
MATRICES = {
    **{name: ("attn.Wqkv", part, 3) for part, name in enumerate(("query", "key", "value"))},
    "attended": ("attn.Wo", 0, 1),
    **{name: ("mlp.Wi", part, 2) for part, name in enumerate(("wide", "gate"))},
    "narrow": ("mlp.Wo", 0, 1),
}


@dataclasses.dataclass(frozen=True)
class ModernBertConfig(EncoderConfig):
    """The numbers that define a ModernBERT's weights and computation; the defaults are ModernBERT base's.

    Layers 0, `global_every`, 2 `global_every`, … attend to all tokens; the others to tokens at most `window // 2` away.
    `global_theta` and `local_theta`: the bases of the angles by which these two kinds of layers rotate queries and keys.
    `pooling`: the input of the head: the mean over the tokens ("mean") or the first token ("cls").
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
    norm: str = "layer"  # the kind of norm: "layer", or "rms", which does not subtract the mean (EuroBERT)
    key_heads: int = 0  # the number of heads of keys and values; 0: as many as heads of queries

    @property
    def split_sizes(self) -> dict[str, int]:
        """Return the sizes of the axes that devices share in equal parts, as in `EncoderConfig`; heads are those of keys."""
        return {**super().split_sizes, "heads": self.key_heads or self.num_heads}

    @property
    def key_width(self) -> int:
        """Return the width of a token's keys, summed over all heads of keys."""
        return self.d_model // self.num_heads * (self.key_heads or self.num_heads)

    @property
    def prefix(self) -> str:
        """Return the prefix of the names of the pretrained model's tensors."""
        return "model."

    @property
    def wide_matrices(self) -> int:
        """Return the number of matrices of a feed-forward part that lead to `d_ff` values: the second is the gate."""
        return 2

    def attended_keys(self, layer: int, length: int) -> int:
        """Return how many of `length` tokens a token attends to at most in layer `layer`."""
        return length if layer % self.global_every == 0 else min(length, 2 * (self.window // 2) + 1)

    @classmethod
    def from_json(cls, config: Entries) -> "ModernBertConfig":
        """Return the config of a parsed `config.json`, of transformers 4 or 5.

        Raises UsageError for an unsupported variant.

        >>> ModernBertConfig.from_json({"hidden_size": 384, "num_attention_heads": 6, "local_rope_theta": 160000}).local_theta
        160000.0
        """
        check_usual(config, USUAL)
        # "cls" is ModernBertConfig's own default, which no published model has.
        values = {"pooling": "cls", **fields_of(config, NAMES)}
        ropes = config.get("rope_parameters") or {}
        rotation_of(config.get("rope_scaling"), 1.0)  # raises UsageError if there is a scaling
        for kind, field in ((FULL, "global_theta"), (SLIDING, "local_theta")):
            values[field], _ = rotation_of(ropes.get(kind), values.get(field, getattr(cls, field)))
        if (kinds := config.get("layer_types")) is not None:
            values["global_every"] = full_every(kinds)
        model_config = cls(**values, **head_of(config))
        check_known(model_config, NAMES, activation=ACTIVATIONS, head_activation=ACTIVATIONS, pooling=("mean", "cls"))
        if model_config.d_model % (2 * model_config.num_heads):
            raise ValueError(
                f"{model_config.d_model} values are not divisible by {model_config.num_heads} heads of pairs"
            )
        return model_config

    def to_json(self) -> dict[str, JSON]:
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


def layouts(config: ModernBertConfig) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order.

    A tensor that holds several matrices (`Wqkv`, `Wi`) is split into one variable for each matrix, as in other encoders.

    >>> layouts(ModernBertConfig())["layers.21.key"].shape
    (768, 768)
    """
    model_layouts, width, classes = Layouts(), config.d_model, len(config.classes)
    # The initial deviation of the matrices whose outputs are added to the residual stream (ModernBertPreTrainedModel).
    late = STDDEV / math.sqrt(2.0 * config.num_layers)
    model_layouts.table("embeddings.word", "model.embeddings.tok_embeddings", config.vocab_size, width)
    model_layouts.norms("embeddings.norm", ("model.embeddings.norm",), width)
    # The embeddings are normed already, so the first layer's attention has no norm.
    add_layers(model_layouts, config, MATRICES, norms=("attn_norm", "mlp_norm"), first_normed=1, late=late)
    model_layouts.norms("final_norm", ("model.final_norm",), width)
    head, stddev = ("masked", STDDEV) if config.masked else ("head", late)
    model_layouts.matrix(f"{head}.dense", "head.dense", width, width, stddev=stddev)
    model_layouts.norms(f"{head}.norm", ("head.norm",), width)
    if config.masked:
        model_layouts.biases("masked.bias", ("decoder",), config.vocab_size)
    else:
        model_layouts.matrix("head.classifier", "classifier", width, classes, stddev=width**-0.5, bias=True)
    return model_layouts


def add_layers(
    model_layouts: Layouts,
    config: ModernBertConfig,
    matrices: Mapping[str, tuple[str, int, int]],
    *,
    norms: tuple[str, str],
    first_normed: int = 0,
    late: float = STDDEV,
) -> None:
    """Add the variables of all layers to `model_layouts`: their matrices, and the norms before attention and feed-forward.

    matrices: see MATRICES. norms: the modules of the two norms. first_normed: the first layer with a norm before attention.
    late: the initial deviation of the matrices whose outputs are added to the residual stream.
    """
    width, hidden, layers = config.d_model, config.d_ff, range(config.num_layers)
    shapes = {"key": (width, config.key_width), "value": (width, config.key_width), "narrow": (hidden, width)}
    shapes |= dict.fromkeys(("wide", "gate"), (width, hidden))
    for number in layers:
        for name, (tensor, part, parts) in matrices.items():
            tensor_name, shape = f"model.layers.{number}.{tensor}", shapes.get(name, (width, width))
            stddev = late if name in ("attended", "narrow") else STDDEV
            model_layouts.matrix(f"layers.{number}.{name}", tensor_name, *shape, stddev=stddev, part=part, parts=parts)
    for name, norm, first in zip(("attention", "feed_forward"), norms, (first_normed, 0), strict=True):
        if norm_tensors := [f"model.layers.{number}.{norm}" for number in layers[first:]]:
            model_layouts.norms(f"layers.{name}_norms", norm_tensors, width, stack=(len(norm_tensors),))
