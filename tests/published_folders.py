"""Tokenizer folders with the files and fields that published models have, and vocabularies trained on a few lines.

A vocabulary of SentencePiece trained by one thread on the same lines is the same each time.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import encoders

T5_ROLES = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
LINES = [line for line in Path(__file__).read_text().splitlines() if line.strip()] + encoders.SENTENCES[:5]
LINES += ["see é and ẹ, か and が"]
TRAINED_FOR = {
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "deberta": {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    | {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
}


def sentinels(count: int) -> list[str]:
    return [f"<extra_id_{number}>" for number in range(count)]


def pieces(roles: str, **options: Any) -> bytes:
    """Return a SentencePiece model with the special pieces of a family."""
    import sentencepiece

    buffer = io.BytesIO()
    options = {"vocab_size": 900, "hard_vocab_limit": False, "character_coverage": 1.0, **TRAINED_FOR[roles], **options}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=buffer, num_threads=1, minloglevel=2, **options
    )
    return buffer.getvalue()


def written(folder: Path, files: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def t5_v1_1(folder: Path) -> Path:
    """google/t5-v1_1-*: a model of 32,000 pieces, 100 sentinels above them, 32,128 embeddings, no tokenizer.json."""
    special = {**T5_ROLES, "additional_special_tokens": sentinels(100)}
    described = {**special, "extra_ids": 100, "model_max_length": 512, "name_or_path": "t5-base"}
    config = {"model_type": "t5", "vocab_size": 1152}
    files = {"tokenizer_config.json": described, "special_tokens_map.json": special, "config.json": config}
    return written(folder, {"spiece.model": pieces("t5"), **files})


def umt5(folder: Path) -> Path:
    """google/umt5-*: 300 sentinels, more embeddings than tokens."""
    special = {**T5_ROLES, "additional_special_tokens": sentinels(300)}
    described = {**special, "extra_ids": 300, "legacy": True, "sp_model_kwargs": {}, "tokenizer_class": "T5Tokenizer"}
    described |= {"clean_up_tokenization_spaces": True, "model_max_length": 1000000000000000019884624838656}
    config = {"model_type": "umt5", "tokenizer_class": "T5Tokenizer", "vocab_size": 2048}
    files = {"tokenizer_config.json": described, "special_tokens_map.json": special, "config.json": config}
    return written(folder, {"spiece.model": pieces("t5", byte_fallback=True), **files})


def mt5(folder: Path) -> Path:
    """google/mt5-*: the bytes and the sentinels are pieces, `"extra_ids": 0`."""
    described = {**T5_ROLES, "extra_ids": 0, "additional_special_tokens": None, "tokenizer_class": "T5Tokenizer"}
    config = {"model_type": "mt5", "tokenizer_class": "T5Tokenizer", "vocab_size": 1280}
    sentinel_pieces = [f"▁{text}" for text in reversed(sentinels(100))]
    model = pieces("t5", byte_fallback=True, user_defined_symbols=sentinel_pieces)
    files = {"tokenizer_config.json": described, "special_tokens_map.json": T5_ROLES, "config.json": config}
    return written(folder, {"spiece.model": model, **files})


def byt5(folder: Path) -> Path:
    """google/byt5-*: no vocabulary, 125 sentinels by name, 384 embeddings."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "__type": "AddedToken"}
    special = {role: {"content": text, **flags} for role, text in T5_ROLES.items()}
    described = {**special, "extra_ids": 125, "additional_special_tokens": sentinels(125)}
    described["tokenizer_class"] = "ByT5Tokenizer"
    config = {"model_type": "t5", "tokenizer_class": "ByT5Tokenizer", "vocab_size": 384}
    return written(folder, {"tokenizer_config.json": described, "config.json": config})


def deberta(folder: Path) -> Path:
    """microsoft/deberta-v3-*: spm.model, whose [MASK] transformers adds, and a config of two fields."""
    described = {"do_lower_case": False, "vocab_type": "spm"}
    config = {"model_type": "deberta-v2", "vocab_size": 1024}
    return written(folder, {"spm.model": pieces("deberta"), "tokenizer_config.json": described, "config.json": config})


FAMILIES: dict[str, Callable[[Path], Path]] = {
    **{make.__name__: make for make in (t5_v1_1, umt5, mt5, byt5, deberta)},
    **{make.__name__: make for make in (encoders.codet5, encoders.bert, encoders.roberta, encoders.modernbert)},
    "xlm_roberta": encoders.xlm_roberta,
}
