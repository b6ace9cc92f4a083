"""Define the variables that hold a model's weights, and the position of each Hugging Face tensor in them.

A T5's weights of one shape are stacked over the layers in one variable: `encoder.kv` is [layers, 2, d_model, inner]. A t5-base
thus has 19 variables instead of 282 tensors. The work for each variable (Adafactor's means, an all-reduce, a slot, a
checkpoint entry) is done 19 times. Matrices are stored as [in, out], the transpose of PyTorch's.

An encoder has a variable for each matrix of each layer: with AdamW, the product that computes a gradient on a TPU then also
updates the matrix, 10.9 M cycles instead of 17.5 M for BERT-base (docs/decisions/007-store-encoder-matrices-one-by-one.md).
Its biases and norms are stacked over the layers.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t5prep.training.model.architecture import FAMILIES, Config, EncoderConfig, ModelConfig, family_module

# The names of a head's variables begin so: the head for classes, and the head that fills masks.
HEAD_PREFIXES = ("head.", "masked.")
# The prefix of the tensors of a T5's encoder in a T5ForTokenClassification.
IN_CLASSIFIER = "transformer."


@dataclasses.dataclass(frozen=True)
class WeightLayout:
    """One variable: its shape, the number of leading axes that stack weights (the other axes are one weight), and its tensors.

    `stddev` is the standard deviation of initial values; None for the scales of norms, which are initialized to 1. `tensors`
    are the Hugging Face names of the slices, in the order of the stacked axes. `transposed`: PyTorch stores [out, in]. A
    tensor may hold `parts` weights of one shape along PyTorch's first axis, such as queries, keys and values. This variable is
    then part `part` of the tensor.
    """

    shape: tuple[int, ...]
    stacked_axes: int
    stddev: float | None
    tensors: tuple[str, ...]
    transposed: bool = False
    part: int = 0
    parts: int = 1

    @property
    def decays(self) -> bool:
        """Check whether weight decay applies, as it does to all weights except norms and biases."""
        # The last two names, as in "LayerNorm.weight". Those before may say "norm" of the whole model.
        name = ".".join(self.tensors[0].split(".")[-2:])
        return self.stddev is not None and not any(part in name for part in ("bias", "norm"))


# The initial standard deviation of an encoder's matrices and embeddings (Devlin et al. 2019; transformers, initializer_range).
STDDEV = 0.02
# The variables of a T5's stack that hold several weights of each layer, such as keys and values.
PARTS = frozenset({"norms", "head_norms", "kv", "cross_kv", "out", "wi"})


class Layouts(dict[str, WeightLayout]):
    """A dict of a model's variables by name, in the order in which its methods add them.

    In these methods `tensor` and `tensors` are Hugging Face names without the ending ".weight" or ".bias".
    """

    def table(self, name: str, tensor: str, rows: int, columns: int, *, stddev: float = STDDEV) -> None:
        """Add a table of embeddings, [rows, columns]."""
        self[name] = WeightLayout((rows, columns), 0, stddev, (f"{tensor}.weight",))

    def matrix(
        self,
        name: str,
        tensor: str,
        rows: int,
        columns: int,
        *,
        stddev: float = STDDEV,
        part: int = 0,
        parts: int = 1,
        bias: bool = False,
    ) -> None:
        """Add a matrix, [rows, columns] = [in, out], and with `bias` the variable `NAME_bias`. `part`: see `WeightLayout`."""
        self[name] = WeightLayout((rows, columns), 0, stddev, (f"{tensor}.weight",), True, part, parts)
        if bias:
            self.biases(f"{name}_bias", (tensor,), columns)

    def biases(self, name: str, tensors: Sequence[str], size: int, *, stack: tuple[int, ...] = ()) -> None:
        """Add biases of `size` values, stacked over axes of the sizes `stack`."""
        self[name] = WeightLayout((*stack, size), len(stack), 0.0, tuple(f"{tensor}.bias" for tensor in tensors))

    def norms(
        self, name: str, tensors: Sequence[str], size: int, *, stack: tuple[int, ...] = (), bias: bool = False
    ) -> None:
        """Add scales of norms, stacked over axes of the sizes `stack`, and with `bias` their biases as `NAME_bias`."""
        self[name] = WeightLayout((*stack, size), len(stack), None, tuple(f"{tensor}.weight" for tensor in tensors))
        if bias:
            self.biases(f"{name}_bias", tensors, size, stack=stack)

    def stack(
        self,
        config: ModelConfig,
        stack: str,
        tensors: str,
        *,
        final_norm: str,
        norms: Sequence[str],
        attentions: Sequence[str],
        projections: Sequence[str],
        wide: Sequence[str],
        narrow: str,
        deviations: Mapping[str, float | None],
        biases: str = "",
        head_norms: Sequence[str] = (),
    ) -> None:
        """Add the variables of one stack of a model that writes texts, each stacked over all layers of the stack.

        Args:
            config: The model's config.
            stack: "encoder" or "decoder".
            tensors: The format of a tensor's name, with `{}` for the layer's number and `{}` for the module in the layer.
            final_norm: The name of the norm after the last layer, without ".weight".
            norms: The modules of a layer's norms, in the order of their use.
            attentions: The modules of a layer's attentions: self-attention, then cross-attention if there is one.
            projections: The names in such a module for queries, keys, values and output.
            wide: The modules of the first matrices of the feed-forward part: one, or two with a gate.
            narrow: The module of its last matrix.
            deviations: Initial standard deviations by the name of a variable; "others" is for all other names.
            biases: The module of each layer's own table of relative position biases; "" if layers have none.
            head_norms: The modules of the norms of queries and keys; empty if there are none.
        """
        size, d_kv = config.sizes(stack), config.d_kv
        queries, keys = size.heads * d_kv, size.kv_heads * d_kv
        q, k, v, out = ([f"{module}.{name}" for module in attentions] for name in projections)
        variables: list[tuple[str, Sequence[str], tuple[int, ...]]] = [
            ("relative_bias", [biases] if biases else (), (config.relative_attention_num_buckets, size.heads)),
            ("norms", norms, (size.width,)),
            ("head_norms", head_norms, (d_kv,)),
        ]
        for index, prefix in zip(range(len(attentions)), ("", "cross_"), strict=False):
            source = config.sizes("encoder").width if prefix else size.width
            variables += [
                (f"{prefix}q", [q[index]], (size.width, queries)),
                (f"{prefix}kv", [k[index], v[index]], (source, keys)),
            ]
        variables += [
            ("out", out, (queries, size.width)),
            ("wi", wide, (size.width, size.hidden)),
            ("wo", [narrow], (size.hidden, size.width)),
        ]
        for name, parts, shape in variables:
            several = (len(parts),) if name in PARTS else ()
            names = tuple(tensors.format(layer, module) for layer in range(size.layers) for module in parts)
            deviation = deviations[name] if name in deviations else deviations["others"]
            is_matrix = len(shape) == 2 and name != "relative_bias"
            if name == "norms":
                self[f"{stack}.final_norm"] = WeightLayout((size.width,), 0, deviation, (f"{final_norm}.weight",))
            if names:
                self[f"{stack}.{name}"] = WeightLayout(
                    (size.layers, *several, *shape), 1 + len(several), deviation, names, is_matrix
                )


def weight_layouts(config: Config) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order."""
    if config.model_type in FAMILIES:
        model_layouts: dict[str, WeightLayout] = family_module(config.model_type).layouts(config)
        return model_layouts
    return encoder_layouts(config) if isinstance(config, EncoderConfig) else t5_layouts(config)


