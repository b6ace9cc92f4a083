"""Define the variables that hold an encoder's weights, and the place of each Hugging Face tensor in them.

Matrices are stored as [in, out]. Each matrix of a layer is a variable of its own, for with AdamW a TPU then updates it in
the very product that makes its gradient; biases and norms are stacked over the layers, as in `weight_layout`.
"""

from typing import NamedTuple

from t5prep.train.model.encoder_config import EncoderConfig
from t5prep.train.model.weight_layout import WeightLayout

# The matrices of a layer, in the order of `Names`: of its attention, and of its feed-forward part.
MATRICES = ("query", "key", "value", "attended", "wide", "narrow")
STDDEV = 0.02  # of all matrices and embeddings at the beginning (Devlin et al. 2019; transformers, initializer_range)


class Names(NamedTuple):
    """Hold a model type's names of the tensors of a layer: after `layer`, which has the layer's number in it."""

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
ALBERT = Names(
    "encoder.albert_layer_groups.0.albert_layers.{}",
    ("attention.query", "attention.key", "attention.value", "attention.dense"),
    ("attention.LayerNorm", "full_layer_layer_norm"),
    ("ffn", "ffn_output"),
)
NAMES = {"distilbert": DISTILBERT, "albert": ALBERT}
PROJECTIONS = {"albert": "encoder.embedding_hidden_mapping_in", "electra": "embeddings_project"}
# The dense layer of the head and the last matrix, which does not belong to the pretrained model in any of them.
HEADS = {
    "bert": ("bert.pooler.dense", "classifier"),
    "albert": ("albert.pooler", "classifier"),
    "distilbert": ("pre_classifier", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "electra": ("classifier.dense", "classifier.out_proj"),
}


def encoder_layouts(config: EncoderConfig) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order.

    >>> layouts = encoder_layouts(EncoderConfig())
    >>> layouts["layers.11.query"].shape, layouts["layers.qkv_bias"].shape
    ((768, 768), (12, 3, 768))
    """
    prefix, names = config.model_type, NAMES.get(config.model_type, BERT)
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
        ("position", config.max_positions),
        ("token_type", config.segments),
    ):
        if rows:
            tensor = f"{prefix}.embeddings.{name}_embeddings.weight"
            layouts[f"embeddings.{name}"] = WeightLayout((rows, narrow), 0, STDDEV, (tensor,))
    norms("embeddings.norm", (f"{prefix}.embeddings.LayerNorm",), narrow)
    if config.projects:
        matrix("embeddings.projection", f"{prefix}.{PROJECTIONS[prefix]}", narrow, width)
        biases("embeddings.projection_bias", (f"{prefix}.{PROJECTIONS[prefix]}",), width)
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
    for name, tensor, columns in zip(("dense", "classifier"), HEADS[prefix], (width, len(config.classes)), strict=True):
        matrix(f"head.{name}", tensor, width, columns)
        biases(f"head.{name}_bias", (tensor,), columns)
    return layouts
