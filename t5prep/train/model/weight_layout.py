"""Define the variables that hold a model's weights, and the place of each Hugging Face tensor in them.

A T5's weights of one shape are stacked over the layers in one variable: `encoder.kv` is [layers, 2, d_model, inner]. So a
t5-base has 19 variables instead of 282 tensors, and the work for each variable (Adafactor's means, an all-reduce, a
slot, a checkpoint entry) is done 19 times. Matrices are stored as [in, out], the transpose of PyTorch's.

Each matrix of an encoder's layer is a variable of its own, because with AdamW a TPU then updates it in the very product
that makes its gradient; its biases and norms are stacked over the layers.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from t5prep.train.model.architecture import FAMILIES, Config, EncoderConfig, ModelConfig, family_module

# What the names of a head's variables begin with: one for classes, or the one that fills masks.
OF_HEADS = ("head.", "masked.")
# What the tensors' names of an encoder with a head begin with.
IN_CLASSIFIER = "transformer."


@dataclasses.dataclass(frozen=True)
class WeightLayout:
    """One variable: its shape, how many leading axes stack weights (the rest is one weight), and its tensors.

    `stddev` is None for the scales of norms that begin as ones. `tensors` are the Hugging Face names of the slices in
    the order of the stacked axes; `transposed` is true if PyTorch stores [out, in]. A tensor may hold `parts` weights of
    one shape, one after the other along PyTorch's first axis (queries, keys and values): this variable is number `part`.
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
        """Check whether weight decay applies: not to norms, nor to biases."""
        return self.stddev is not None and not any(part in self.tensors[0] for part in ("bias", "norm"))


def weight_layouts(config: Config) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order."""
    if config.model_type in FAMILIES:
        made: dict[str, WeightLayout] = family_module(config.model_type).layouts(config)
        return made
    return encoder_layouts(config) if isinstance(config, EncoderConfig) else t5_layouts(config)


def of_encoder(config: Config) -> dict[str, WeightLayout]:
    """Return the variables of a model's encoder alone, without its head, its decoder and its output embeddings.

    >>> list(of_encoder(ModelConfig(classes=("up", "down"))))[:2]
    ['shared', 'encoder.relative_bias']
    """
    others = (*OF_HEADS, "decoder.", "lm_head")
    return {name: layout for name, layout in weight_layouts(config).items() if not name.startswith(others)}


def t5_layouts(config: ModelConfig) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order.

    Standard deviations are those of Mesh TensorFlow's T5, as in `transformers` (T5PreTrainedModel._init_weights),
    except for `lm_head`: T5X's 1/sqrt(d_model), because 1.0 without scaled outputs begins at logits of +-sqrt(d_model).

    >>> t5_layouts(ModelConfig())["encoder.kv"].shape
    (6, 2, 512, 512)
    """
    embedding = (config.vocab_size, config.d_model)
    if config.classes:
        return _classifier_layouts(config)
    layouts = {"shared": WeightLayout(embedding, 0, 1.0, ("shared.weight",))}
    if not config.tie_word_embeddings:
        layouts["lm_head"] = WeightLayout(embedding, 0, config.d_model**-0.5, ("lm_head.weight",))
    layouts |= dict(_stack(config, "encoder", config.num_layers))
    layouts |= dict(_stack(config, "decoder", config.num_decoder_layers))
    return layouts


def _classifier_layouts(config: ModelConfig) -> dict[str, WeightLayout]:
    """Return the variables of an encoder with a head, whose tensors have the names of T5ForTokenClassification."""
    width, classes = config.d_model, len(config.classes)
    layouts = {"shared": WeightLayout((config.vocab_size, width), 0, 1.0, ("shared.weight",))}
    layouts |= dict(_stack(config, "encoder", config.num_layers))
    layouts = {
        name: dataclasses.replace(own, tensors=tuple(f"{IN_CLASSIFIER}{tensor}" for tensor in own.tensors))
        for name, own in layouts.items()
    }
    layouts["head.classifier"] = WeightLayout((width, classes), 0, width**-0.5, ("classifier.weight",), transposed=True)
    layouts["head.classifier_bias"] = WeightLayout((classes,), 0, 0.0, ("classifier.bias",))
    return layouts


