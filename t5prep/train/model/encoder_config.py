"""Read the shape of an encoder with a classification head from its `config.json`, and write it.

BERT, DistilBERT, RoBERTa, ALBERT and ELECTRA's discriminator are one architecture: layers whose norms stand after the
residual sums. They differ in names, in how positions and widths of embeddings are counted, and in the head.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from t5prep.errors import UsageError
from t5prep.train.model import class_labels

MODEL_TYPES = ("bert", "distilbert", "roberta", "albert", "electra")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")

# Field → its name in a config.json; DistilBERT's names are its own.
NAMES = {
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "activation": "hidden_act",
    "max_positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "dropout_rate": "hidden_dropout_prob",
    "pad_token_id": "pad_token_id",
}
DISTILBERT_NAMES = {
    **{name: name for name in ("vocab_size", "activation", "pad_token_id")},
    "d_model": "dim",
    "d_ff": "hidden_dim",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "max_positions": "max_position_embeddings",
    "dropout_rate": "dropout",
}
# What a config.json that leaves something out means, where it is not BERT's (transformers, configuration_*.py).
DEFAULTS: dict[str, dict[str, Any]] = {
    "bert": {},
    "distilbert": {"num_layers": 6, "segments": 0},
    "roberta": {"vocab_size": 50265, "pad_token_id": 1},
    "albert": {
        "vocab_size": 30000,
        "embedding_size": 128,
        "d_model": 4096,
        "d_ff": 16384,
        "num_heads": 64,
        "activation": "gelu_new",
        "dropout_rate": 0.0,
    },
    "electra": {"embedding_size": 128, "d_model": 256, "d_ff": 1024, "num_heads": 4},
}
CLASS_NAMES = {
    "albert": "Albert",
    "bert": "Bert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "roberta": "Roberta",
}


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Hold the numbers that define an encoder's weights and computation; the defaults are BERT base's.

    `embedding_size` may be smaller than `d_model` (ALBERT, ELECTRA); 0 means that both are equal. `segments`: kinds of
    texts in a pair that have embeddings of their own. `classes`: the names of the classes, in the order of the logits.
    """

    vocab_size: int = 30522
    embedding_size: int = 0
    d_model: int = 768
    d_ff: int = 3072
    num_layers: int = 12
    num_heads: int = 12
    activation: str = "gelu"
    max_positions: int = 512
    segments: int = 2
    layer_norm_epsilon: float = 1e-12
    dropout_rate: float = 0.1  # Devlin et al. 2019, appendix A.2: on all layers and attention probabilities
    pad_token_id: int = 0
    model_type: str = "bert"
    classes: tuple[str, ...] = ("LABEL_0", "LABEL_1")
    lora_rank: int = 0  # of adapters beside the matrices (`lora`); 0: none
    lora_alpha: float = 0.0

    @property
    def embedding_width(self) -> int:
        """Return the width of the embeddings, before they are projected to d_model."""
        return self.embedding_size or self.d_model

    @property
    def projects(self) -> bool:
        """Check whether a matrix stands between embeddings and layers: in ALBERT always, in ELECTRA where widths differ."""
        return self.model_type == "albert" or (self.model_type == "electra" and self.embedding_width != self.d_model)

    @property
    def own_layers(self) -> int:
        """Return the number of layers with weights of their own: one in ALBERT, whose layers share them."""
        return 1 if self.model_type == "albert" else self.num_layers

    @property
    def first_position(self) -> int:
        """Return the row of the position embeddings of the first token: RoBERTa counts from the padding's id on."""
        return self.pad_token_id + 1 if self.model_type == "roberta" else 0

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "EncoderConfig":
        """Return the config of a parsed `config.json`. Raises UsageError for a variant that is not computed here.

        >>> EncoderConfig.from_json({"model_type": "roberta", "id2label": {"1": "up", "0": "down"}}).classes
        ('down', 'up')
        """
        model_type = str(config["model_type"])
        for name, usual in (
            ("position_embedding_type", "absolute"),
            ("num_hidden_groups", 1),
            ("inner_group_num", 1),
            ("is_decoder", False),
        ):
            if config.get(name, usual) != usual:
                raise UsageError(f"The model has {name} {config[name]!r}, and only {usual!r} is computed here.")
        names = DISTILBERT_NAMES if model_type == "distilbert" else NAMES
        values = {field: config[name] for field, name in names.items() if config.get(name) is not None}
        values = {**DEFAULTS[model_type], **values, "model_type": model_type, "classes": class_labels.read(config)}
        if values.get("embedding_size") == values.get("d_model", cls.d_model) or model_type in ("bert", "roberta"):
            values["embedding_size"] = 0
        made = cls(**values)
        if made.activation not in ACTIVATIONS:
            raise UsageError(
                f'The model has the activation "{made.activation}", and known are {", ".join(ACTIVATIONS)}.'
            )
        if made.d_model % made.num_heads:
            raise ValueError(f"{made.d_model} values are not divisible by {made.num_heads} heads")
        return made

    @classmethod
    def read(cls, content: bytes, *, where: object) -> "EncoderConfig":
        """Return the config of a `config.json`'s content. Raises UsageError, which names `where`, if it is invalid."""
        try:
            config = cls.from_json(json.loads(content))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UsageError(f"{where} is not the configuration of a model ({error}): fetch it again.") from error
        may_be_zero = ("segments", "embedding_size", "pad_token_id", "lora_rank")
        for field in dataclasses.fields(cls):
            value, least = getattr(config, field.name), 0 if field.name in may_be_zero else 1
            if field.type is int and (type(value) is not int or value < least):
                raise UsageError(
                    f"{where} says that {field.name} is {value!r}, which no model has: fetch the file again."
                )
        return config

    def to_json(self) -> dict[str, Any]:
        """Return a `config.json` that `transformers` reads as this model, and `from_json` as this config."""
        values = {**dataclasses.asdict(self), "embedding_size": self.embedding_width}
        names = DISTILBERT_NAMES if self.model_type == "distilbert" else NAMES
        own = {name: values[field] for field, name in names.items()}
        if self.model_type in ("bert", "roberta"):
            del own["embedding_size"]
        attention = "attention_dropout" if self.model_type == "distilbert" else "attention_probs_dropout_prob"
        head = {"distilbert": "seq_classif_dropout", "albert": "classifier_dropout_prob"}
        return {
            "architectures": [f"{CLASS_NAMES[self.model_type]}ForSequenceClassification"],
            "model_type": self.model_type,
            **own,
            attention: self.dropout_rate,
            head.get(self.model_type, "classifier_dropout"): self.dropout_rate,
            **class_labels.written(self.classes),
            "problem_type": "single_label_classification",
        }
