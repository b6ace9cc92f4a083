"""Separate a model's special tokens from tokens that a user added to its vocabulary, and find both in a tokenizer's folder.

A special token (`</s>`, `[SEP]`, `<extra_id_0>`) has a role in the model, and a text that spells it stays text. An added token
(`{`, `<sep>`, `[E1]`) is found wherever a text contains it, as in transformers.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Literal

from t5prep.errors import TokenizerError
from t5prep.io.model_files import ModelFiles
from t5prep.tokens.tokenizer_document import AddedToken, Document, Model, SmallFile

# EuroBERT has Llama 3's tokenizer, and pads with the token that ends a document (as its authors' conversion does).
PADS, UNKNOWNS, MASKS = ("[PAD]", "<pad>", "<|end_of_text|>"), ("[UNK]", "<unk>"), ("[MASK]", "<mask>")
BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
ENDS = ("</s>", "<eos>")
# Gemma's tokens for dialogues and images. A T5Gemma has no embeddings for some of them.
GEMMA_SPECIAL = (
    *("<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"),
)
LLAMA_SPECIAL = ("<|begin_of_text|>", "<|mask|>", "<|padding|>", "<|endoftext|>")
_ROLES = frozenset((*PADS, *UNKNOWNS, *MASKS, *BERT_SPECIAL, *ROBERTA_SPECIAL, *ENDS, *GEMMA_SPECIAL, *LLAMA_SPECIAL))
SENTINEL = re.compile(r"<extra_id_(\d+)>")
_NUMBERED = re.compile(rf"▁?{SENTINEL.pattern}|<unused\d+>")  # mT5's are pieces with a space before them
CONFIG, ADDED, SPECIAL_MAP = "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"


def has_role(text: str) -> bool:
    """Check whether the token `text` has a role in models: around texts, as padding, or as a sentinel.

    >>> has_role("[SEP]"), has_role("<extra_id_7>"), has_role("<sep>")
    (True, True, False)
    """
    return text in _ROLES or _NUMBERED.fullmatch(text) is not None


def vocabulary(document: Document) -> dict[str, int]:
    """Return the pieces of a `tokenizer.json` → their ids, without its added tokens."""
    pieces = document["model"]["vocab"]
    return dict(pieces) if isinstance(pieces, dict) else {text: id for id, (text, *_) in enumerate(pieces)}


def unigram_pieces(model: Model) -> list[tuple[str, float]]:
    """Return the pieces of a Unigram model with their scores. Raises ValueError for another kind of model."""
    if isinstance(model["vocab"], dict):
        raise ValueError("its pieces have no scores")
    return model["vocab"]


def added_by_users(document: Document, *, frame_ids: Iterable[int] = ()) -> list[AddedToken]:
    """Return the added tokens of a `tokenizer.json` without a role. frame_ids: the ids of the tokens around texts."""
    ids = {*frame_ids}
    return [
        token
        for token in document.get("added_tokens") or []
        if not has_role(str(token["content"])) and not (token.get("special") and int(token["id"]) in ids)
    ]


def read_object(files: ModelFiles, name: str) -> SmallFile:
    """Return the content of the small file `name`; an empty dict if the file is missing or damaged."""
    content: SmallFile = _parsed(files, name)
    return content


def _parsed(files: ModelFiles, name: str) -> Any:
    if name not in files.names:
        return {}
    try:
        return dict(json.loads(files.read(name)))
    except (ValueError, TypeError, RecursionError):
        return {}


def in_small_files(files: ModelFiles) -> list[AddedToken]:
    """Return the tokens in `tokenizer_config.json` and `added_tokens.json`, with and without a role, sorted by id.

    A token that only `added_tokens.json` has gets the flags that transformers gives it.
    """
    config = read_object(files, CONFIG)
    decoder = config.get("added_tokens_decoder") or {}
    tokens = {int(id): AddedToken(**{**flags, "id": int(id)}) for id, flags in decoder.items()}
    special = set(special_texts(files))
    ids: dict[str, int] = _parsed(files, ADDED)
    for text, id in ids.items():
        if int(id) not in tokens:
            tokens[int(id)] = added(int(id), text, special=text in special, normalized=text not in special)
    return [tokens[id] for id in sorted(tokens)]


def special_texts(files: ModelFiles) -> list[str]:
    """Return the texts of the additional special tokens in the small files, such as `additional_special_tokens`."""
    texts: dict[str, None] = {}
    for name in (CONFIG, SPECIAL_MAP):
        content = read_object(files, name)
        for listed in (content.get("additional_special_tokens"), content.get("extra_special_tokens")):
            for token in listed.values() if isinstance(listed, dict) else listed or []:
                texts[token if isinstance(token, str) else token["content"]] = None
    return [*texts]


def save_command(name: str) -> str:
    """Return the command that lets transformers write the tokenizer.json of the folder `name`."""
    return (
        f"python -c \"import transformers as t; t.AutoTokenizer.from_pretrained('{name}').save_pretrained('{name}')\""
    )


def added(id: int, content: str, *, special: bool = True, normalized: bool = False) -> AddedToken:
    """Return an entry of `added_tokens` in a `tokenizer.json`: a token that is found before the model tokenizes a text."""
    return {
        "id": id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": normalized,
        "special": special,
    }


def merge_added(document: Document, tokens: Iterable[AddedToken], *, name: str) -> Document:
    """Return a `tokenizer.json` with the `tokens` of the small files added. Raises TokenizerError if they contradict each other.

    transformers adds a missing token after the last id, so its id in the small files must be the next one.
    """
    ids = vocabulary(document) | {str(token["content"]): int(token["id"]) for token in document["added_tokens"]}
    document_tokens = {str(token["content"]): token for token in document["added_tokens"]}
    listed, last = list(document["added_tokens"]), max(ids.values(), default=-1)
    for token in tokens:
        text, id = str(token["content"]), int(token["id"])
        if text in ids and ids[text] != id:
            raise TokenizerError(
                f"{name}: the token {text!r} has the id {ids[text]:,} in the vocabulary, but {id:,} in "
                f"{CONFIG}. Save the tokenizer again with the library that created it.",
                code="tokenizer.inconsistent-ids",
            )
        if text in document_tokens:
            differing = [flag for flag in _FLAGS if flag in token and token[flag] != document_tokens[text].get(flag)]
            if differing and not has_role(text):
                raise TokenizerError(
                    f"{name}: for the token {text!r}, {differing[0]} is {document_tokens[text].get(differing[0])} "
                    f"in tokenizer.json, but {token[differing[0]]} in {CONFIG}. Write the same value in both "
                    "files.",
                    code="tokenizer.config-conflict",
                )
            continue
        if text not in ids:
            if id != last + 1:
                raise TokenizerError(
                    f"{name}: {CONFIG} gives the token {text!r} the id {id:,}, but the last id of the vocabulary "
                    f"is {last:,}. Save the tokenizer again with the library that created it.",
                    code="tokenizer.inconsistent-ids",
                )
            last = id
        listed.append({**added(id, text), **token})
    return {**document, "added_tokens": sorted(listed, key=lambda token: int(token["id"]))}


_FLAGS: tuple[Literal["single_word", "lstrip", "rstrip", "normalized"], ...] = (
    "single_word",
    "lstrip",
    "rstrip",
    "normalized",
)
