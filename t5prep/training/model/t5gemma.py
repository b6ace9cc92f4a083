"""Define T5Gemma, and the text half of T5Gemma 2: the config, read from `config.json`, and the variables with their tensors.

Both have Gemma's layers in two stacks (Zhang et al. 2025, arXiv:2504.06225; T5Gemma 2: arXiv:2512.14856), and `t5` computes
them. T5Gemma is made of Gemma 2: it caps scores and logits, and its stacks may differ in width. T5Gemma 2 is made of Gemma 3. It
has norms of queries and keys, one table of embeddings, and a decoder with one attention over its own tokens and the input.
Its vision tower is not supported, and the tower's tensors are ignored. This module imports no TensorFlow.
"""

import dataclasses
import reprlib
from collections.abc import Mapping, Sequence

from t5prep.errors import UsageError
from t5prep.json_values import JSON, JSONObject
from t5prep.training.model.architecture import ModelConfig, Sizes, Traits
from t5prep.training.model.entries import (
    FULL,
    SLIDING,
    Entries,
    check_usual,
    full_every,
    kinds_of,
    positive,
    rotation_of,
)
from t5prep.training.model.weight_layout import STDDEV, Layouts, WeightLayout
from t5prep.training.published.stored import Array

ROTATIONS = ("full_theta", "full_factor", "sliding_theta")  # the config's fields in the order of `_rotations`
# The entry of a stack's config → the fields of encoder and decoder, in the order of `Sizes`.
SIZES = {
    "num_hidden_layers": ("num_layers", "num_decoder_layers"),
    "hidden_size": ("d_model", "decoder_d_model"),
    "intermediate_size": ("d_ff", "decoder_d_ff"),
    "num_attention_heads": ("num_heads", "decoder_num_heads"),
    "num_key_value_heads": ("num_kv_heads", "decoder_num_kv_heads"),
}
# Field → the entry that must be equal in both stacks.
SHARED_FIELDS = {
    "vocab_size": "vocab_size",
    "d_kv": "head_dim",
    "layer_norm_epsilon": "rms_norm_eps",
    "window": "sliding_window",
    "query_scalar": "query_pre_attn_scalar",
    "pad_token_id": "pad_token_id",
}
# The values of entries that a stack lacks, in both types (transformers, configuration_t5gemma.py and configuration_t5gemma2.py).
STACK_DEFAULTS: JSONObject = {
    **{"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8},
    **{"num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6, "sliding_window": 4096},
    **{"query_pre_attn_scalar": 256, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2},
}
DEFAULTS: dict[str, JSONObject] = {
    "t5gemma": {"vocab_size": 256_000, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
    "t5gemma2": {"vocab_size": 262_208},
}
USUAL = (("hidden_activation", "gelu_pytorch_tanh"), ("attention_bias", False))
# The smallest vision tower that transformers builds. It goes into an exported config.json, because transformers requires one.
NO_VISION = {
    **{"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1},
    **{"num_attention_heads": 1, "image_size": 14, "patch_size": 14, "vision_use_head": False},
}
IMAGES = ("vision_tower", "multi_modal_projector")  # parts of names of modules


@dataclasses.dataclass(frozen=True)
class T5GemmaConfig(ModelConfig):
    """The numbers that define a T5Gemma's weights and computation; the defaults are those of T5Gemma 2 270M-270M.

    Fields that begin with `decoder_` are the decoder's sizes. `num_kv_heads`: the number of heads of keys and values, shared by
    the heads of queries. Every `full_every`-th layer attends to all tokens, the others to a `window` of tokens. `full_theta` and
    `sliding_theta`: the bases of the angles of rotation of these two kinds; full layers divide positions by `full_factor`.
    `query_scalar`: scores are divided by its square root. `score_cap`, `logit_cap`: soft caps, 0 for none. `eoi_token_id`: the
    id whose embedding is a separate variable.
    """

    vocab_size: int = 262_144
    d_model: int = 640
    d_kv: int = 256
    d_ff: int = 2048
    num_layers: int = 18
    num_decoder_layers: int = 18
    num_heads: int = 4
    num_kv_heads: int = 1
    decoder_d_model: int = 640
    decoder_d_ff: int = 2048
    decoder_num_heads: int = 4
    decoder_num_kv_heads: int = 1
    full_every: int = 6
    window: int = 512
    query_scalar: float = 256
    full_theta: float = 1_000_000.0
    full_factor: float = 8.0
    sliding_theta: float = 10_000.0
    score_cap: float = 0.0
    logit_cap: float = 0.0
    eoi_token_id: int = 256_000
    dropout_rate: float = 0.0
    feed_forward_proj: str = "gated-gelu"
    scale_decoder_outputs: bool = False
    decoder_start_token_id: int = 2
    model_type: str = "t5gemma2"

    @property
    def merged(self) -> bool:
        """Check whether this is a T5Gemma 2, whose decoder has one attention over its own tokens and the input."""
        return self.model_type == "t5gemma2"

    @property
    def traits(self) -> Traits:
        """Return the variants of the model's layers."""
        # T5Gemma 2 splits the encoder's window into two halves; T5Gemma's window is as long on either side (transformers,
        # modeling_t5gemma2.py and masking_utils.py).
        halves, full_windows = ((self.window + 1) // 2 - 1, self.window // 2), (self.window, self.window)
        return Traits(
            merged=self.merged,
            normed_after=True,
            scales_embeddings=True,
            own_tables=not self.merged,
            score_scale=self.query_scalar**-0.5,
            score_cap=self.score_cap,
            logit_cap=self.logit_cap,
            full_every=self.full_every,
            encoder_window=halves if self.merged else full_windows,
            decoder_window=(self.window - 1, 0),
            left_out=f".*({'|'.join(IMAGES)}).*" if self.merged else "",
            eoi_token_id=self.eoi_token_id if self.merged else -1,
            rotations=((self.full_theta, self.full_factor), (self.sliding_theta, 1.0)),
        )

    @property
    def title(self) -> str:
        """Return the kind of the model, for model cards and messages."""
        return "T5Gemma 2" if self.merged else "T5Gemma"

    @property
    def output_table(self) -> str:
        """Return the name of the variable with the output embeddings: those of the decoder."""
        return self.traits.table("decoder")

    def sizes(self, stack: str) -> Sizes:
        """Return the sizes of `stack`, "encoder" or "decoder"."""
        return Sizes(*(getattr(self, fields[stack == "decoder"]) for fields in SIZES.values()))

    def with_classes(self, classes: Sequence[str], target: str = "class") -> "T5GemmaConfig":
        """Raise UsageError, because no head for classes is supported."""
        raise UsageError(
            f"A {self.title} generates text, but the data has classes as targets. Prepare the data with "
            "--target text, or train a T5's encoder or a ModernBERT.",
            code="dataset.target-mismatch",
        )

    @classmethod
    def from_json(cls, config: Entries) -> "T5GemmaConfig":
        """Return the config of a parsed `config.json`, of transformers 4 or 5.

        Raises UsageError for an unsupported variant.

        >>> T5GemmaConfig.from_json({"model_type": "t5gemma", "encoder": {"hidden_size": 768}, "decoder": {}}).d_model
        768
        """
        kind = str(config["model_type"])
        is_merged, encoder = kind == "t5gemma2", config["encoder"]
        stacks = [
            {
                **STACK_DEFAULTS,
                **DEFAULTS[kind],
                **{name: value for name, value in stack_config.items() if value is not None},
            }
            for stack_config in (encoder.get("text_config", encoder) if is_merged else encoder, config["decoder"])
        ]
        for stack_config in stacks:
            check_usual(stack_config, USUAL)
            stack_config["rotations"] = _rotations(stack_config, is_merged=is_merged)
        check_usual(config, (("tie_word_embeddings", True),))
        for name in (*SHARED_FIELDS.values(), "rotations"):
            encoder_value, decoder_value = (stack[name] for stack in stacks)
            if encoder_value != decoder_value:
                raise UsageError(
                    f"The model's encoder has {name} {reprlib.repr(encoder_value)}, but its decoder has "
                    f"{reprlib.repr(decoder_value)}. Choose a model with equal values.",
                    code="model.unsupported-config",
                )
        last = stacks[1]
        caps = [last.get(f"{scores}_logit_softcapping") or 0.0 for scores in ("final", "attn")]
        kinds = [stack["layer_types"] for stack in stacks if "layer_types" in stack]
        ends = config.get("eos_token_id") or last["eos_token_id"]
        model_config = cls(
            model_type=kind,
            **{field: last[name] for field, name in SHARED_FIELDS.items()},
            **{
                field: stack_config[name]
                for name, fields in SIZES.items()
                for field, stack_config in zip(fields, stacks, strict=True)
            },
            **dict(zip(ROTATIONS, last["rotations"], strict=True)),
            full_every=full_every(*kinds, last=True) if kinds else 6 if is_merged else 2,
            eos_token_id=ends[0] if isinstance(ends, list) else ends,
            decoder_start_token_id=last["bos_token_id"],
            dropout_rate=float(config.get("dropout_rate") or 0.0),
            logit_cap=caps[0] and positive(caps[0]),
            # T5Gemma 2 has the entry in its config and does not use it (transformers, modeling_t5gemma2.py).
            score_cap=0.0 if is_merged else caps[1] and positive(caps[1]),
            eoi_token_id=config.get("eoi_token_index") or encoder.get("eoi_token_index") or cls.eoi_token_id,
        )
        positive(model_config.query_scalar)
        for size in (model_config.sizes("encoder"), model_config.sizes("decoder")):
            if size.heads % size.kv_heads or model_config.d_kv % 2:
                raise ValueError(
                    f"{size.heads} heads of {model_config.d_kv} do not share {size.kv_heads} of keys and values"
                )
        if model_config.merged and model_config.d_model != model_config.decoder_d_model:
            raise ValueError(f"its stacks are {model_config.d_model} and {model_config.decoder_d_model} wide")
        return model_config

    def to_json(self) -> dict[str, JSON]:
        """Return a `config.json` that `transformers` 5 reads as this model, and `from_json` as this config."""
        divided = {"rope_type": "linear", "factor": self.full_factor} if self.full_factor != 1.0 else {}
        sliding = {"rope_type": "default", "rope_theta": self.sliding_theta}
        ropes = {FULL: {"rope_type": "default", "rope_theta": self.full_theta, **divided}, SLIDING: sliding}
        ends = {"eos_token_id": self.eos_token_id, "bos_token_id": self.decoder_start_token_id}
        images = {"eoi_token_index": self.eoi_token_id} if self.merged else {}
        encoder, decoder = (
            {
                **{name: getattr(self, fields[index]) for name, fields in SIZES.items()},
                **{name: getattr(self, field) for field, name in SHARED_FIELDS.items()},
                **{**ends, **dict(USUAL)},
                "final_logit_softcapping": self.logit_cap or None,
                "attn_logit_softcapping": self.score_cap or None,
                "layer_types": kinds_of(layers, every=self.full_every, last=True),
                "rope_parameters": ropes if self.merged else sliding,
            }
            for index, layers in enumerate((self.num_layers, self.num_decoder_layers))
        )
        if self.merged:
            text = {**encoder, "model_type": "t5gemma2_text"}
            images_of_encoder = {"vision_config": NO_VISION, "mm_tokens_per_image": 1, **images}
            encoder = {"model_type": "t5gemma2_encoder", "text_config": text, **images_of_encoder}
            decoder["model_type"] = "t5gemma2_decoder"
        return {
            "architectures": [f"{self.title.replace(' ', '')}ForConditionalGeneration"],
            **{"model_type": self.model_type, "encoder": encoder, "decoder": decoder},
            **{"is_encoder_decoder": True, "tie_word_embeddings": True, "vocab_size": self.vocab_size},
            **{"dropout_rate": self.dropout_rate, "attention_dropout": self.dropout_rate},
            **{"pad_token_id": self.pad_token_id, **ends, **images},
        }


Config = T5GemmaConfig


def _rotations(stack: Entries, *, is_merged: bool) -> tuple[float, ...]:
    """Return the values of the fields ROTATIONS in a stack's config. Raises UsageError for an unsupported kind of rotation."""
    rope_parameters = stack.get("rope_parameters") or {}
    rotation_of(stack.get("rope_scaling"), 1.0)  # raises UsageError if there is a scaling
    if not is_merged:
        theta, _ = rotation_of(rope_parameters, stack.get("rope_theta", 10_000.0))
        return theta, 1.0, theta
    full = rotation_of(rope_parameters.get(FULL), stack.get("rope_theta", 1_000_000.0), may_divide=True)
    return *full, rotation_of(rope_parameters.get(SLIDING), stack.get("rope_local_base_freq", 10_000.0))[0]


def layouts(config: T5GemmaConfig) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order; like T5's, they are stacked over the layers.

    Scales of norms have the values of Gemma's files: Gemma's RMSNorm adds 1 to a scale, so scales are initialized to 0.

    >>> layouts(T5GemmaConfig())["decoder.kv"].shape
    (18, 2, 640, 256)
    """
    model_layouts, merged = Layouts(), config.merged
    for stack, root in (
        ("encoder", "model.encoder.text_model" if merged else "model.encoder"),
        ("decoder", "model.decoder"),
    ):
        width, table = config.sizes(stack).width, f"{root}.embed_tokens"
        if not merged or stack == "encoder":
            model_layouts.table(config.traits.table(stack), table, config.vocab_size, width)
        if merged and stack == "encoder":
            model_layouts["eoi_embedding"] = WeightLayout((width,), 0, 0.0, (f"{table}.eoi_embedding",))
        attentions = ("self_attn", "cross_attn") if stack == "decoder" and not merged else ("self_attn",)
        model_layouts.stack(
            config,
            stack,
            f"{root}.layers.{{}}.{{}}.weight",
            final_norm=f"{root}.norm",
            norms=[f"{prefix}_{part}_layernorm" for part in (*attentions, "feedforward") for prefix in ("pre", "post")],
            attentions=attentions,
            projections=("q_proj", "k_proj", "v_proj", "o_proj"),
            wide=("mlp.gate_proj", "mlp.up_proj"),
            narrow="mlp.down_proj",
            deviations={"norms": 0.0, "head_norms": 0.0, "others": STDDEV},
            head_norms=("self_attn.q_norm", "self_attn.k_norm") if merged else (),
        )
    return model_layouts


def rename_tensors(config: T5GemmaConfig, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return a checkpoint's `tensors` by the names in `layouts`, without the vision tower and without copies of tied tensors.

    google/t5gemma-2-270m-270m names its encoder's layers `encoder.layers…`, and later versions of transformers 5
    `encoder.text_model.layers…`. Both are accepted.
    """
    renamed_tensors: dict[str, Array] = {}
    for name, stored in tensors.items():
        short_name = name.removeprefix("model.")
        if any(f"{part}." in short_name for part in IMAGES):
            continue
        if config.merged and short_name.startswith("encoder.") and not short_name.startswith("encoder.text_model."):
            short_name = short_name.replace("encoder.", "encoder.text_model.", 1)
        renamed_tensors[short_name if short_name.startswith("lm_head.") else f"model.{short_name}"] = stored
    decoder, encoder = "model.decoder.embed_tokens", "model.encoder.text_model.embed_tokens"
    copies = {"lm_head.out_proj.weight": f"{encoder if config.merged else decoder}.weight"}
    if config.merged:
        copies |= {f"{decoder}.{short_name}": f"{encoder}.{short_name}" for short_name in ("weight", "eoi_embedding")}
    for copy, original in copies.items():
        if copy in renamed_tensors:
            renamed_tensors.setdefault(original, renamed_tensors[copy])
            del renamed_tensors[copy]
    return renamed_tensors