def weight_bytes(config: Config) -> int:
    """Return the size in bytes of a model's weights in float32."""
    return 4 * sum(math.prod(layout.shape) for layout in weight_layouts(config).values())


def of_encoder(config: Config) -> dict[str, WeightLayout]:
    """Return the variables of a model's encoder alone, without its head, its decoder and its output embeddings.

    >>> list(of_encoder(ModelConfig(classes=("up", "down"))))[:2]
    ['shared', 'encoder.relative_bias']
    """
    excluded_prefixes = (*HEAD_PREFIXES, "decoder.", "lm_head")
    return {name: layout for name, layout in weight_layouts(config).items() if not name.startswith(excluded_prefixes)}


def of_head(config: Config) -> dict[str, WeightLayout]:
    """Return the variables of a model's head, for classes or for masks; none for a model that writes texts."""
    return {name: layout for name, layout in weight_layouts(config).items() if name.startswith(HEAD_PREFIXES)}


def t5_layouts(config: ModelConfig) -> dict[str, WeightLayout]:
    """Return every variable of a T5, by name, in a fixed order. An encoder with a head has T5ForTokenClassification's tensors.

    Standard deviations are those of Mesh TensorFlow's T5, as in `transformers` (T5PreTrainedModel._init_weights). Only
    `lm_head` differs: it has T5X's 1/sqrt(d_model), because 1.0 without scaled outputs gives logits of about +-sqrt(d_model).

    >>> t5_layouts(ModelConfig())["encoder.kv"].shape
    (6, 2, 512, 512)
    """
    model_layouts, width = Layouts(), config.d_model
    inside = IN_CLASSIFIER if config.classes else ""
    model_layouts.table("shared", f"{inside}shared", config.vocab_size, width, stddev=1.0)
    if not config.tie_word_embeddings:
        model_layouts.table("lm_head", "lm_head", config.vocab_size, width, stddev=width**-0.5)
    _add_stack(model_layouts, config, "encoder", inside)
    if config.classes:
        model_layouts.matrix("head.classifier", "classifier", width, len(config.classes), stddev=width**-0.5, bias=True)
    else:
        _add_stack(model_layouts, config, "decoder", inside)
    return model_layouts


