"""Define the variables that hold a T5's weights, and the place of each Hugging Face tensor in them.

Weights of one shape are stacked over the layers in one variable: `encoder.kv` is [layers, 2, d_model, inner]. So a
t5-base has 19 variables instead of 282 tensors, and the work for each variable (Adafactor's means, an all-reduce, a
slot, a checkpoint entry) is done 19 times. Matrices are stored as [in, out], the transpose of PyTorch's.
"""

import dataclasses
from collections.abc import Iterator

from t5prep.train.model.t5_config import ModelConfig

# What the tensors' names of an encoder with a head begin with.
IN_CLASSIFIER = "transformer."


@dataclasses.dataclass(frozen=True)
class WeightLayout:
    """Describe one variable: its shape, how many leading axes stack weights (the rest is one weight), and its tensors.

    `stddev` is None for the scales of norms, which begin as ones. `tensors` are the Hugging Face names of the slices in
    the order of the stacked axes; `transposed` is true where PyTorch stores [out, in].
    """

    shape: tuple[int, ...]
    stacked_axes: int
    stddev: float | None
    tensors: tuple[str, ...]
    transposed: bool = False

    @property
    def decays(self) -> bool:
        """Check whether weight decay applies: not to norms, nor to biases."""
        return self.stddev is not None and "bias" not in self.tensors[0]


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
