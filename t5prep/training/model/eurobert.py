"""Define EuroBERT: its config, read from `config.json`, and its variables with the names of their tensors.

EuroBERT is a Llama whose tokens attend to all others. `pre_norm` computes its layers. Like `architecture`, this module
imports no TensorFlow.
"""

import dataclasses
from typing import ClassVar

from t5prep.json_values import JSON
from t5prep.training.model.architecture import SIZES
from t5prep.training.model.entries import Entries, check_known, check_usual, fields_of, head_of, rotation_of
from t5prep.training.model.modernbert import ACTIVATIONS, ModernBertConfig, add_layers
from t5prep.training.model.weight_layout import Layouts, WeightLayout

LAYERS = "t5prep.training.model.pre_norm"
# Field → its name in a config.json.
NAMES = SIZES | {
    "key_heads": "num_key_value_heads",
    "activation": "hidden_act",
    "layer_norm_epsilon": "rms_norm_eps",
    "dropout_rate": "attention_dropout",
    "pooling": "classifier_pooling",
}
# Entries that have the same value in all published models: no other value is supported.
USUAL = (("attention_bias", False), ("mlp_bias", False))
POOLINGS = ("late", "mean", "bos")
# Each matrix of a layer → its tensor.
MATRICES = {
    **{
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "attended": "self_attn.o_proj",
    },
    **{"wide": "mlp.gate_proj", "gate": "mlp.up_proj", "narrow": "mlp.down_proj"},
}


@dataclasses.dataclass(frozen=True)
class EuroBertConfig(ModernBertConfig):
    """The numbers that define a EuroBERT's weights and computation; the defaults are those of its 210m.

    `key_heads`: the number of heads of keys and values; the heads of queries share them equally. `pooling`: the input of the
    head: each token, with averaged logits ("late"), the mean over the tokens ("mean"), or the first token ("bos").
    """

    fills_masks: ClassVar[bool] = False

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
    def from_json(cls, config: Entries) -> "EuroBertConfig":
        """Return the config of a parsed `config.json`, of transformers 5 or of the models' own code before it.

        Raises UsageError for an unsupported variant.

        >>> EuroBertConfig.from_json({"num_attention_heads": 12, "clf_pooling": "mean", "rope_theta": 10000}).pooling
        'mean'
        """
        check_usual(config, USUAL)
        values = {"pooling": config.get("clf_pooling") or "late", **fields_of(config, NAMES)}
        values.setdefault("key_heads", values.get("num_heads", cls.num_heads))
        rope, base = config.get("rope_parameters") or config.get("rope_scaling"), config.get("rope_theta")
        theta, _ = rotation_of(rope, base or 10_000.0)  # the default of transformers
        model_config = cls(**values, global_theta=theta, **head_of(config))
        check_known(model_config, NAMES, activation=ACTIVATIONS, pooling=POOLINGS)
        width, remainder = divmod(model_config.d_model, model_config.num_heads)
        if (
            remainder
            or width % 2
            or model_config.num_heads % model_config.key_heads
            or config.get("head_dim") not in (None, width)
        ):
            raise ValueError(
                f"{model_config.d_model} values, {model_config.num_heads} heads and {model_config.key_heads} of keys "
                "do not go together"
            )
        return model_config

    def to_json(self) -> dict[str, JSON]:
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
    model_layouts, width = Layouts(), config.d_model
    model_layouts.table("embeddings.word", "model.embed_tokens", config.vocab_size, width)
    matrices = {name: (tensor, 0, 1) for name, tensor in MATRICES.items()}
    add_layers(model_layouts, config, matrices, norms=("input_layernorm", "post_attention_layernorm"))
    model_layouts.norms("final_norm", ("model.norm",), width)
    if not config.objective.target.is_aligned:
        model_layouts.matrix("head.dense", "dense", width, width, bias=True)
    model_layouts.matrix("head.classifier", "classifier", width, len(config.classes), bias=True)
    return model_layouts