def _add_stack(model_layouts: Layouts, config: ModelConfig, stack: str, inside: str) -> None:
    """Add the variables of `stack`, "encoder" or "decoder"; the names of its tensors begin with `inside`."""
    width = config.d_model
    inner = config.num_heads * config.d_kv  # T5-11B's is 16 times d_model
    self_attention, cross = "0.SelfAttention", ("1.EncDecAttention",) if stack == "decoder" else ()
    last = 1 + len(cross)
    dense, biases = f"{last}.DenseReluDense", f"{self_attention}.relative_attention_bias"
    # T5 does not divide attention scores by sqrt(d_kv). Its initial query matrices are smaller by this factor instead.
    of_queries = (width * config.d_kv) ** -0.5
    deviations = {"norms": None, "q": of_queries, "cross_q": of_queries, "out": inner**-0.5, "wo": config.d_ff**-0.5}
    if not config.bias_in_every_layer:
        first, buckets = f"{inside}{stack}.block.0.layer.{biases}", config.relative_attention_num_buckets
        model_layouts.table(f"{stack}.relative_bias", first, buckets, config.num_heads, stddev=width**-0.5)
    model_layouts.stack(
        config,
        stack,
        f"{inside}{stack}.block.{{}}.layer.{{}}.weight",
        final_norm=f"{inside}{stack}.final_layer_norm",
        norms=[f"{sublayer}.layer_norm" for sublayer in range(last + 1)],
        attentions=(self_attention, *cross),
        projections="qkvo",
        wide=[f"{dense}.wi_0", f"{dense}.wi_1"] if config.gated else [f"{dense}.wi"],
        narrow=f"{dense}.wo",
        deviations={**deviations, "others": width**-0.5},
        biases=biases if config.bias_in_every_layer else "",
    )


# The matrices of a layer, in the order of `Names`: of its attention, and of its feed-forward part.
MATRICES = ("query", "key", "value", "attended", "wide", "narrow")


class Names(NamedTuple):
    """The names of a layer's tensors in a model type. Each follows `layer`, the format of a prefix with the layer's number."""

    layer: str
    attention: tuple[str, str, str, str]  # query, key, value, out
    norms: tuple[str, str]
    feed_forward: tuple[str, str]
    head: tuple[str, str] = ("", "")  # the dense layer and the last matrix of the head, for a type that is not in HEADS


