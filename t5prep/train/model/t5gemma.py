"""Say what a T5Gemma and the text half of a T5Gemma 2 are: what `config.json` holds, and their weights with the names of tensors.

Both have Gemma's layers in two stacks (Zhang et al. 2025, arXiv:2504.06225; T5Gemma 2: arXiv:2512.14856), and `t5gemma_layers`
computes them. T5Gemma, of Gemma 2, caps its scores and logits, and its stacks may have other widths. T5Gemma 2, of Gemma 3, has
norms of queries and keys, one matrix of embeddings, and a decoder that attends to its own tokens and to the input at once. Its
images are no part of what is trained: tensors of the vision tower are left out. This module imports no TensorFlow.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from t5prep.errors import UsageError
from t5prep.train.model.architecture import ModelConfig, Sizes
from t5prep.train.model.entries import FULL, SLIDING, check_usual, full_every, kinds_of, positive
from t5prep.train.model.weight_layout import Layouts, WeightLayout

LAYERS = "t5prep.train.model.t5gemma_layers"
CLASSES = {"t5gemma": "T5Gemma", "t5gemma2": "T5Gemma2"}
# Field → its name in the config of a stack; the decoder's own fields begin with "decoder_".
SIZES = {
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
}
DECODER_SIZES = {
    ("num_decoder_layers" if field == "num_layers" else f"decoder_{field}"): name for field, name in SIZES.items()
}
ALIKE = {
    "vocab_size": "vocab_size",
    "d_kv": "head_dim",
    "layer_norm_epsilon": "rms_norm_eps",
    "window": "sliding_window",
    "query_scalar": "query_pre_attn_scalar",
    "pad_token_id": "pad_token_id",
}
# What a stack that leaves something out has, in both types (transformers, configuration_t5gemma.py, configuration_t5gemma2.py).
STACK_DEFAULTS: dict[str, Any] = {
    **{"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8},
    **{"num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6, "sliding_window": 4096},
    **{"query_pre_attn_scalar": 256, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2},
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "t5gemma": {"vocab_size": 256_000, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
    "t5gemma2": {"vocab_size": 262_208},
}
USUAL = (("hidden_activation", "gelu_pytorch_tanh"), ("attention_bias", False))
# The smallest vision tower that transformers makes: a T5Gemma 2 that was trained here has no vision tower of its own.
NO_VISION = {
    **{"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1},
    **{"num_attention_heads": 1, "image_size": 14, "patch_size": 14, "vision_use_head": False},
}
IMAGES = ("vision_tower.", "multi_modal_projector.")  # parts of names of tensors


@dataclasses.dataclass(frozen=True)
class T5GemmaConfig(ModelConfig):
    """The numbers that define a T5Gemma's weights and computation; the defaults are those of T5Gemma 2 270M-270M.

    Those of the two stacks are apart, as far as they may differ. `num_kv_heads`: heads of keys and values, each of which
    serves several of queries. Every `full_every`-th layer attends to all tokens, the others to `window` of them.
    `full_theta` and `sliding_theta`: the bases of the angles of rotation; positions of full layers are divided by
    `full_factor`. `score_cap`, `logit_cap`: soft caps, 0 for none. `eoi_token_id`: the id with an embedding of its own.
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
        """Check whether the decoder attends to its own tokens and to the input at once (T5Gemma 2)."""
        return self.model_type == "t5gemma2"

    @property
    def title(self) -> str:
        """Return what kind of model it is, in words."""
        return "T5Gemma 2" if self.merged else "T5Gemma"

    @property
    def output_table(self) -> str:
        """Return the name of the variable whose rows are multiplied with decoder outputs."""
        return "shared" if self.merged else "decoder.shared"

    def sizes(self, stack: str) -> Sizes:
        """Return the numbers of the "encoder" or "decoder"."""
        names = SIZES if stack == "encoder" else DECODER_SIZES
        of = {theirs: getattr(self, ours) for ours, theirs in names.items()}
        return Sizes(*(of[SIZES[field]] for field in ("num_layers", "d_model", "d_ff", "num_heads", "num_kv_heads")))

    def with_classes(self, classes: Sequence[str], target: str = "class") -> "T5GemmaConfig":
        """Raise UsageError: no head for classes is computed."""
        raise UsageError(
            f"A {self.title} writes texts, and the data's targets are classes: prepare it with --target text, or train a T5's"
            " encoder or a ModernBERT."
        )

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "T5GemmaConfig":
        """Return the config of a parsed `config.json`, of transformers 4 or 5.

        Raises UsageError for a variant that is not computed here.

        >>> T5GemmaConfig.from_json({"model_type": "t5gemma", "encoder": {"hidden_size": 768}, "decoder": {}}).d_model
        768
        """
        kind = str(config["model_type"])
        encoder = config["encoder"].get("text_config", config["encoder"]) if kind == "t5gemma2" else config["encoder"]
        given = [
            {**STACK_DEFAULTS, **DEFAULTS[kind], **{name: value for name, value in one.items() if value is not None}}
            for one in (encoder, config["decoder"])
        ]
        for stack in given:
            check_usual(stack, USUAL)
        check_usual(config, (("tie_word_embeddings", True),))
        values: dict[str, Any] = {"model_type": kind, **_alike(given, ALIKE)}
        for names, stack in zip((SIZES, DECODER_SIZES), given, strict=True):
            values |= {field: stack[name] for field, name in names.items()}
        ropes = [_ropes(stack, kind) for stack in given]
        values |= _alike(ropes, {name: name for name in ropes[0]})
        kinds = [stack["layer_types"] for stack in given if stack.get("layer_types") is not None]
        values["full_every"] = full_every(*kinds, last=True) if kinds else 6 if kind == "t5gemma2" else 2
        last = given[1]
        ends = config.get("eos_token_id") or last["eos_token_id"]
        values |= {
            "eos_token_id": ends[0] if isinstance(ends, list) else ends,
            "decoder_start_token_id": last["bos_token_id"],
            "dropout_rate": float(config.get("dropout_rate") or 0.0),
            "logit_cap": _cap(last.get("final_logit_softcapping")),
            # T5Gemma 2 has the entry in its config and does not use it (transformers, modeling_t5gemma2.py).
            "score_cap": _cap(last.get("attn_logit_softcapping")) if kind == "t5gemma" else 0.0,
            "eoi_token_id": config.get("eoi_token_index")
            or config["encoder"].get("eoi_token_index")
            or cls.eoi_token_id,
        }
        made = cls(**values)
        positive(made.query_scalar)
        for one in (made.sizes("encoder"), made.sizes("decoder")):
            if one.heads % one.kv_heads or made.d_kv % 2:
                raise ValueError(f"{one.heads} heads of {made.d_kv} do not share {one.kv_heads} of keys and values")
        if made.merged and made.d_model != made.decoder_d_model:
            raise ValueError(f"its stacks are {made.d_model} and {made.decoder_d_model} wide")
        return made

    def to_json(self) -> dict[str, Any]:
        """Return a `config.json` that `transformers` 5 reads as this model, and `from_json` as this config."""
        full = {"rope_type": "default", "rope_theta": self.full_theta}
        if self.full_factor != 1.0:
            full |= {"rope_type": "linear", "factor": self.full_factor}
        ropes = {FULL: full, SLIDING: {"rope_type": "default", "rope_theta": self.sliding_theta}}
        ends = {"eos_token_id": self.eos_token_id, "bos_token_id": self.decoder_start_token_id}

        def stack(names: Mapping[str, str]) -> dict[str, Any]:
            sizes = {theirs: getattr(self, ours) for ours, theirs in {**names, **ALIKE}.items()}
            kinds = kinds_of(sizes["num_hidden_layers"], every=self.full_every, last=True)
            caps = {"final_logit_softcapping": self.logit_cap or None, "attn_logit_softcapping": self.score_cap or None}
            rope = ropes if self.merged else ropes[SLIDING]
            return {**sizes, **ends, **caps, **dict(USUAL), "layer_types": kinds, "rope_parameters": rope}

        encoder, decoder = stack(SIZES), stack(DECODER_SIZES)
        kind, more = self.model_type, {}
        if self.merged:
            encoder = {
                "model_type": "t5gemma2_encoder",
                "text_config": {**encoder, "model_type": "t5gemma2_text"},
                "vision_config": NO_VISION,
                "mm_tokens_per_image": 1,
                "eoi_token_index": self.eoi_token_id,
            }
            decoder["model_type"], more = "t5gemma2_decoder", {"eoi_token_index": self.eoi_token_id}
        return {
            "architectures": [f"{CLASSES[kind]}ForConditionalGeneration"],
            "model_type": kind,
            "encoder": encoder,
            "decoder": decoder,
            "is_encoder_decoder": True,
            "tie_word_embeddings": True,
            "vocab_size": self.vocab_size,
            "dropout_rate": self.dropout_rate,
            "attention_dropout": self.dropout_rate,
            "pad_token_id": self.pad_token_id,
            **ends,
            **more,
        }


