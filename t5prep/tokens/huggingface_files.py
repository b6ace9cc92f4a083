"""Write a tokenizer as a directory that `transformers.AutoTokenizer` loads, built from the SentencePiece model itself.

`tokenizer.json` has the form of T5's own: the model's character map, runs of spaces made one, pieces with their scores,
and one EOS after each text. It names `PreTrainedTokenizerFast`, not `T5Tokenizer`, because T5Tokenizer of transformers
5 rebuilds its steps and loses byte fallback. The remaining differences are listed in tests/prepare/test_identity.py.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5prep.io import atomic_files
from t5prep.tokens import model_proto
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.tokenizer import SENTINEL_TEXTS, SENTINELS, Tokenizer

MODEL_NAME = "spiece.model"
NAMES = (MODEL_NAME, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")
# The length above which the tokenizer warns; it does not cut.
MODEL_MAX_LENGTH = 512


def write(out: Path, tokenizer: Tokenizer, *, config: Mapping[str, Any]) -> None:
    """Write the model, tokenizer.json, its two small companions and a model's `config.json`. Raises OutputError.

    `config` gets this tokenizer's padded vocabulary size and special ids.
    """
    special = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MODEL_MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        "extra_ids": SENTINELS,
        **special,
        "additional_special_tokens": SENTINEL_TEXTS,
    }
    shape = {
        **config,
        "vocab_size": tokenizer.padded_size,
        "pad_token_id": tokenizer.pad_id,
        "eos_token_id": tokenizer.eos_id,
        "decoder_start_token_id": tokenizer.pad_id,
    }
    if tokenizer.is_bytes:  # transformers has these 256 tokens in code
        described = {"tokenizer_class": "ByT5Tokenizer", "model_max_length": MODEL_MAX_LENGTH, **special}
        described["extra_ids"] = tokenizer.padded_size - tokenizer.size
        for name, data in ((MODEL_NAME, tokenizer.model), (NAMES[2], _dumped(described)), (NAMES[4], _dumped(shape))):
            atomic_files.write_whole(out / name, data)
        return
    contents = (
        tokenizer.model,
        _dumped(tokenizer_json(tokenizer)),
        _dumped(described),
        _dumped({**special, "additional_special_tokens": SENTINEL_TEXTS}),
        _dumped(shape),
    )
    for name, data in zip(NAMES, contents, strict=True):
        atomic_files.write_whole(out / name, data)


def write_encoders(out: Path, tokenizer: EncoderTokenizer, *, config: Mapping[str, Any]) -> None:
    """Write an encoder's tokenizer.json and the file from which AutoTokenizer learns its special tokens.

    config: the model's, which tells whether a pair's texts have embeddings of their own. Raises OutputError.
    """
    special = {
        "cls_token": tokenizer.piece(tokenizer.frame.first[0]),
        "sep_token": tokenizer.piece(tokenizer.eos_id),
        "pad_token": tokenizer.piece(tokenizer.pad_id),
        "unk_token": tokenizer.piece(tokenizer.unk_id),
    }
    segments = ["token_type_ids"] if config.get("type_vocab_size", 0) > 1 else []
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config["max_position_embeddings"],
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        **special,
    }
    atomic_files.write_whole(out / tokenizer.file_name, tokenizer.model)
    atomic_files.write_whole(out / NAMES[2], _dumped(described))


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of `tokenizer.json`, as the `tokenizers` library reads it."""
    model = tokenizer.processor
    eos = model.id_to_piece(tokenizer.eos_id)
    charsmap = base64.b64encode(model_proto.charsmap(tokenizer.model)).decode()
    controls = [id for id in range(tokenizer.vocab_size) if model.is_control(id) or model.is_unknown(id)]
    added = [(id, model.id_to_piece(id)) for id in controls]
    added += [(tokenizer.vocab_size + place, sentinel) for place, sentinel in enumerate(reversed(SENTINEL_TEXTS))]
    white = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    normalizers: list[dict[str, Any]] = [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    if charsmap:
        normalizers.insert(0, {"type": "Precompiled", "precompiled_charsmap": charsmap})
    pieces = [[model.id_to_piece(id), model.get_score(id)] for id in range(tokenizer.vocab_size)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(id, content) for id, content in added],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": white,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_text("A"), _end(eos)],
            "pair": [_text("A"), _end(eos), _text("B"), _end(eos)],
            "special_tokens": {eos: {"id": eos, "ids": [tokenizer.eos_id], "tokens": [eos]}},
        },
        "decoder": _bytes_decoder() if tokenizer.facts.byte_fallback else white,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [*pieces, *([sentinel, 0.0] for sentinel in reversed(SENTINEL_TEXTS))],
            "byte_fallback": tokenizer.facts.byte_fallback,
        },
    }


def _added(id: int, content: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": id, "content": content, **flags}


def _text(name: str) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": 0}}


def _end(eos: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": eos, "type_id": 0}}


def _bytes_decoder() -> dict[str, Any]:
    """Return a decoder that joins bytes into characters, then joins pieces, and drops the leading space."""
    steps = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    return {"type": "Sequence", "decoders": steps}


def _dumped(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
