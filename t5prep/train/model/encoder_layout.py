"""Define the variables that hold an encoder's weights, and the place of each Hugging Face tensor in them.

As in `weight_layout`, weights of one shape are stacked over the layers, and matrices are stored as [in, out].
"""

from typing import NamedTuple

from t5prep.train.model.encoder_config import EncoderConfig
from t5prep.train.model.weight_layout import WeightLayout

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

    >>> encoder_layouts(EncoderConfig())["layers.qkv"].shape
    (12, 3, 768, 768)
    """
    prefix, names = config.model_type, NAMES.get(config.model_type, BERT)
    layers, width, hidden, narrow = config.own_layers, config.d_model, config.d_ff, config.embedding_width
    layouts: dict[str, WeightLayout] = {}

    def matrices(name: str, own: tuple[str, ...], rows: int, columns: int, *, stack: tuple[int, ...] = ()) -> None:
        weights, biases = (tuple(f"{one}.{kind}" for one in own) for kind in ("weight", "bias"))
        rank = len(stack)
        layouts[name] = WeightLayout((*stack, rows, columns), rank, STDDEV, weights, transposed=True)
        layouts[f"{name}_bias"] = WeightLayout((*stack, columns), rank, 0.0, biases)

    def norms(name: str, own: tuple[str, ...], size: int, *, stack: tuple[int, ...] = ()) -> None:
        weights, biases = (tuple(f"{one}.{kind}" for one in own) for kind in ("weight", "bias"))
        layouts[name] = WeightLayout((*stack, size), len(stack), None, weights)
        layouts[f"{name}_bias"] = WeightLayout((*stack, size), len(stack), 0.0, biases)

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
        matrices("embeddings.projection", (f"{prefix}.{PROJECTIONS[prefix]}",), narrow, width)
    query, key, value, out = names.attention
    matrices("layers.qkv", in_layers(query, key, value), width, width, stack=(layers, 3))
    matrices("layers.out", in_layers(out), width, width, stack=(layers, 1))
    matrices("layers.wi", in_layers(names.feed_forward[0]), width, hidden, stack=(layers, 1))
    matrices("layers.wo", in_layers(names.feed_forward[1]), hidden, width, stack=(layers,))
    norms("layers.norms", in_layers(*names.norms), width, stack=(layers, 2))
    dense, last = HEADS[prefix]
    matrices("head.dense", (dense,), width, width)
    matrices("head.classifier", (last,), width, len(config.classes))
    return layouts
