"""Write a tokenizer as a directory that `transformers.AutoTokenizer` loads, built from the SentencePiece model.

Its `tokenizer.json` has the form of T5's: the model's character map, single spaces for runs of spaces, pieces with their
scores, and an EOS after each text. The class is `PreTrainedTokenizerFast` and not `T5Tokenizer`, because T5Tokenizer of
transformers 5 rebuilds the steps and loses byte fallback. tests/preparation/test_identity.py lists the remaining
differences from SentencePiece's ids.
"""

import json
from pathlib import Path

from t5prep.io import atomic_files
from t5prep.json_values import JSON, JSONObject
from t5prep.tokens import model_proto
from t5prep.tokens.encoder_tokenizer import SPACES, EncoderTokenizer, normalizer, template
from t5prep.tokens.special_tokens import added
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.tokens.tokenizer_document import Document, Step

MODEL_NAME = "spiece.model"
NAMES = (MODEL_NAME, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")
# The length above which transformers warns; nothing is cut.
MODEL_MAX_LENGTH = 512


def write(out: Path, tokenizer: Tokenizer, *, config: JSONObject) -> None:
    """Write the tokenizer's files and a model's `config.json` to the folder `out`. Raises OutputError.

    In the written config, vocabulary size and special ids are those of the tokenizer.
    """
    special = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    texts = _sentinel_texts(tokenizer)
    sentinels: JSONObject = {"additional_special_tokens": texts} if texts else {}
    if _is_bpe(tokenizer):
        pieces = (tokenizer.eos_id, tokenizer.pad_id, tokenizer.unk_id)
        special = dict(zip(special, map(tokenizer.processor.id_to_piece, pieces), strict=True))
    described: dict[str, JSON] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MODEL_MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        **({} if _is_bpe(tokenizer) else {"extra_ids": len(texts)}),
        **special,
        **sentinels,
    }
    shape = {
        **config,
        "vocab_size": tokenizer.padded_size,
        "pad_token_id": tokenizer.pad_id,
        "eos_token_id": tokenizer.eos_id,
        "decoder_start_token_id": tokenizer.pad_id,
    }
    if tokenizer.is_bytes:  # ByT5Tokenizer of transformers has its 256 tokens in its code, and reads no tokenizer.json
        described = {"tokenizer_class": "ByT5Tokenizer", "model_max_length": MODEL_MAX_LENGTH, **special}
        described["extra_ids"] = tokenizer.padded_size - tokenizer.size
        for name, data in ((MODEL_NAME, tokenizer.model), (NAMES[2], _dumped(described)), (NAMES[4], _dumped(shape))):
            atomic_files.write_whole(out / name, data)
        return
    contents = (
        tokenizer.model,
        _dumped(tokenizer_json(tokenizer)),
        _dumped(described),
        _dumped({**special, **sentinels}),
        _dumped(shape),
    )
    for name, data in zip(NAMES, contents, strict=True):
        atomic_files.write_whole(out / name, data)


def write_encoders(out: Path, tokenizer: EncoderTokenizer, *, config: JSONObject) -> None:
    """Write a tokenizer.json, and the tokenizer_config.json that tells AutoTokenizer the special tokens. Raises OutputError.

    config: the model's config.json, which decides whether the tokenizer returns `token_type_ids`.
    """
    if not tokenizer.is_encoders:
        return _write_texts(out, tokenizer)
    special = {
        "cls_token": tokenizer.piece(tokenizer.frame.first[0]),
        "sep_token": tokenizer.piece(tokenizer.eos_id),
        "pad_token": tokenizer.piece(tokenizer.pad_id),
        "unk_token": tokenizer.piece(tokenizer.unk_id),
    }
    segments = ["token_type_ids"] if config.get("type_vocab_size") not in (None, 0, 1) else []
    described: dict[str, JSON] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config["max_position_embeddings"],
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        **special,
    }
    atomic_files.write_whole(out / tokenizer.file_name, tokenizer.model)
    atomic_files.write_whole(out / NAMES[2], _dumped(described))


def _write_texts(out: Path, tokenizer: EncoderTokenizer) -> None:
    """Write the tokenizer.json of a model that writes texts, with the special tokens that training put around texts."""
    document: Document = json.loads(tokenizer.model)
    first, (eos,) = tokenizer.frame.first, tokenizer.frame.last
    post_processor = template({tokenizer.piece(id): id for id in first}, {tokenizer.piece(eos): eos})
    kinds = {"eos_token": eos, "pad_token": tokenizer.pad_id, "unk_token": tokenizer.unk_id}
    described: dict[str, JSON] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MODEL_MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        **{kind: tokenizer.piece(id) for kind, id in kinds.items()},
    }
    atomic_files.write_whole(out / tokenizer.file_name, _dumped({**document, "post_processor": post_processor}))
    atomic_files.write_whole(out / NAMES[2], _dumped(described))


