"""Read the shape of a T5 from the `config.json` of a Hugging Face checkpoint, and write it.

T5 1.0 (ReLU, one matrix for input and output embeddings), T5 1.1, FLAN-T5 and mT5 (gated GELU, two matrices), umT5 (mT5
with position biases in every layer) and ByT5 (1.1 with bytes for a vocabulary) are one architecture with a few numbers.
With `classes`, the model is T5's encoder alone, with one matrix from the mean of its outputs to the classes.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from t5prep.errors import UsageError, did_you_mean
from t5prep.train.model import class_labels

MODEL_TYPES = ("t5", "mt5", "umt5")
FEED_FORWARDS = ("relu", "gated-gelu")
# Fields that are in no config.json.
OWN_FIELDS = frozenset({"lora_rank", "lora_alpha", "computed_layers", "computed_decoder_layers"})
# The entry of a config.json that says that a T5ForTokenClassification tells apart whole texts, by the mean over tokens.
POOLED = {"pooling": "mean"}
# No number of a published model is near this: T5-11B's feed-forward layers are 65,536 wide, mT5 has 250,112 pieces.
LARGEST = 1 << 24


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Hold the numbers that define a T5's weights and computation, with the names of `transformers`' T5Config.

    `scale_decoder_outputs` (T5 1.0): the decoder's outputs are divided by sqrt(d_model) before the output embedding.
    `tie_word_embeddings`: logits use the input embedding `shared`; else a separate matrix, `lm_head`.
    `classes`: the names of the classes, in the order of the logits, of an encoder with a head; empty: it writes texts.
    `lora_rank` and `lora_alpha` are of adapters (`model.lora`), which are not part of the model that others read.
    `computed_layers` and `computed_decoder_layers`: the model has all its weights, but only so many layers are computed (0: all);
    `plan` compiles such models.
    """

    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int = 6
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float = 0.1  # Raffel et al. 2020, section 3.1.1
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: Literal["relu", "gated-gelu"] = "relu"
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool = True
    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int = 0
    model_type: Literal["t5", "mt5", "umt5"] = "t5"
    classes: tuple[str, ...] = ()
    lora_rank: int = 0  # 0: no adapters
    lora_alpha: float = 0.0
    computed_layers: int = 0
    computed_decoder_layers: int = 0

    @property
    def inner_dim(self) -> int:
        """Return the width of all heads together: num_heads * d_kv, which need not be d_model."""
        return self.num_heads * self.d_kv

    @property
    def gated(self) -> bool:
        """Check whether the feed-forward layer multiplies two projections (T5 1.1) or has one (T5 1.0)."""
        return self.feed_forward_proj == "gated-gelu"

    def computed(self, stack: str) -> int:
        """Return how many layers of the "encoder" or "decoder" are computed; 0: all."""
        return self.computed_layers if stack == "encoder" else self.computed_decoder_layers

    @property
    def bias_in_every_layer(self) -> bool:
        """Check whether each layer has its own relative position biases (umT5), or all share those of the first."""
        return self.model_type == "umt5"

    def with_classes(self, classes: Sequence[str]) -> "ModelConfig":
        """Return the config of this T5's encoder with a head for classes; it has no matrix of output embeddings."""
        return dataclasses.replace(self, classes=tuple(classes), tie_word_embeddings=True)

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "ModelConfig":
        """Return the config of a parsed `config.json`; a missing entry has the default of the model type.

        Since 5.0, transformers writes `"tie_word_embeddings": true` for every T5, T5 1.1 included, and the true value
        in `scale_decoder_outputs`; older files have it in `tie_word_embeddings`. The published mT5 and umT5 are never
        tied. A checkpoint without `lm_head.weight` is tied whatever its config says: `weights.load_weights` handles
        that.

        Raises UsageError for another architecture.

        >>> ModelConfig.from_json({"model_type": "t5", "tie_word_embeddings": False}).scale_decoder_outputs
        False
        """
        model_type = config.get("model_type")
        if model_type not in MODEL_TYPES:
            hint = did_you_mean(str(model_type), MODEL_TYPES)
            raise UsageError(
                f'The model is of type "{model_type}", and only t5 (T5, T5 1.1, FLAN-T5, ByT5), mt5 and umt5 can be'
                f" trained: choose one of those.{hint}"
            )
        values: dict[str, Any] = dict(MT5_DEFAULTS) if model_type != "t5" else {}
        fields = {field.name for field in dataclasses.fields(cls)} - OWN_FIELDS - {"classes"}
        values |= {name: value for name, value in config.items() if name in fields and value is not None}
        if model_type != "t5":
            values |= {"tie_word_embeddings": False, "scale_decoder_outputs": False}
        else:
            untied = config.get("tie_word_embeddings") is False
            values["scale_decoder_outputs"] = bool(config.get("scale_decoder_outputs", not untied))
            values["tie_word_embeddings"] = values["scale_decoder_outputs"]
        if values.get("feed_forward_proj", "relu") not in FEED_FORWARDS:
            raise UsageError(
                f'The model has feed_forward_proj "{values["feed_forward_proj"]}", and only relu (T5 1.0) and'
                " gated-gelu (T5 1.1, FLAN-T5, mT5, ByT5) are known: choose a model with one of those."
            )
        if isinstance(values.get("eos_token_id"), list):
            values["eos_token_id"] = values["eos_token_id"][0]
        values.setdefault("num_decoder_layers", values.get("num_layers", cls.num_layers))
        made = cls(**values)
        return made.with_classes(class_labels.read(config)) if POOLED.items() <= config.items() else made

    @classmethod
    def read(cls, content: bytes, *, where: object) -> "ModelConfig":
        """Return the config of a `config.json`'s content. Raises UsageError, which names `where`, if it is invalid."""
        try:
            config = cls.from_json(json.loads(content))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"{where} is not the configuration of a model ({error}): fetch it again.") from error
        for field in dataclasses.fields(cls):
            value, least = getattr(config, field.name), 0 if field.name.endswith("_id") else 1
            if field.name in OWN_FIELDS or field.type is not int:
                continue
            if type(value) is not int or not least <= value <= LARGEST:
                raise UsageError(
                    f"{where} says that {field.name} is {value!r}, which no model has: fetch the file again."
                )
        return config

    def to_json(self) -> dict[str, Any]:
        """Return a `config.json` that `transformers` 4 and 5 read as this model, and `from_json` as this config."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if name not in OWN_FIELDS}
        if self.model_type != "t5":
            del values["scale_decoder_outputs"]
        classes = values.pop("classes")
        head = {**class_labels.written(classes), **POOLED} if classes else {}
        return {
            "architectures": [
                f"{self.model_type.upper()}For{'TokenClassification' if head else 'ConditionalGeneration'}"
            ],
            **values,
            **head,
            "is_encoder_decoder": not head,
            "is_gated_act": self.gated,
            "dense_act_fn": "gelu_new" if self.gated else "relu",
            "initializer_factor": 1.0,
            "use_cache": True,
        }


# Defaults of mT5 and umT5 where a config leaves something out (transformers, configuration_mt5.py,
# configuration_umt5.py).
MT5_DEFAULTS = cast(
    dict[str, Any],
    {
        "vocab_size": 250112,
        "d_ff": 1024,
        "num_layers": 8,
        "num_heads": 6,
        "feed_forward_proj": "gated-gelu",
    },
)
