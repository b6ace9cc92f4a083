"""Define the configs of models, read from `config.json`: T5s, and encoders with a head.

An architecture is a config, the layout of its weights (`weight_layout`), and a function from weights and a batch to
logits (`forward`). Training, evaluation, `plan` and export use only these three. A config with `classes` describes a model
with a head. This module imports no TensorFlow, so that reports and `plan` start at once.

T5 1.0 (ReLU, one matrix for input and output embeddings), T5 1.1, FLAN-T5 and mT5 (gated GELU, two matrices), umT5 (mT5
with position biases in every layer) and ByT5 (1.1 with bytes for a vocabulary) are one architecture with a few numbers.
With `classes`, the model is T5's encoder with one matrix from the mean of its outputs to the classes.

BERT, DistilBERT, RoBERTa (XLM-RoBERTa and CamemBERT are the same), ALBERT and ELECTRA's discriminator are one
architecture: layers that apply a norm after each residual sum. They differ in names, in the counting of positions and
the width of embeddings, and in the head. A model of another architecture has a file of its own (`FAMILIES`). Its config is
a `ModelConfig` if it writes texts, and an `EncoderConfig` otherwise.
"""

import dataclasses
import importlib
import json
import math
import re
import reprlib
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from t5prep.errors import UsageError, did_you_mean
from t5prep.json_values import JSON, MALFORMED_ERRORS, JSONObject
from t5prep.tasks.targets import Target, target_of
from t5prep.training import objectives
from t5prep.training.model.entries import (
    POOLED,
    Entries,
    check_known,
    check_usual,
    class_entries,
    classes_of,
    fields_of,
    head_of,
    head_target,
)

if TYPE_CHECKING:
    import tensorflow as tf

T5_TYPES = ("t5", "mt5", "umt5")
# `feed_forward_proj` → the name of its activation (transformers, configuration_t5.py).
FEED_FORWARDS = {"relu": "relu", "gated-gelu": "gelu_new", "gated-silu": "silu"}
# Fields of configs that no config.json contains.
OWN_FIELDS = frozenset({"target", "lora_rank", "lora_alpha", "computed_layers", "computed_decoder_layers"})
# Limits for a config.json from a stranger, so that a forged one ends in an error and not in a lack of memory.
# No number of a published model is near LARGEST: T5-11B's feed-forward layers are 65,536 wide, mT5 has 250,112 pieces.
LARGEST = 1 << 24
MOST_BYTES = 16 << 20  # of a config.json: enough for the names of half a million classes
MOST_LAYERS = 1_000  # as many as the deepest published model; the names of each layer's tensors take memory


class Traits(NamedTuple):
    """The variants of the layers of a model that writes texts. The defaults are T5's, other values T5Gemma's (`t5gemma`)."""

    merged: bool = (
        False  # the decoder attends to its own tokens and to the input in one softmax, with the same matrices
    )
    normed_after: bool = False  # a norm also follows each part of a layer; scales of norms are stored minus one
    scales_embeddings: bool = False  # embeddings are multiplied by the square root of their width
    own_tables: bool = False  # encoder and decoder have separate embeddings
    score_scale: float = 1.0  # the factor of attention scores
    score_cap: float = 0.0  # the soft cap of attention scores; 0: none
    logit_cap: float = 0.0  # the soft cap of logits; 0: none
    full_every: int = 1  # every n-th layer attends to all tokens, the others to a window
    encoder_window: tuple[int, int] = (0, 0)  # the numbers of tokens before and after a query in its window
    decoder_window: tuple[int, int] = (0, 0)
    left_out: str = ""  # a pattern of modules of transformers' model that are not part of this one
    eoi_token_id: int = -1  # the id whose embedding is a separate variable; -1: none
    # (base of the angles, divisor of positions) of the rotation of queries and keys, for full layers and for others. Empty:
    # no rotation; scores get a bias by distance.
    rotations: tuple[tuple[float, float], ...] = ()

    def is_full(self, number: "int | tf.Tensor") -> "bool | tf.Tensor":
        """Check whether layer `number` attends to all tokens: a bool for an int, a tensor for a tensor."""
        return self.full_every == 1 or (number + 1) % self.full_every == 0

    def table(self, stack: str) -> str:
        """Return the name of the variable with the embeddings of `stack`, "encoder" or "decoder"."""
        return f"{stack}.shared" if self.own_tables else "shared"


