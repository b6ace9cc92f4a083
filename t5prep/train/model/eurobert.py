"""Say what a EuroBERT is: what its `config.json` holds, and its weights with the names of their tensors.

It is a Llama whose tokens attend to all others. `modernbert_layers` computes its layers, and `eurobert_layers` what stands
around them. This module imports no TensorFlow, as `architecture` does not.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from t5prep.errors import UsageError
from t5prep.train.model.architecture import check_usual, head_of
from t5prep.train.model.modernbert import ACTIVATIONS, ModernBertConfig
from t5prep.train.model.weight_layout import STDDEV, WeightLayout

# Field → its name in a config.json.
NAMES = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "key_heads": "num_key_value_heads",
    "activation": "hidden_act",
    "max_positions": "max_position_embeddings",
    "layer_norm_epsilon": "rms_norm_eps",
    "dropout_rate": "attention_dropout",
    "pad_token_id": "pad_token_id",
    "pooling": "classifier_pooling",
}
# What no published model has otherwise, and is computed only so.
USUAL = (("attention_bias", False), ("mlp_bias", False))
POOLINGS = ("late", "mean", "bos")


@dataclasses.dataclass(frozen=True)
class EuroBertConfig(ModernBertConfig):
    """The numbers that define a EuroBERT's weights and computation; the defaults are those of its 210m.

    `key_heads`: so many heads have keys and values of their own; each serves as many heads of queries as the others.
    `pooling`: the head is computed for all tokens and averaged ("late"), or for the mean over them, or the first one ("bos").
    """

    vocab_size: int = 128256
    d_ff: int = 3072
    num_layers: int = 12
    key_heads: int = 12
    activation: str = "silu"
    pad_token_id: int = 128001
    model_type: str = "eurobert"
    global_every: int = 1
    global_theta: float = 250_000.0
    pooling: str = "late"
    norm: str = "rms"

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "EuroBertConfig":
        """Return the config of a parsed `config.json`, of transformers 5 or of the models' own code before it.

        Raises UsageError for a variant that is not computed here.

        >>> EuroBertConfig.from_json({"num_attention_heads": 12, "clf_pooling": "mean", "rope_theta": 10000}).pooling
        'mean'
        """
        check_usual(config, USUAL)
        values = {field: config[name] for field, name in NAMES.items() if config.get(name) is not None}
        values.setdefault("pooling", config.get("clf_pooling") or "late")
        values.setdefault("key_heads", values.get("num_heads", cls.num_heads))
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        check_usual(rope, (("rope_type", "default"), ("type", "default")))
        theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0)  # the default of transformers
        if not (theta > 0 and math.isfinite(theta)):
            raise ValueError(f"{theta} is no base of angles")
        made = cls(**values, global_theta=theta, **head_of(config))
        for field, known in (("activation", ACTIVATIONS), ("pooling", POOLINGS)):
            if getattr(made, field) not in known:
                raise UsageError(
                    f'The model has {NAMES[field]} "{getattr(made, field)}", and known are {", ".join(known)}.'
                )
        width, left = divmod(made.d_model, made.num_heads)
        if left or width % 2 or made.num_heads % made.key_heads or config.get("head_dim") not in (None, width):
            raise ValueError(
                f"{made.d_model} values, {made.num_heads} heads and {made.key_heads} of keys do not go together"
            )
        return made

    def to_json(self) -> dict[str, Any]:
        """Return a `config.json` that `transformers` 5 reads as this model, and `from_json` as this config."""
        return {
            "model_type": self.model_type,
            **{name: getattr(self, field) for field, name in NAMES.items()},
            **dict(USUAL),
            "head_dim": self.d_model // self.num_heads,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.global_theta},
            **self.head_entries,
        }


Config = EuroBertConfig


def layouts(config: EuroBertConfig) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order.

    >>> layouts(EuroBertConfig(key_heads=4))["layers.11.key"].shape
    (768, 256)
    """
    width, hidden, layers = config.d_model, config.d_ff, config.num_layers
    of_keys = width // config.num_heads * config.key_heads
    made: dict[str, WeightLayout] = {}

    def matrix(name: str, tensor: str, rows: int, columns: int, *, bias: bool = False) -> None:
        made[name] = WeightLayout((rows, columns), 0, STDDEV, (f"{tensor}.weight",), transposed=True)
        if bias:
            made[f"{name}_bias"] = WeightLayout((columns,), 0, 0.0, (f"{tensor}.bias",))

    def norms(name: str, tensor: str) -> None:
        tensors = tuple(f"model.layers.{number}.{tensor}.weight" for number in range(layers))
        made[name] = WeightLayout((layers, width), 1, None, tensors)

    made["embeddings.word"] = WeightLayout((config.vocab_size, width), 0, STDDEV, ("model.embed_tokens.weight",))
    for number in range(layers):
        ours, theirs = f"layers.{number}", f"model.layers.{number}"
        for name, tensor, columns in (("query", "q", width), ("key", "k", of_keys), ("value", "v", of_keys)):
            matrix(f"{ours}.{name}", f"{theirs}.self_attn.{tensor}_proj", width, columns)
        matrix(f"{ours}.attended", f"{theirs}.self_attn.o_proj", width, width)
        matrix(f"{ours}.wide", f"{theirs}.mlp.gate_proj", width, hidden)
        matrix(f"{ours}.gate", f"{theirs}.mlp.up_proj", width, hidden)
        matrix(f"{ours}.narrow", f"{theirs}.mlp.down_proj", hidden, width)
    norms("layers.attention_norms", "input_layernorm")
    norms("layers.feed_forward_norms", "post_attention_layernorm")
    made["final_norm"] = WeightLayout((width,), 0, None, ("model.norm.weight",))
    if config.target != "tags":
        matrix("head.dense", "dense", width, width, bias=True)
    matrix("head.classifier", "classifier", width, len(config.classes), bias=True)
    return made