Config = T5GemmaConfig


def _alike(stacks: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of entries that both stacks must have alike, by our names. Raises UsageError if they differ."""
    for name in names.values():
        if stacks[0][name] != stacks[1][name]:
            raise UsageError(
                f"The model's encoder has {name} {stacks[0][name]!r} and its decoder {stacks[1][name]!r}, and only equal ones"
                " are computed here."
            )
    return {field: stacks[0][name] for field, name in names.items()}


def _cap(given: Any) -> float:
    """Return a soft cap, 0 for none. Raises ValueError for a number that caps nothing."""
    return positive(given) if given else 0.0


def _ropes(stack: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return how a stack rotates queries and keys, by our names. Raises UsageError for a kind that is not computed."""
    given = stack.get("rope_parameters") or {}
    if kind == "t5gemma":
        given = {FULL: given, SLIDING: given}
        bases = (stack.get("rope_theta", 10_000.0),) * 2
    else:
        bases = (stack.get("rope_theta", 1_000_000.0), stack.get("rope_local_base_freq", 10_000.0))
    full, sliding = ((given.get(one) or {}) for one in (FULL, SLIDING))
    factor = positive(full.get("factor", 1.0)) if full.get("rope_type") == "linear" and kind == "t5gemma2" else 1.0
    for rope in ({} if factor != 1.0 else full, sliding, stack.get("rope_scaling") or {}):
        check_usual(rope, (("rope_type", "default"),))
    thetas = [positive(rope.get("rope_theta", base)) for rope, base in zip((full, sliding), bases, strict=True)]
    return {"full_theta": thetas[0], "sliding_theta": thetas[1], "full_factor": factor}


def layouts(config: T5GemmaConfig) -> dict[str, WeightLayout]:
    """Return every variable of the model, by name, in a fixed order; those of one shape are stacked over the layers, as T5's.

    Norms are kept as they are in files: one is added before they scale (Gemma's RMSNorm), so they begin as zeros.

    >>> layouts(T5GemmaConfig())["decoder.kv"].shape
    (18, 2, 640, 256)
    """
    made = Layouts()
    roots = {"encoder": "model.encoder.text_model" if config.merged else "model.encoder", "decoder": "model.decoder"}
    if config.merged:
        table = f"{roots['encoder']}.embed_tokens"
        made.table("shared", table, config.vocab_size, config.d_model)
        made["eoi_embedding"] = WeightLayout((config.d_model,), 0, 0.0, (f"{table}.eoi_embedding",))
    for stack, root in roots.items():
        size, crosses = config.sizes(stack), stack == "decoder" and not config.merged
        of_keys, of_queries = size.kv_heads * config.d_kv, size.heads * config.d_kv
        tensors = f"{root}.layers.{{}}.{{}}.weight"
        matrix = functools.partial(made.stacked, layers=size.layers)
        norm = functools.partial(made.stacked, layers=size.layers, stddev=0.0, transposed=False)
        if not config.merged:
            made.table(f"{stack}.shared", f"{root}.embed_tokens", config.vocab_size, size.width)
        made[f"{stack}.final_norm"] = WeightLayout((size.width,), 0, 0.0, (f"{root}.norm.weight",))
        attentions = ("self_attn", "cross_attn") if crosses else ("self_attn",)
        norms = [f"{when}_{part}_layernorm" for part in (*attentions, "feedforward") for when in ("pre", "post")]
        norm(f"{stack}.norms", tensors, norms, size.width)
        if config.merged:
            norm(f"{stack}.head_norms", tensors, ("self_attn.q_norm", "self_attn.k_norm"), config.d_kv)
        for attention, prefix in zip(attentions, ("", "cross_"), strict=False):
            source = config.d_model if prefix else size.width
            matrix(f"{stack}.{prefix}q", tensors, (f"{attention}.q_proj",), size.width, of_queries)
            matrix(f"{stack}.{prefix}kv", tensors, (f"{attention}.k_proj", f"{attention}.v_proj"), source, of_keys)
        matrix(f"{stack}.out", tensors, [f"{attention}.o_proj" for attention in attentions], of_queries, size.width)
        matrix(f"{stack}.wi", tensors, ("mlp.gate_proj", "mlp.up_proj"), size.width, size.hidden)
        matrix(f"{stack}.wo", tensors, ("mlp.down_proj",), size.hidden, size.width)
    return made


def named(config: T5GemmaConfig, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's tensors by the names of `layouts`, without those of images and without copies of tied ones.

    google/t5gemma-2-270m-270m has its encoder's layers right below `encoder`; transformers 5 since has `text_model` between.
    """
    found: dict[str, Any] = {}
    for name, stored in tensors.items():
        own = name.removeprefix("model.")
        if any(part in own for part in IMAGES):
            continue
        if config.merged and own.startswith("encoder.") and not own.startswith("encoder.text_model."):
            own = own.replace("encoder.", "encoder.text_model.", 1)
        found[own if own.startswith("lm_head.") else f"model.{own}"] = stored
    decoder, encoder = "model.decoder.embed_tokens", "model.encoder.text_model.embed_tokens"
    copies = {"lm_head.out_proj.weight": f"{encoder if config.merged else decoder}.weight"}
    if config.merged:
        copies |= {f"{decoder}.{own}": f"{encoder}.{own}" for own in ("weight", "eoi_embedding")}
    for copy, whole in copies.items():
        if copy in found:
            found.setdefault(whole, found[copy])
            del found[copy]
    return found
