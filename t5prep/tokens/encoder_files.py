"""Find out whether a model's files hold an encoder's tokenizer, and return it as the content of a `tokenizer.json`."""

import json
from collections.abc import Mapping
from typing import Any

from t5prep.errors import TokenizerError
from t5prep.io.model_files import ModelFiles
from t5prep.tokens import encoder_json

MODEL_TYPES = ("bert", "distilbert", "roberta", "albert", "electra")
JSON, WORDS, PAIRS, MERGES = "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt"
FILES = (JSON, WORDS, f"{PAIRS} with {MERGES}")


def tokenizer_json(files: ModelFiles) -> bytes | None:
    """Return an encoder's tokenizer; None where the files are of another model, or of none that is known.

    Raises TokenizerError where an encoder has no vocabulary that can be read.
    """
    config = _object(files, "tokenizer_config.json")
    kind = str(_object(files, "config.json").get("model_type") or config.get("tokenizer_class") or "").lower()
    # "XLMRobertaTokenizer" is not a name of these, and "BertTokenizerFast" is.
    is_encoders = any(kind == known or kind.startswith(f"{known}tokenizer") for known in MODEL_TYPES)
    has_sentencepiece = any(name.endswith(".model") for name in files.names)
    if not is_encoders and (kind or has_sentencepiece):
        return None
    try:
        if JSON in files.names:
            content = files.read(JSON)
            return content if is_encoders or encoder_json.frame_of(json.loads(content)) else None
        if WORDS in files.names:
            lines = files.read(WORDS).decode().removesuffix("\n").split("\n")  # some pieces are other line breaks
            return encoder_json.word_pieces([line.removesuffix("\r") for line in lines], config)
        if {PAIRS, MERGES} <= files.names:
            merges = files.read(MERGES).decode().split("\n")
            return encoder_json.byte_pairs(json.loads(files.read(PAIRS)), merges, config)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TokenizerError(
            f"The vocabulary of {files.name} cannot be read ({error!r:.80}): fetch it again."
        ) from error
    if is_encoders:
        raise TokenizerError(f"{files.name} holds no tokenizer; one of {', '.join(FILES)} is looked for.")
    return None


def _object(files: ModelFiles, name: str) -> Mapping[str, Any]:
    """Return a JSON file's content; an empty dict where the file is not there, or is damaged."""
    if name not in files.names:
        return {}
    try:
        return dict(json.loads(files.read(name)))
    except (ValueError, TypeError, RecursionError):
        return {}