BERT = Names(
    "encoder.layer.{}",
    ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    ("attention.output.LayerNorm", "output.LayerNorm"),
    ("intermediate.dense", "output.dense"),
)
DISTILBERT = Names(
    "transformer.layer.{}",
    ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
    ("sa_layer_norm", "output_layer_norm"),
    ("ffn.lin1", "ffn.lin2"),
)
ALBERT = Names(
    "encoder.albert_layer_groups.0.albert_layers.{}",
    ("attention.query", "attention.key", "attention.value", "attention.dense"),
    ("attention.LayerNorm", "full_layer_layer_norm"),
    ("ffn", "ffn_output"),
)
NAMES = {"distilbert": DISTILBERT, "albert": ALBERT}
PROJECTIONS = {"albert": "encoder.embedding_hidden_mapping_in", "electra": "embeddings_project"}
# Family → the dense layer and the last matrix of the head for classes. A pretrained model never contains the last matrix.
HEADS = {
    "bert": ("bert.pooler.dense", "classifier"),
    "albert": ("albert.pooler", "classifier"),
    "distilbert": ("pre_classifier", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "electra": ("classifier.dense", "classifier.out_proj"),
}
# Family → the dense layer, the norm and the bias of the head that fills masks. Its last matrix is the embeddings.
MASKED_HEADS = {
    "bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions"),
    "albert": ("predictions.dense", "predictions.LayerNorm", "predictions"),
    "distilbert": ("vocab_transform", "vocab_layer_norm", "vocab_projector"),
    "roberta": ("lm_head.dense", "lm_head.layer_norm", "lm_head"),
    "electra": ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"),
}


def encoder_layouts(config: EncoderConfig, names: Names | None = None) -> dict[str, WeightLayout]:
    """Return every variable of an encoder, by name, in a fixed order.

    `names`: the names of the layers' tensors, for a type that is not in NAMES and does not have BERT's names.

    >>> layouts = encoder_layouts(EncoderConfig())
    >>> layouts["layers.11.query"].shape, layouts["layers.qkv_bias"].shape
    ((768, 768), (12, 3, 768))
    """
    family, prefix = config.family, config.prefix.removesuffix(".")
    names = names or NAMES.get(family, BERT)
    layers, width, hidden, narrow = config.own_layers, config.d_model, config.d_ff, config.embedding_width
    model_layouts = Layouts()

    def in_layers(*modules: str) -> tuple[str, ...]:
        return tuple(
            f"{prefix}.{names.layer.format(number)}.{module}" for number in range(layers) for module in modules
        )

    for name, rows in (
        ("word", config.vocab_size),
        ("position", config.max_positions),
        ("token_type", config.segments),
    ):
        if rows:
            model_layouts.table(f"embeddings.{name}", f"{prefix}.embeddings.{name}_embeddings", rows, narrow)
    model_layouts.norms("embeddings.norm", (f"{prefix}.embeddings.LayerNorm",), narrow, bias=True)
    if config.projects:
        model_layouts.matrix("embeddings.projection", f"{prefix}.{PROJECTIONS[family]}", narrow, width, bias=True)
    tensors = (*names.attention, *names.feed_forward)
    shapes = [(width, width)] * 4 + [(width, hidden), (hidden, width)]
    for number in range(layers):
        for name, tensor, shape in zip(MATRICES, tensors, shapes, strict=True):
            model_layouts.matrix(f"layers.{number}.{name}", f"{prefix}.{names.layer.format(number)}.{tensor}", *shape)
    model_layouts.biases("layers.qkv_bias", in_layers(*names.attention[:3]), width, stack=(layers, 3))
    model_layouts.biases("layers.out_bias", in_layers(names.attention[3]), width, stack=(layers,))
    model_layouts.biases("layers.wide_bias", in_layers(names.feed_forward[0]), hidden, stack=(layers,))
    model_layouts.biases("layers.narrow_bias", in_layers(names.feed_forward[1]), width, stack=(layers,))
    model_layouts.norms("layers.norms", in_layers(*names.norms), width, stack=(layers, 2), bias=True)
    if config.masked:
        dense, norm, last = MASKED_HEADS[family]
        model_layouts.matrix("masked.dense", dense, width, narrow, bias=True)
        model_layouts.norms("masked.norm", (norm,), narrow, bias=True)
        model_layouts.biases("masked.bias", (last,), config.vocab_size)
        return model_layouts
    dense, last = HEADS.get(family, names.head)
    if config.objective.target.is_aligned:  # one matrix for all tokens
        last = "classifier"
    else:
        model_layouts.matrix("head.dense", dense, width, width, bias=True)
    model_layouts.matrix("head.classifier", last, width, len(config.classes), bias=True)
    return model_layouts
