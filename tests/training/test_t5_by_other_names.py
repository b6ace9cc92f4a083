"""Models that are T5s by their `config.json`, under other names: their entries, and those of their tokenizers."""

import dataclasses
import json

import pytest
from raised import raises

from t5prep.errors import UsageError
from t5prep.tokens import loading
from t5prep.tokens.model_proto import CONTROL, UNKNOWN, Normalization, Piece, build
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.model.architecture import ModelConfig, read_config
from t5prep.training.model.weights import random_weights, save_weights
from t5prep.training.run import run
from t5prep.training.settings import train_config
from tests import encoders

# google/madlad400-3b-mt, as CrispStrobe/CrispASR (8c5818d, models/convert-madlad-to-gguf.py) has its sizes and ids.
MADLAD = {
    "model_type": "t5",
    "architectures": ["T5ForConditionalGeneration"],
    "d_model": 1024,
    "d_kv": 128,
    "d_ff": 8192,
    "num_heads": 16,
    "num_layers": 32,
    "num_decoder_layers": 32,
    "vocab_size": 256000,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-06,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}
# EleutherAI/improved-t5 (619e3fd, convert_weights/configs/base_v2/config.json): what Pile-T5-base was converted with.
PILE_T5 = {
    "architectures": ["UMT5ForConditionalGeneration"],
    "d_ff": 2048,
    "d_kv": 64,
    "d_model": 768,
    "decoder_start_token_id": 0,
    "dense_act_fn": "gelu_new",
    "dropout_rate": 0.1,
    "eos_token_id": 2,
    "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "is_gated_act": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "umt5",
    "num_decoder_layers": 12,
    "num_heads": 12,
    "num_layers": 12,
    "output_past": True,
    "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "scalable_attention": True,
    "tie_word_embeddings": False,
    "tokenizer_class": "LlamaTokenizerFast",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.31.0",
    "use_cache": True,
    "vocab_size": 32128,
}
SMALL = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}


def read(entries) -> ModelConfig:
    return read_config(json.dumps(entries).encode(), location="config.json")


def test_madlad_is_a_t5_1_1_with_ids_of_its_own():
    config = read(MADLAD)
    assert (config.gated, config.tie_word_embeddings, config.scale_decoder_outputs) == (True, False, False)
    assert (config.pad_token_id, config.eos_token_id, config.decoder_start_token_id) == (1, 2, 0)
    assert read(config.to_json()) == config


def test_pile_t5_is_a_umt5_whose_end_is_llamas():
    config = read(PILE_T5)
    assert (config.bias_in_every_layer, config.gated, config.tie_word_embeddings, config.vocab_size) == (
        True,
        True,
        False,
        32128,
    )
    assert (config.pad_token_id, config.eos_token_id, config.decoder_start_token_id) == (0, 2, 0)
    assert (
        config.to_json().items()
        >= {name: PILE_T5[name] for name in ("d_ff", "d_kv", "num_heads", "eos_token_id")}.items()
    )
    assert read(config.to_json()) == config


@pytest.mark.parametrize(("kind", "tied"), [("t5", True), ("mt5", False), ("umt5", False)])
def test_a_config_that_leaves_out_whether_it_is_tied(kind, tied):
    """As a T5 1.0 (CodeT5), an mT5 (Aya-101) and a umT5 (Pile-T5)."""
    config = read({"model_type": kind, "vocab_size": 32128, **SMALL})
    assert (config.tie_word_embeddings, config.bias_in_every_layer) == (tied, kind == "umt5")


@pytest.fixture
def madlad(tmp_path):
    """A small model with Madlad's ids: `<unk>`, `<s>` and `</s>`, no `<pad>`, and no embeddings for sentinels."""
    pieces = [
        Piece("<unk>", kind=UNKNOWN),
        Piece("<s>", kind=CONTROL),
        Piece("</s>", kind=CONTROL),
        Piece("<2de>", -1.0),
    ]
    pieces += [Piece(text, -2.0) for text in ("▁", "a", "b", "▁a")]
    content = bytearray(build(pieces, Normalization("identity")))
    # `build` writes that there is no piece for the beginning of a text: field 41 of the TrainerSpec, -1 as a varint.
    none = bytes([0xC8, 0x02]) + b"\xff" * 9 + b"\x01"
    assert content.count(none) == 1
    content = content.replace(none, bytes([0xC8, 0x02, 0x81]) + b"\x80" * 8 + b"\x00")  # 1, as long as -1
    folder = tmp_path / "madlad"
    folder.mkdir()
    (folder / "spiece.model").write_bytes(content)
    config = dataclasses.replace(read(MADLAD | SMALL), vocab_size=len(pieces))
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    save_weights(folder, config, random_weights(config))
    return folder


def test_madlad_pads_with_what_begins_a_text(madlad):
    tokenizer = loading.load(str(madlad))
    assert type(tokenizer) is Tokenizer
    assert (tokenizer.unk_id, tokenizer.pad_id, tokenizer.eos_id, tokenizer.vocab_size) == (0, 1, 2, 8)
    assert tokenizer.decode([1, *tokenizer.encode("a b"), 2, 1]) == "a b </s>"


def test_data_without_sentinels_trains_a_model_that_has_none(madlad):
    tokenizer, config = loading.load(str(madlad)), train_config.build({"model": str(madlad)})
    shape, weights, model_tokenizer = run.start_from(config, ids=tokenizer.size, needed=tokenizer.vocab_size)
    assert (shape.vocab_size, weights["shared"].shape[0], model_tokenizer.sha256) == (8, 8, tokenizer.sha256)
    with raises(UsageError, "model.missing-sentinels", "8"):
        run.start_from(config, ids=tokenizer.size, needed=tokenizer.size)


def test_codet5s_ids_are_those_of_its_tokenizer(tmp_path):
    """salesforce/CodeT5 (71ccd12, CodeT5/tokenizer/salesforce/codet5-vocab.json) has these five first."""
    tokenizer = loading.load(str(encoders.codet5(tmp_path / "codet5")))
    config = read(
        {
            "model_type": "t5",
            "vocab_size": tokenizer.size,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            **SMALL,
        }
    )
    assert (config.pad_token_id, config.eos_token_id) == (tokenizer.pad_id, tokenizer.eos_id)
    assert config.vocab_size == tokenizer.size == tokenizer.sentinel(0) + 1