def tokenizer_json(tokenizer: Tokenizer) -> Document:
    """Return the content of a `tokenizer.json` for a SentencePiece model."""
    if _is_bpe(tokenizer):
        return _of_bpe(tokenizer)
    model = tokenizer.processor
    eos = model.id_to_piece(tokenizer.eos_id)
    controls = [id for id in range(tokenizer.vocab_size) if model.is_control(id) or model.is_unknown(id)]
    tokens = [(id, model.id_to_piece(id)) for id in controls]
    above = [f"<extra_id_{number}>" for number in reversed(range(tokenizer.size - tokenizer.vocab_size))]
    tokens += list(enumerate(above, start=tokenizer.vocab_size))
    pieces = [(model.id_to_piece(id), model.get_score(id)) for id in range(tokenizer.vocab_size)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(*token) for token in tokens],
        "normalizer": normalizer(tokenizer.model),
        "pre_tokenizer": SPACES,
        "post_processor": template({}, {eos: tokenizer.eos_id}),
        "decoder": _bytes_decoder() if tokenizer.facts.byte_fallback else SPACES,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [*pieces, *((sentinel, 0.0) for sentinel in above)],
            "byte_fallback": tokenizer.facts.byte_fallback,
        },
    }


def _sentinel_texts(tokenizer: Tokenizer) -> list[str]:
    """Return the texts of the sentinels that are special tokens. Those of mT5 and Gemma are pieces, so there are none."""
    if _is_bpe(tokenizer):
        return []
    is_token = tokenizer.size > tokenizer.vocab_size or tokenizer.processor.is_control(tokenizer.sentinel(0))
    return [f"<extra_id_{number}>" for number in range(tokenizer.sentinels if is_token else 0)]


def _is_bpe(tokenizer: Tokenizer) -> bool:
    return tokenizer.facts.model_type == model_proto.BPE


def _of_bpe(tokenizer: Tokenizer) -> Document:
    """Return the tokenizer.json of a BPE model that changes no character except spaces, in the form of Gemma's.

    SentencePiece stores no merges. It merges two pieces if their concatenation is a piece, the one with the highest score first,
    so the list of merges is derived from the scores. Pieces defined by the model's author (Gemma's newlines, tags and runs of
    spaces) are found before anything is merged.
    """
    model, size = tokenizer.processor, tokenizer.vocab_size
    pieces = model.id_to_piece(list(range(size)))
    by_hand = [id for id in range(size) if model.is_control(id) or model.is_unknown(id)]
    no_merges = {*by_hand, *(id for id in range(size) if model.is_byte(id))}
    defined = model_proto.defined_by_users(tokenizer.model)
    ids = {piece: id for id, piece in enumerate(pieces)}
    merges = []
    for id, piece in enumerate(pieces):
        halves = [(piece[:position], piece[position:]) for position in range(1, len(piece)) if id not in no_merges]
        candidates = [(ids[left], ids[right], left, right) for left, right in halves if left in ids and right in ids]
        merges += [(-model.get_score(id), *pair) for pair in sorted(candidates)]
    merges.sort(key=lambda entry: entry[0])
    eos = pieces[tokenizer.eos_id]
    tokens = [added(id, pieces[id]) for id in by_hand]
    tokens += [added(id, pieces[id], special=False, normalized=True) for id in defined]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(tokens, key=lambda entry: int(entry["id"])),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None,
        "post_processor": template({}, {eos: tokenizer.eos_id}),
        "decoder": {"type": "Sequence", "decoders": _bytes_decoder()["decoders"][:3]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": pieces[tokenizer.unk_id],
            "fuse_unk": True,
            "byte_fallback": tokenizer.facts.byte_fallback,
            "vocab": ids,
            "merges": [[left, right] for *_, left, right in merges],
        },
    }


def _bytes_decoder() -> Step:
    """Return a decoder that joins bytes into characters, joins pieces, and removes the leading space."""
    steps: list[Step] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    return {"type": "Sequence", "decoders": steps}


def _dumped(value: JSONObject | Document) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