class Sizes(NamedTuple):
    """The sizes of the encoder or decoder of a model that writes texts. Heads of queries share `kv_heads` of keys and values."""

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The numbers that define a T5's weights and computation, with the names of `transformers`' T5Config.

    `scale_decoder_outputs` (T5 1.0): the decoder's outputs are divided by sqrt(d_model) before the output embedding.
    `tie_word_embeddings`: logits use the input embedding `shared`; else a separate matrix, `lm_head`.
    `classes`: the class names of an encoder with a head, in the order of the logits; empty: the model writes texts.
    `target`: the kind of target of that head: "class", "tags", "labels" or "number".
    `lora_rank` and `lora_alpha` describe adapters (`model.lora`); an exported config.json does not contain them.
    `computed_layers` and `computed_decoder_layers`: compute only this many layers of a model that has all its weights (0: all).
    `plan` compiles such models, and extends their cycles to all layers.
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
    feed_forward_proj: str = "relu"  # one of FEED_FORWARDS
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool = True
    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int = 0
    model_type: str = "t5"
    classes: tuple[str, ...] = ()
    target: str = "class"
    lora_rank: int = 0  # 0: no adapters
    lora_alpha: float = 0.0
    computed_layers: int = 0
    computed_decoder_layers: int = 0

    @property
    def objective(self) -> objectives.Objective:
        """Return the objective: that of the head's targets, or of texts."""
        return objectives.of(target_of(self.target if self.classes else "text", self.classes))

    @property
    def gated(self) -> bool:
        """Check whether the feed-forward layer multiplies two projections (T5 1.1) or has one (T5 1.0)."""
        return self.feed_forward_proj != "relu"

    @property
    def title(self) -> str:
        """Return the kind of the model, for model cards."""
        return f"T5 (`{self.feed_forward_proj}`)"

    def sizes(self, stack: str) -> Sizes:
        """Return the sizes of `stack`, "encoder" or "decoder"."""
        layers = self.num_layers if stack == "encoder" else self.num_decoder_layers
        return Sizes(layers, self.d_model, self.d_ff, self.num_heads, self.num_heads)

    @property
    def traits(self) -> Traits:
        """Return the variants of the model's layers."""
        return Traits()

    @property
    def split_sizes(self) -> dict[str, int]:
        """Return the sizes of the axes that devices share in equal parts: vocabulary, heads, and width of feed-forward.

        The stacks may differ in size, so these are the largest numbers by which both can be divided.
        """
        encoder, decoder = self.sizes("encoder"), self.sizes("decoder")
        heads, width = math.gcd(encoder.kv_heads, decoder.kv_heads), math.gcd(encoder.hidden, decoder.hidden)
        return {"vocabulary": self.vocab_size, "heads": heads, "width": width}

    def products(self, *, input_length: int, target_length: int) -> int:
        """Return the number of multiplications in one row's forward pass. Scores outside of a window are counted too."""
        encoder, decoder = self.sizes("encoder"), self.sizes("decoder")

        def count_layer_products(sizes: Sizes, length: int) -> int:
            matrices = sizes.width * (
                2 * self.d_kv * (sizes.heads + sizes.kv_heads) + (3 if self.gated else 2) * sizes.hidden
            )
            return length * (matrices + 2 * length * sizes.heads * self.d_kv)

        of_encoder = encoder.layers * count_layer_products(encoder, input_length)
        if self.classes:
            return of_encoder
        inner = decoder.heads * self.d_kv
        cross = (
            input_length * 2 * encoder.width * decoder.kv_heads * self.d_kv + target_length * 2 * input_length * inner
        )
        cross += 0 if self.traits.merged else target_length * 2 * decoder.width * inner
        of_decoder = decoder.layers * (count_layer_products(decoder, target_length) + cross)
        return of_encoder + of_decoder + target_length * decoder.width * self.vocab_size

    def computed(self, stack: str) -> int:
        """Return the number of computed layers of `stack`, "encoder" or "decoder"; 0: all."""
        return self.computed_layers if stack == "encoder" else self.computed_decoder_layers

    @property
    def output_table(self) -> str:
        """Return the name of the variable with the output embeddings, which turn decoder outputs into logits."""
        return "shared" if self.tie_word_embeddings else "lm_head"

    @property
    def bias_in_every_layer(self) -> bool:
        """Check whether each layer has its own relative position biases (umT5). Otherwise all share those of the first layer."""
        return self.model_type == "umt5"

    def with_classes(self, classes: Sequence[str], target: str = "class") -> "ModelConfig":
        """Return the config of this T5's encoder with a head for `classes`, without output embeddings."""
        return dataclasses.replace(self, classes=tuple(classes), target=target, tie_word_embeddings=True)

    @classmethod
    def from_json(cls, config: Entries) -> "ModelConfig":
        """Return the config of a parsed `config.json`; a missing entry has the default of the model type.

        Since 5.0, transformers writes `"tie_word_embeddings": true` for every T5, T5 1.1 included. The real value is in
        `scale_decoder_outputs`; older files have it in `tie_word_embeddings`. The published mT5 and umT5 are never tied. A
        checkpoint without `lm_head.weight` is tied whatever its config says, which `weights.load_weights` handles.

        Raises UsageError for another architecture.

        >>> ModelConfig.from_json({"model_type": "t5", "tie_word_embeddings": False}).scale_decoder_outputs
        False
        """
        model_type = config.get("model_type")
        if model_type not in T5_TYPES:
            hint = did_you_mean(str(model_type), T5_TYPES)
            raise UsageError(
                f'A model of type "{model_type}" cannot be trained.{hint} Choose a t5 (T5, T5 1.1, FLAN-T5, '
                "ByT5), mt5 or umt5.",
                code="model.unknown-type",
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
                "The model has the unsupported feed_forward_proj "
                f"{reprlib.repr(values['feed_forward_proj'])}. Choose a model with relu (T5 1.0), gated-gelu "
                "(T5 1.1, FLAN-T5, mT5, ByT5) or gated-silu (UL2).",
                code="model.unsupported-config",
            )
        if isinstance(values.get("eos_token_id"), list):
            values["eos_token_id"] = values["eos_token_id"][0]
        values.setdefault("num_decoder_layers", values.get("num_layers", cls.num_layers))
        model_config = cls(**values)
        target = head_target(config)
        headed = POOLED.items() <= config.items() or target == "tags"
        return model_config.with_classes(classes_of(config), target) if headed else model_config

    def to_json(self) -> dict[str, JSON]:
        """Return a `config.json` that `transformers` 4 and 5 read as this model, and `from_json` as this config."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if name not in OWN_FIELDS}
        if self.model_type != "t5":
            del values["scale_decoder_outputs"]
        classes = values.pop("classes")
        head: dict[str, JSON] = class_entries(classes) if classes else {}
        if classes and self.target != "tags":
            head |= POOLED | {"problem_type": self.objective.problem}
        return {
            "architectures": [
                f"{self.model_type.upper()}For{'TokenClassification' if head else 'ConditionalGeneration'}"
            ],
            **values,
            **head,
            "is_encoder_decoder": not head,
            "is_gated_act": self.gated,
            "dense_act_fn": FEED_FORWARDS[self.feed_forward_proj],
            "initializer_factor": 1.0,
            "use_cache": True,
        }


# The values of entries that a config of mT5 or umT5 lacks (transformers, configuration_mt5.py and configuration_umt5.py).
MT5_DEFAULTS: JSONObject = {
    "vocab_size": 250112,
    "d_ff": 1024,
    "num_layers": 8,
    "num_heads": 6,
    "feed_forward_proj": "gated-gelu",
}


# Type → the type that has the same layers and tensor names (transformers, modeling_xlm_roberta.py, modeling_camembert.py).
LIKE = {"xlm-roberta": "roberta", "camembert": "roberta"}
ENCODER_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")

# Field → its entry in a config.json. SIZES is common to all encoders except DistilBERT; NAMES adds the rest of BERT's.
SIZES = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "max_positions": "max_position_embeddings",
    "pad_token_id": "pad_token_id",
}
NAMES = SIZES | {
    "embedding_size": "embedding_size",
    "activation": "hidden_act",
    "segments": "type_vocab_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "dropout_rate": "hidden_dropout_prob",
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
# The values of entries that a config.json lacks, if they differ from BERT's (transformers, configuration_*.py).
DEFAULTS: dict[str, JSONObject] = {
    "bert": {},
    "distilbert": {"num_layers": 6, "segments": 0},
    "roberta": {"vocab_size": 50265, "pad_token_id": 1},
    "xlm-roberta": {"pad_token_id": 1},
    "camembert": {"pad_token_id": 1},
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
# Type of another architecture → the module with its `Config` and `layouts`. An encoder's module also names the module that
# computes its layers (`LAYERS`, see `forward`). T5Gemma's module has `rename_tensors`, because its checkpoints vary in names.
FAMILIES = {
    "deberta-v2": "t5prep.training.model.deberta",
    "eurobert": "t5prep.training.model.eurobert",
    "modernbert": "t5prep.training.model.modernbert",
    "t5gemma": "t5prep.training.model.t5gemma",
    "t5gemma2": "t5prep.training.model.t5gemma",
}
TYPES = (*T5_TYPES, *DEFAULTS, *FAMILIES)
CLASS_NAMES = {
    "albert": "Albert",
    "bert": "Bert",
    "camembert": "Camembert",
    "deberta-v2": "DebertaV2",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "eurobert": "EuroBert",
    "modernbert": "ModernBert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}


# Entry of a config.json → the only supported value.
USUAL = (
    ("position_embedding_type", "absolute"),
    ("num_hidden_groups", 1),
    ("inner_group_num", 1),
    ("is_decoder", False),
)


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The numbers that define an encoder's weights and computation; the defaults are BERT base's.

    `embedding_size` may be smaller than `d_model` (ALBERT, ELECTRA); 0 means that both are equal. `segments`: the number of
    token types, one for each text of a pair; 0 for none. `classes`: the class names, in the order of the logits. `target`:
    the kind of the head's target: "class", "tags", "labels" or "number". `masked`: there are no classes, and the head scores
    the whole vocabulary at each position, as in pre-training.
    """

    fills_masks: ClassVar[bool] = True  # whether the head of pre-training is supported

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
    target: str = "class"
    masked: bool = False
    lora_rank: int = 0  # of adapters beside the matrices (`lora`); 0: none
    lora_alpha: float = 0.0

    @property
    def objective(self) -> objectives.Objective:
        """Return the objective: that of the head's targets, or of hidden tokens."""
        return objectives.of(target_of("tokens" if self.masked else self.target, self.classes))

    @property
    def family(self) -> str:
        """Return the type whose layers and names of tensors the model has: "roberta" for an XLM-RoBERTa."""
        return LIKE.get(self.model_type, self.model_type)

    @property
    def prefix(self) -> str:
        """Return the prefix of the names of the pretrained model's tensors."""
        return f"{self.family}."

    @property
    def head_entries(self) -> dict[str, JSON]:
        """Return the entries of a `config.json` that tell `transformers` the kind of head and its classes."""
        name = CLASS_NAMES[self.model_type]
        if self.masked:
            return {"architectures": [f"{name}ForMaskedLM"], "tie_word_embeddings": True}
        objective = self.objective
        problem_entries = {"problem_type": objective.problem} if objective.problem else {}
        return {"architectures": [f"{name}For{objective.head}"], **class_entries(self.classes), **problem_entries}

    @property
    def score_scale(self) -> float:
        """Return the factor of attention scores."""
        return float((self.d_model // self.num_heads) ** -0.5)

    @property
    def key_width(self) -> int:
        """Return the width of a token's keys, summed over all heads of keys."""
        return self.d_model

    @property
    def wide_matrices(self) -> int:
        """Return the number of matrices of a feed-forward part that lead to `d_ff` values: 2 if it has a gate."""
        return 1

    @property
    def split_sizes(self) -> dict[str, int]:
        """Return the sizes of the axes that devices share in equal parts: vocabulary, heads, and width of feed-forward."""
        return {"vocabulary": self.vocab_size, "heads": self.num_heads, "width": self.d_ff}

    def attended_keys(self, layer: int, length: int) -> int:
        """Return how many of `length` tokens a token attends to in layer `layer`."""
        return length

    def products(self, *, input_length: int, target_length: int) -> int:
        """Return the number of multiplications in one row's forward pass, without those of a head for classes."""
        d = self.d_model
        layer_products = 2 * d * (d + self.key_width) + (self.wide_matrices + 1) * d * self.d_ff
        keys = sum(self.attended_keys(layer, input_length) for layer in range(self.num_layers))
        projection = self.embedding_width * d if self.projects else 0
        scores = self.embedding_width * (d + self.vocab_size) if self.masked else 0  # of the vocabulary, for each token
        return input_length * (self.num_layers * layer_products + 2 * keys * d + projection + scores)

    @property
    def embedding_width(self) -> int:
        """Return the width of the embeddings, before they are projected to d_model."""
        return self.embedding_size or self.d_model

    @property
    def projects(self) -> bool:
        """Check whether a matrix stands between embeddings and layers: in ALBERT always, in ELECTRA if widths differ."""
        return self.model_type == "albert" or (self.model_type == "electra" and self.embedding_width != self.d_model)

    @property
    def own_layers(self) -> int:
        """Return the number of layers with weights of their own: one in ALBERT, whose layers share them."""
        return 1 if self.model_type == "albert" else self.num_layers

    @property
    def first_position(self) -> int:
        """Return the row of the position embeddings for the first token. RoBERTa's positions begin after the padding id."""
        return self.pad_token_id + 1 if self.family == "roberta" else 0

    @property
    def longest_input(self) -> int:
        """Return the maximum length of an input in tokens, by the position embeddings."""
        return self.max_positions - self.first_position

    @classmethod
    def from_json(cls, config: Entries) -> "EncoderConfig":
        """Return the config of a parsed `config.json`. Raises UsageError for an unsupported variant.

        >>> EncoderConfig.from_json({"model_type": "roberta", "id2label": {"1": "up", "0": "down"}}).classes
        ('down', 'up')
        """
        model_type = str(config["model_type"])
        check_usual(config, USUAL)
        family = LIKE.get(model_type, model_type)
        names = DISTILBERT_NAMES if family == "distilbert" else NAMES
        values = {**DEFAULTS[model_type], **fields_of(config, names), "model_type": model_type, **head_of(config)}
        if values.get("embedding_size") == values.get("d_model", cls.d_model) or family in ("bert", "roberta"):
            values["embedding_size"] = 0
        model_config = cls(**values)
        check_known(model_config, names, activation=ENCODER_ACTIVATIONS)
        if model_config.d_model % model_config.num_heads:
            raise ValueError(f"{model_config.d_model} values are not divisible by {model_config.num_heads} heads")
        return model_config

    def to_json(self) -> dict[str, JSON]:
        """Return a `config.json` that `transformers` reads as this model, and `from_json` as this config."""
        values = {**dataclasses.asdict(self), "embedding_size": self.embedding_width}
        names = DISTILBERT_NAMES if self.model_type == "distilbert" else NAMES
        entries = {name: values[field] for field, name in names.items()}
        if self.family in ("bert", "roberta"):
            del entries["embedding_size"]
        attention = "attention_dropout" if self.model_type == "distilbert" else "attention_probs_dropout_prob"
        head = {"distilbert": "seq_classif_dropout", "albert": "classifier_dropout_prob"}
        return {
            "model_type": self.model_type,
            **entries,
            attention: self.dropout_rate,
            head.get(self.model_type, "classifier_dropout"): self.dropout_rate,
            **self.head_entries,
        }


Config = ModelConfig | EncoderConfig


def training_flops(config: Config, *, input_length: int, target_length: int) -> int:
    """Return the FLOPs of the matrix products of one row in one training step: forward, and twice that backward.

    >>> round(training_flops(EncoderConfig(), input_length=128, target_length=1) * 8 / 1e9)
    536
    """
    return 3 * 2 * config.products(input_length=input_length, target_length=target_length)


# Integer fields that may be 0, besides ids.
MAY_BE_ZERO = ("segments", "embedding_size", "key_heads")


def _type_of_architecture(entries: Entries) -> str:
    """Return the model type by the class name in `architectures`. A `config.json` of 2019 has no `model_type`.

    Raises ValueError if no class is known.

    >>> _type_of_architecture({"architectures": ["RobertaForMaskedLM"]}), _type_of_architecture({"architectures": ["T5Model"]})
    ('roberta', 't5')
    """
    names = {name: model_type for model_type, name in CLASS_NAMES.items()} | {"T5": "t5", "MT5": "mt5"}
    for architecture in entries.get("architectures") or ():
        kind = re.split("For|Model|LMHead|WithLMHead", str(architecture))[0]
        if kind in names:
            return names[kind]
    raise ValueError('it has no "model_type": write one into it, as in "model_type": "bert"')


def read_config(content: bytes, *, location: object) -> Config:
    """Return the config in the `content` of a `config.json`.

    Raises a UsageError that names `location` if the content is invalid or describes no known model.
    """
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has {len(content):,} bytes, and such a file at most {MOST_BYTES:,}")
        entries = json.loads(content)
        if entries.get("model_type") is None:
            entries["model_type"] = _type_of_architecture(entries)
        model_type = str(entries["model_type"])
        if model_type not in TYPES:
            raise UsageError(
                f'A model of type "{model_type[:80]}" cannot be '
                f"trained.{did_you_mean(model_type[:80], TYPES)} Choose a model of one of these types: "
                f"{', '.join(TYPES)}.",
                code="model.unknown-type",
            )
        config: Config = _class_of(model_type).from_json(entries)
    except MALFORMED_ERRORS as error:
        raise UsageError(
            f"{location} is not a valid model configuration ({str(error)[:200]}). Fetch the file again.",
            code="model.invalid-config",
        ) from error
    for field in dataclasses.fields(config):
        value, of_json = getattr(config, field.name), field.name not in OWN_FIELDS
        least = 0 if field.name.endswith("_id") or field.name in MAY_BE_ZERO else 1
        upper_limit = MOST_LAYERS if field.name.endswith("_layers") else LARGEST
        if field.type is int and of_json and not (type(value) is int and least <= value <= upper_limit):
            raise UsageError(
                f"{location} has an invalid {field.name} ({reprlib.repr(value)}). Fetch the file again.",
                code="model.invalid-config",
            )
    for name in ("layer_norm_epsilon", "dropout_rate"):
        share = getattr(config, name)
        if not (isinstance(share, int | float) and 0 <= share < 1):  # a NaN would make every answer nonsense
            raise UsageError(
                f"{location} has an invalid {name} ({reprlib.repr(share)}). Fetch the file again.",
                code="model.invalid-config",
            )
    return config


def with_classes(config: Config, classes: Sequence[str], target: str = "class") -> Config:
    """Return the config with a head for `classes` and the kind of `target`. A T5 that writes texts becomes its encoder."""
    if isinstance(config, EncoderConfig):
        return dataclasses.replace(config, classes=tuple(classes), target=target, masked=False)
    return config.with_classes(classes, target)


def with_target(config: Config, target: Target) -> Config:
    """Return the config of a model that learns `target`. A T5 that learns texts or hidden tokens is returned unchanged.

    Raises UsageError for an encoder whose head for hidden tokens is not supported.
    """
    if target.classes:
        return with_classes(config, target.classes, target.name)
    return config if isinstance(config, ModelConfig) or target.is_text else filling_masks(config)


def filling_masks(config: EncoderConfig) -> EncoderConfig:
    """Return the config of an encoder with the head of pre-training, which scores the vocabulary at each position.

    Raises UsageError for a family whose head is not supported.
    """
    if not config.fills_masks:
        raise UsageError(
            f"t5prep cannot pre-train a model of type {config.model_type}. Choose a BERT, RoBERTa or ModernBERT.",
            code="model.unsupported-pretraining",
        )
    return dataclasses.replace(config, classes=(), masked=True)


def config_of(fields: Entries) -> Config:
    """Return the config with these `fields`, which were read from JSON: lists become tuples."""
    values = {**fields, "classes": tuple(fields["classes"])}
    return _class_of(values["model_type"])(**values)


def family_module(model_type: str) -> ModuleType:
    """Import and return the module of a model type in `FAMILIES`."""
    return importlib.import_module(FAMILIES[model_type])


def _class_of(model_type: str) -> type[ModelConfig] | type[EncoderConfig]:
    if model_type in FAMILIES:
        config_class: type[ModelConfig] | type[EncoderConfig] = family_module(model_type).Config
        return config_class
    return ModelConfig if model_type in T5_TYPES else EncoderConfig
