"""The `config.json` of published models under T5's and encoders' other names: `plan` and `open_model` read each one.

The entries are those that decide what is computed, with where they were looked up; the numbers of parameters are those that the
Hub counts in each model's safetensors. CodeT5-base and FLAN-UL2 are whole files, as repositories of their users keep them. Those of
UL2, CodeT5+, Aya-101 and Madlad-400 were not to be had: what stands here of them is what the sources beside them say, in the names
of transformers' T5Config.
"""

import json
import math
from typing import Any

import pytest
from raised import raises

from t5prep.errors import UsageError
from t5prep.planning.model_shapes import MODELS, shape_of
from t5prep.tokens import encoder_tokenizer
from t5prep.training.model.architecture import (
    CLASS_NAMES,
    TYPES,
    EncoderConfig,
    _class_of,
    filling_masks,
    read_config,
)
from t5prep.training.model.weight_layout import weight_layouts

T5: dict[str, Any] = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}
# mT5-XXL: google-research/t5x (11abdae), t5x/examples/t5/mt5/xxl.gin.
XXL = {"d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_heads": 64, "num_layers": 24, "num_decoder_layers": 24}
# M3HUL-03/research_bot (b534669), flan-ul2/config.json: as it was published, without an entry for `tie_word_embeddings`.
FLAN_UL2 = {
    **{**T5, "d_model": 4096, "d_kv": 256, "d_ff": 16384, "num_heads": 16, "num_layers": 32, "num_decoder_layers": 32},
    **{"vocab_size": 32128, "feed_forward_proj": "gated-silu", "dense_act_fn": "silu", "is_gated_act": True},
    **{"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "n_positions": 512, "output_past": True},
    **{"relative_attention_max_distance": 128, "relative_attention_num_buckets": 32, "layer_norm_epsilon": 1e-06},
    **{
        "dropout_rate": 0.1,
        "initializer_factor": 1.0,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.25.0.dev0",
    },
    **{"use_cache": True, "_name_or_path": "/home/younes_huggingface_co/code/ul2/flan-ul2"},
}
# lehuyphuong/codeT5_trial (32859f3), codet5-base/config.json, without its parameters of tasks that T5 has and CodeT5 has not.
CODET5 = {
    **{**T5, "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_heads": 12, "num_layers": 12, "num_decoder_layers": 12},
    **{"vocab_size": 32100, "feed_forward_proj": "relu", "dense_act_fn": "relu", "is_gated_act": False},
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 0, "n_positions": 512},
    **{"relative_attention_max_distance": 128, "relative_attention_num_buckets": 32, "layer_norm_epsilon": 1e-06},
    **{"classifier_dropout": 0.0, "dropout_rate": 0.1, "initializer_factor": 1.0, "gradient_checkpointing": False},
    **{"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "output_past": True, "use_cache": True},
    **{"torch_dtype": "float32", "transformers_version": "4.40.2", "_name_or_path": "Salesforce/codet5-base"},
}
# EuroBERT's authors' conversion (the branch's convert script in github.com/tesselwisman/EuroBERT): `210m_annealed` and so on.
EUROBERT = {
    "model_type": "eurobert",
    "architectures": ["EuroBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "pad_token_id": 128001,
    "mask_token_id": 128002,
    "hidden_act": "silu",
    "hidden_dropout": 0.0,
    "max_position_embeddings": 8192,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 250000,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
    "is_decoder": False,
}
# convert_to_hf.py of AnswerDotAI/ModernBERT writes these entries, beside those of tokens.
MODERNBERT = {
    "model_type": "modernbert",
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "hidden_activation": "gelu",
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "pad_token_id": 50283,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
    "vocab_size": 50368,
    "hidden_size": 768,
    "intermediate_size": 1152,
}
# candle's test of its DeBERTa-v2, and the configs in repositories that fine-tune microsoft/deberta-v3-base (revision 8ccc9b6).
DEBERTA = {
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-07,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "Salesforce/codet5-base": CODET5,
    # A T5-large's layers (arXiv:2305.07922, section 4.2); ilyesrezgui/Attention-based-Method-for-Design-Pattern-Detection
    # (db7d11f), codet5p/config.json, has CodeT5's other entries for codet5p-110m-embedding.
    "Salesforce/codet5p-770m": {
        **{**CODET5, "d_model": 1024, "d_ff": 4096, "num_heads": 16, "num_layers": 24, "num_decoder_layers": 24},
    },
    # Üstün et al. 2024 (arXiv:2402.07827): mT5-XXL, trained on.
    "CohereLabs/aya-101": {
        **{"model_type": "mt5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 250112, **XXL},
        **{"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    },
    "EleutherAI/pile-t5-xl": {  # the text encoder of fal/AuraFlow-v0.3 has all entries of it
        **{"model_type": "umt5", "architectures": ["UMT5ForConditionalGeneration"], "classifier_dropout": 0.0},
        **{"d_model": 2048, "d_kv": 64, "d_ff": 5120, "num_heads": 32, "num_layers": 24, "num_decoder_layers": 24},
        **{"eos_token_id": 2, "feed_forward_proj": "gated-gelu", "scalable_attention": True, "vocab_size": 32128},
        **{"tie_word_embeddings": False, "tokenizer_class": "LlamaTokenizerFast", "decoder_start_token_id": 0},
    },
    "google/flan-ul2": FLAN_UL2,
    # The sizes of its model card, "Architecture", and FLAN-UL2's: "the same configuration as the UL2 model"
    # (transformers, docs/source/en/model_doc/flan-ul2.md).
    "google/ul2": {**FLAN_UL2, "tie_word_embeddings": False},
    "EuroBERT/EuroBERT-210m": {
        **EUROBERT,
        **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12},
        **{"num_attention_heads": 12, "num_key_value_heads": 12},
    },
    "EuroBERT/EuroBERT-610m": {
        **EUROBERT,
        **{"hidden_size": 1152, "intermediate_size": 4096, "num_hidden_layers": 26},
        **{"num_attention_heads": 18, "num_key_value_heads": 6},
    },
    "EuroBERT/EuroBERT-2.1B": {
        **EUROBERT,
        **{"hidden_size": 2304, "intermediate_size": 6144, "num_hidden_layers": 32},
        **{"num_attention_heads": 18, "num_key_value_heads": 6},
    },
    "answerdotai/ModernBERT-base": MODERNBERT,
    "jhu-clsp/ettin-encoder-150m": {**MODERNBERT, "local_rope_theta": 160000.0, "max_position_embeddings": 7999},
    "jhu-clsp/mmBERT-base": {**MODERNBERT, "local_rope_theta": 160000.0, "vocab_size": 256000, "pad_token_id": 0},
    "microsoft/deberta-v3-base": DEBERTA,
    "microsoft/mdeberta-v3-base": {**DEBERTA, "vocab_size": 251000},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_is_read_and_written_again(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name]))
    config = shape_of(str(tmp_path))
    assert config.vocab_size == PUBLISHED[name]["vocab_size"]
    assert read_config(json.dumps(config.to_json()).encode(), location="config.json") == config
    short = name.rpartition("/")[2].lower()
    if isinstance(config, EncoderConfig) and short in MODELS:
        assert shape_of(name) == config


# What the Hub's API says of each model's tensors (read in public notes on transformers b75feb2af64c of May 2026).
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("google/t5gemma-b-b-prefixlm", 591_490_560),
        ("google/t5gemma-9b-2b-ul2", 12_292_375_296),
        ("google/t5gemma-9b-9b-ul2", 20_333_401_088),
    ],
)
def test_a_published_models_parameters_are_those_of_its_shape(name, parameters):
    assert sum(math.prod(layout.shape) for layout in weight_layouts(shape_of(name)).values()) == parameters


def test_modernbert_has_the_bytes_of_its_file():
    """answerdotai/ModernBERT-base, revision 8949b90: 598,635,032 bytes of float32 and a header."""
    parameter_count = sum(
        math.prod(layout.shape) for layout in weight_layouts(filling_masks(MODELS["modernbert-base"])).values()
    )
    assert 0 < 598_635_032 - 4 * parameter_count < 20_000


def test_codet5_plus_2b_is_a_sentence():
    with raises(UsageError, "model.unknown-type", "codet5p", "t5"):
        read_config(json.dumps({"model_type": "codet5p"}).encode(), location="config.json")


def test_each_encoder_is_in_every_list_of_types() -> None:
    encoders = {kind for kind in TYPES if issubclass(_class_of(kind), EncoderConfig)}
    assert encoders == set(CLASS_NAMES) == set(encoder_tokenizer.MODEL_TYPES)