def _stack(config: ModelConfig, stack: str, layers: int) -> Iterator[tuple[str, WeightLayout]]:
    width, inner, hidden = config.d_model, config.inner_dim, config.d_ff
    decoder = stack == "decoder"

    def tensors(*parts: str) -> tuple[str, ...]:
        return tuple(f"{stack}.block.{layer}.layer.{part}.weight" for layer in range(layers) for part in parts)

    biases = tensors("0.SelfAttention.relative_attention_bias")
    buckets = (config.relative_attention_num_buckets, config.num_heads)
    if config.bias_in_every_layer:
        yield f"{stack}.relative_bias", WeightLayout((layers, *buckets), 1, width**-0.5, biases)
    else:
        yield f"{stack}.relative_bias", WeightLayout(buckets, 0, width**-0.5, biases[:1])
    yield f"{stack}.final_norm", WeightLayout((width,), 0, None, (f"{stack}.final_layer_norm.weight",))
    sublayers = 3 if decoder else 2
    norms = tensors(*(f"{sublayer}.layer_norm" for sublayer in range(sublayers)))
    yield f"{stack}.norms", WeightLayout((layers, sublayers, width), 2, None, norms)

    q = tensors("0.SelfAttention.q")
    kv = tensors("0.SelfAttention.k", "0.SelfAttention.v")
    out = ("0.SelfAttention.o", "1.EncDecAttention.o") if decoder else ("0.SelfAttention.o",)
    # Queries begin smaller by sqrt(d_kv), because T5 does not divide the products of queries and keys by it.
    query_stddev = (width * config.d_kv) ** -0.5
    yield f"{stack}.q", WeightLayout((layers, width, inner), 1, query_stddev, q, transposed=True)
    yield f"{stack}.kv", WeightLayout((layers, 2, width, inner), 2, width**-0.5, kv, transposed=True)
    if decoder:
        q = tensors("1.EncDecAttention.q")
        kv = tensors("1.EncDecAttention.k", "1.EncDecAttention.v")
        yield f"{stack}.cross_q", WeightLayout((layers, width, inner), 1, query_stddev, q, transposed=True)
        yield f"{stack}.cross_kv", WeightLayout((layers, 2, width, inner), 2, width**-0.5, kv, transposed=True)
    shape = (layers, len(out), inner, width)
    yield f"{stack}.out", WeightLayout(shape, 2, inner**-0.5, tensors(*out), transposed=True)

    dense = f"{sublayers - 1}.DenseReluDense"
    wi = tensors(f"{dense}.wi_0", f"{dense}.wi_1") if config.gated else tensors(f"{dense}.wi")
    shape = (layers, 2 if config.gated else 1, width, hidden)
    yield f"{stack}.wi", WeightLayout(shape, 2, width**-0.5, wi, transposed=True)
    wo = tensors(f"{dense}.wo")
    yield f"{stack}.wo", WeightLayout((layers, hidden, width), 1, hidden**-0.5, wo, transposed=True)


# The matrices of a layer, in the order of `Names`: of its attention, and of its feed-forward part.
MATRICES = ("query", "key", "value", "attended", "wide", "narrow")
STDDEV = 0.02  # of all matrices and embeddings at the beginning (Devlin et al. 2019; transformers, initializer_range)


class Names(NamedTuple):
    """A model type's names of the tensors of a layer: after `layer`, which has the layer's number in it."""

    layer: str
    attention: tuple[str, str, str, str]  # query, key, value, out
    norms: tuple[str, str]
    feed_forward: tuple[str, str]


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
DEBERTA = Names(
    "encoder.layer.{}",
    ("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", "attention.output.dense"),
    ("attention.output.LayerNorm", "output.LayerNorm"),
    ("intermediate.dense", "output.dense"),
)
ALBERT = Names(
    "encoder.albert_layer_groups.0.albert_layers.{}",
    ("attention.query", "attention.key", "attention.value", "attention.dense"),
    ("attention.LayerNorm", "full_layer_layer_norm"),
    ("ffn", "ffn_output"),
)
NAMES = {"distilbert": DISTILBERT, "albert": ALBERT, "deberta-v2": DEBERTA}
PROJECTIONS = {"albert": "encoder.embedding_hidden_mapping_in", "electra": "embeddings_project"}
# The dense layer of the head and the last matrix, which does not belong to the pretrained model in any of them.
HEADS = {
    "bert": ("bert.pooler.dense", "classifier"),
    "deberta-v2": ("pooler.dense", "classifier"),
    "albert": ("albert.pooler", "classifier"),
    "distilbert": ("pre_classifier", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "electra": ("classifier.dense", "classifier.out_proj"),
}
# The dense layer, the norm and the bias of the head that fills masks; its last matrix is the embeddings.
MASKED_HEADS = {
    "bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions"),
    "albert": ("predictions.dense", "predictions.LayerNorm", "predictions"),
    "distilbert": ("vocab_transform", "vocab_layer_norm", "vocab_projector"),
    "roberta": ("lm_head.dense", "lm_head.layer_norm", "lm_head"),
    "electra": ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"),
}


