"""Define DeBERTa-v3: its config, read from `config.json`, and its variables with the names of their tensors.

Its type is "deberta-v2", because DeBERTa-v3 and mDeBERTa-v3 have v2's architecture without its convolution, and differ in
pre-training. `deberta_layers` computes their layers. Like `architecture`, this module imports no TensorFlow.
"""

import dataclasses
import reprlib
from typing import ClassVar

from t5prep.errors import UsageError
from t5prep.json_values import JSON
from t5prep.training.model.architecture import ENCODER_ACTIVATIONS, NAMES, EncoderConfig
from t5prep.training.model.entries import Entries, check_known, check_usual, fields_of, head_of
from t5prep.training.model.weight_layout import Layouts, Names, WeightLayout, encoder_layouts

LAYERS = "t5prep.training.model.deberta_layers"
TENSORS = Names(
    "encoder.layer.{}",
    ("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", "attention.output.dense"),
    ("attention.output.LayerNorm", "output.LayerNorm"),
    ("intermediate.dense", "output.dense"),
    ("pooler.dense", "classifier"),
)
FIELDS = {name: entry for name, entry in NAMES.items() if name != "embedding_size"} | {"buckets": "position_buckets"}
# Entries that have the same value in all published v3 models: no other value is supported.
USUAL = (
    ("relative_attention", True),
    ("position_biased_input", False),
    ("norm_rel_ebd", "layer_norm"),
    ("share_att_key", True),
    ("pooler_hidden_act", "gelu"),
    ("conv_kernel_size", 0),
)
BOTH = ["c2p", "p2c"]  # terms of the scores besides content times content: content to position, and position to content


@dataclasses.dataclass(frozen=True)
class DebertaConfig(EncoderConfig):
    """The numbers that define a DeBERTa-v3's weights and computation; the defaults are DeBERTa-v3 base's.

    `buckets`: the number of embeddings for the distances to either side. The first half stand for one distance each, the
    others for ranges of distances up to `max_positions`, in logarithmic steps.
    """

    fills_masks: ClassVar[bool] = False

    vocab_size: int = 128100
    segments: int = 0
    layer_norm_epsilon: float = 1e-7
    model_type: str = "deberta-v2"
    buckets: int = 256

    @property
    def prefix(self) -> str:
        """Return the prefix of the names of the pretrained model's tensors."""
        return "deberta."

    @property
    def score_scale(self) -> float:
        """Return the factor of attention scores, which are sums of three products."""
        return float((3 * (self.d_model // self.num_heads)) ** -0.5)

    @classmethod
    def from_json(cls, config: Entries) -> "DebertaConfig":
        """Return the config of a parsed `config.json`. Raises UsageError for an unsupported variant.

        >>> DebertaConfig.from_json({"relative_attention": True, "position_biased_input": False, "norm_rel_ebd": "layer_norm",
        ...     "share_att_key": True, "pos_att_type": "p2c|c2p", "hidden_size": 384, "num_attention_heads": 6}).d_model
        384
        """
        check_usual({**dict.fromkeys(("relative_attention", "norm_rel_ebd", "share_att_key"), None), **config}, USUAL)
        kinds = config.get("pos_att_type") or []
        if sorted(kinds.split("|") if isinstance(kinds, str) else kinds) != BOTH:
            raise UsageError(
                f"The model has pos_att_type {reprlib.repr(kinds)}, but t5prep supports only p2c|c2p. Choose "
                "another model.",
                code="model.unsupported-config",
            )
        if config.get("max_relative_positions", -1) not in (-1, config.get("max_position_embeddings", 512)):
            raise UsageError(
                f"The model has max_relative_positions {reprlib.repr(config['max_relative_positions'])}, but "
                "t5prep supports only -1. Choose another model.",
                code="model.unsupported-config",
            )
        if config.get("embedding_size", config.get("hidden_size")) != config.get("hidden_size"):
            raise UsageError(
                f"The model has embedding_size {reprlib.repr(config['embedding_size'])}, but t5prep supports "
                "only a value equal to hidden_size. Choose another model.",
                code="model.unsupported-config",
            )
        model_config = cls(**fields_of(config, FIELDS), **head_of(config))
        check_known(model_config, FIELDS, activation=ENCODER_ACTIVATIONS)
        if (
            model_config.d_model % model_config.num_heads
            or not 2 < model_config.buckets < 2 * model_config.max_positions
        ):
            raise ValueError(f"{model_config.num_heads} heads and {model_config.buckets} buckets")
        return model_config

    def to_json(self) -> dict[str, JSON]:
        """Return a `config.json` that `transformers` reads as this model, and `from_json` as this config."""
        return {
            "model_type": self.model_type,
            **{name: getattr(self, field) for field, name in FIELDS.items()},
            **{name: value for name, value in USUAL if name != "conv_kernel_size"},
            "pos_att_type": BOTH[::-1],
            "max_relative_positions": -1,
            "attention_probs_dropout_prob": self.dropout_rate,
            "pooler_dropout": 0,
            "pooler_hidden_size": self.d_model,
            **self.head_entries,
        }


Config = DebertaConfig


def layouts(config: DebertaConfig) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order.

    >>> layouts(DebertaConfig())["distances"].shape
    (512, 768)
    """
    model_layouts = Layouts(encoder_layouts(config, TENSORS))
    del model_layouts["embeddings.position"]  # the model has embeddings of distances instead
    model_layouts.table("distances", f"{config.prefix}encoder.rel_embeddings", 2 * config.buckets, config.d_model)
    model_layouts.norms("distances.norm", (f"{config.prefix}encoder.LayerNorm",), config.d_model, bias=True)
    return model_layouts