def encoder_layouts(config: EncoderConfig) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order.

    >>> layouts = encoder_layouts(EncoderConfig())
    >>> layouts["layers.11.query"].shape, layouts["layers.qkv_bias"].shape
    ((768, 768), (12, 3, 768))
    """
    family, prefix, names = config.family, config.prefix.removesuffix("."), NAMES.get(config.family, BERT)
    layers, width, hidden, narrow = config.own_layers, config.d_model, config.d_ff, config.embedding_width
    layouts: dict[str, WeightLayout] = {}

    def matrix(name: str, own: str, rows: int, columns: int) -> None:
        layouts[name] = WeightLayout((rows, columns), 0, STDDEV, (f"{own}.weight",), transposed=True)

    def biases(name: str, own: tuple[str, ...], size: int, *, stack: tuple[int, ...] = ()) -> None:
        layouts[name] = WeightLayout((*stack, size), len(stack), 0.0, tuple(f"{one}.bias" for one in own))

    def norms(name: str, own: tuple[str, ...], size: int, *, stack: tuple[int, ...] = ()) -> None:
        scales = tuple(f"{one}.weight" for one in own)
        layouts[name] = WeightLayout((*stack, size), len(stack), None, scales)
        biases(f"{name}_bias", own, size, stack=stack)

    def in_layers(*own: str) -> tuple[str, ...]:
        return tuple(f"{prefix}.{names.layer.format(number)}.{one}" for number in range(layers) for one in own)

    for name, rows in (
        ("word", config.vocab_size),
        ("position", 0 if family == "deberta-v2" else config.max_positions),
        ("token_type", config.segments),
    ):
        if rows:
            tensor = f"{prefix}.embeddings.{name}_embeddings.weight"
            layouts[f"embeddings.{name}"] = WeightLayout((rows, narrow), 0, STDDEV, (tensor,))
    norms("embeddings.norm", (f"{prefix}.embeddings.LayerNorm",), narrow)
    if config.projects:
        matrix("embeddings.projection", f"{prefix}.{PROJECTIONS[family]}", narrow, width)
        biases("embeddings.projection_bias", (f"{prefix}.{PROJECTIONS[family]}",), width)
    tensors = (*names.attention, *names.feed_forward)
    shapes = [(width, width)] * 4 + [(width, hidden), (hidden, width)]
    for number in range(layers):
        for name, tensor, shape in zip(MATRICES, tensors, shapes, strict=True):
            matrix(f"layers.{number}.{name}", f"{prefix}.{names.layer.format(number)}.{tensor}", *shape)
    biases("layers.qkv_bias", in_layers(*names.attention[:3]), width, stack=(layers, 3))
    biases("layers.out_bias", in_layers(names.attention[3]), width, stack=(layers,))
    biases("layers.wide_bias", in_layers(names.feed_forward[0]), hidden, stack=(layers,))
    biases("layers.narrow_bias", in_layers(names.feed_forward[1]), width, stack=(layers,))
    norms("layers.norms", in_layers(*names.norms), width, stack=(layers, 2))
    if config.masked:
        dense, norm, last = MASKED_HEADS[family]
        matrix("masked.dense", dense, width, narrow)
        biases("masked.dense_bias", (dense,), narrow)
        norms("masked.norm", (norm,), narrow)
        biases("masked.bias", (last,), config.vocab_size)
        return layouts
    parts = list(zip(("dense", "classifier"), HEADS[family], (width, len(config.classes)), strict=True))
    if config.target == "tags":  # one matrix for all tokens
        parts = [("classifier", "classifier", len(config.classes))]
    for name, tensor, columns in parts:
        matrix(f"head.{name}", tensor, width, columns)
        biases(f"head.{name}_bias", (tensor,), columns)
    return layouts
