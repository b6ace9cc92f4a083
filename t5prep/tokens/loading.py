"""Find a tokenizer by the name that the user gives: `sample:`, a file, a directory, a Hub name.

A `tokenizer.json` of the `tokenizers` library becomes a SentencePiece model where it provably gives the same ids: a
Unigram model, the normalizers that SentencePiece has (a compiled character map; the rules NMT and NFKC), spaces as `▁`,
and splitting at digits and punctuation where no piece crosses such a border. Spaces around a text are dropped, as
SentencePiece does. One with a BPE model, CodeT5's or Gemma's, is read by that library itself (`bpe_tokenizer`).
"""

import base64
import difflib
import functools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import sentencepiece

from t5prep.errors import TokenizerError, UsageError
from t5prep.io import model_files, paths
from t5prep.io.model_files import ModelFiles
from t5prep.tokens import bpe_tokenizer, encoder_tokenizer, model_proto
from t5prep.tokens.bpe_tokenizer import BpeTokenizer
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.model_proto import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Normalization, Piece, build
from t5prep.tokens.tokenizer import SENTINEL_TEXTS, Tokenizer

SPACE = "▁"
_RUNS_OF_SPACES = ({"Regex": " {2,}"}, {"String": "  "})


class _Unlike(Exception):  # noqa: N818 - its message is the end of a TokenizerError's sentence
    """Name the part of a file that SentencePiece does not do in the same way."""


def convert(content: bytes, *, name: str) -> bytes:
    """Return a serialized SentencePiece model for the content of a tokenizer.json.

    Raises TokenizerError, naming `name`, when it is damaged or no SentencePiece model gives the same ids.
    """
    try:
        document = json.loads(content)
        model = document["model"]
        if model.get("type", "Unigram") != "Unigram" or "vocab" not in model:
            raise _Unlike(f"its model is {model.get('type', 'of another kind')}, and T5's tokenizers are Unigram")
        pieces = _pieces(model, document.get("added_tokens") or [])
        _check_borders(document.get("pre_tokenizer"), pieces)
        return build(pieces, _normalization(document.get("normalizer"), document.get("pre_tokenizer")))
    except _Unlike as error:
        raise TokenizerError(f"{name}: tokenizer.json cannot be used, for {error}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise TokenizerError(f"{name}: tokenizer.json is damaged ({type(error).__name__}). Fetch it again.") from error


def _pieces(model: Mapping[str, Any], added: Iterable[Mapping[str, Any]]) -> list[Piece]:
    """Return the pieces in the order of their ids, without T5's sentinels where these come last."""
    if model.get("unk_id") is None:
        raise _Unlike("it has no unknown token")
    by_id = {place: Piece(str(text), float(score)) for place, (text, score) in enumerate(model["vocab"])}
    if model.get("byte_fallback"):
        by_id |= {i: Piece(p.text, p.score, BYTE) for i, p in by_id.items() if re.fullmatch("<0x[0-9A-F]{2}>", p.text)}
    for token in added:
        kind = CONTROL if token.get("special") else USER_DEFINED
        by_id[int(token["id"])] = Piece(str(token["content"]), kind=kind)
    unknown = int(model["unk_id"])
    by_id[unknown] = Piece(by_id[unknown].text, kind=UNKNOWN)
    if by_id[unknown].text != "<unk>" or sorted(by_id) != list(range(len(by_id))):
        raise _Unlike("its ids are not those of a T5")
    pieces = [by_id[place] for place in range(len(by_id))]
    texts = [piece.text for piece in pieces]
    sentinels = [place for place, text in enumerate(texts) if text in SENTINEL_TEXTS]
    if not sentinels:
        return pieces
    first = texts.index(SENTINEL_TEXTS[0]) if SENTINEL_TEXTS[0] in texts else -1
    if texts[first - len(SENTINEL_TEXTS) + 1 : first + 1] != SENTINEL_TEXTS[::-1]:
        raise _Unlike("its <extra_id_…> are not in T5's order, from the last id down")
    if first == len(pieces) - 1:
        return pieces[: -len(SENTINEL_TEXTS)]
    return [Piece(piece.text, kind=CONTROL) if piece.text in SENTINEL_TEXTS else piece for piece in pieces]


def _normalization(normalizer: Any, splitter: Any) -> Normalization:
    """Return the normalization that SentencePiece has to do. Raises _Unlike for a step that it does not have."""
    charsmap, rules = b"", []
    for step in encoder_tokenizer.steps(normalizer, "normalizers"):
        kind = step["type"]
        if kind == "Precompiled":
            charsmap = base64.b64decode(step["precompiled_charsmap"] or "")
        elif kind in ("Nmt", "NFKC"):
            rules.append(kind)
        elif kind == "Replace" and step["pattern"] in _RUNS_OF_SPACES and step["content"] in (" ", SPACE):
            continue
        elif kind != "Strip":
            raise _Unlike(f"its normalizer {kind} is none of SentencePiece's")
    if rules and charsmap:
        raise _Unlike("it normalizes twice")
    if not any(step["type"] == "Metaspace" for step in encoder_tokenizer.steps(splitter, "pretokenizers")):
        raise _Unlike(f"it does not write spaces as {SPACE} (Metaspace)")
    if rules == ["NFKC"]:
        return Normalization("nfkc", rule("nfkc"))
    if rules:
        return Normalization("nmt_nfkc", rule("nmt_nfkc"))
    if not charsmap:
        return Normalization("identity")
    return Normalization("nmt_nfkc" if charsmap == rule("nmt_nfkc") else "precompiled", charsmap)


@functools.cache
def rule(name: str) -> bytes:
    """Return the compiled character map of one of SentencePiece's own rules."""
    spec = sentencepiece.SentencePieceNormalizer(rule_name=name).serialized_model_proto()
    return model_proto.charsmap(spec)


def _check_borders(splitter: Any, pieces: Iterable[Piece]) -> None:
    """Raise _Unlike if the way to split texts would change the ids that the pieces alone give."""
    crossed: dict[str, Any] = {
        "Digits": lambda character: character.isnumeric(),
        "Punctuation": lambda character: (
            (character.isascii() and not character.isalnum() and character.isprintable())
            or unicodedata.category(character).startswith("P")
        ),
    }
    longer = [piece.text for piece in pieces if len(piece.text) > 1 and piece.kind == NORMAL]
    for step in encoder_tokenizer.steps(splitter, "pretokenizers"):
        kind = step["type"]
        if kind == "Metaspace":
            if step.get("replacement") != SPACE or step.get("prepend_scheme", "always") == "never":
                raise _Unlike("it puts no space before a text")
            if step.get("add_prefix_space") is False:
                raise _Unlike("it puts no space before a text")
        elif kind in crossed and (kind != "Digits" or step.get("individual_digits")):
            across = [text for text in longer if any(map(crossed[kind], text))]
            if across:
                raise _Unlike(f"it splits at {kind.lower()}, and its piece {across[0]!r} goes across")
        elif kind != "WhitespaceSplit":
            raise _Unlike(f"its pre-tokenizer {kind} is not known")


# The file names of a SentencePiece model in directories of Hugging Face layout.
MODEL_NAMES = ("spiece.model", "sentencepiece.model", "tokenizer.model", "sentencepiece.bpe.model")
# The file of the `tokenizers` library, read where there is no SentencePiece model, and the one that names ByT5's class
JSON_NAME, CONFIG_NAME = "tokenizer.json", "tokenizer_config.json"
BYTES_CLASS = "ByT5Tokenizer"


def load(name: str) -> Tokenizer:
    """Return the tokenizer of a name: `sample:`, a file, a directory that holds one, or a Hub name.

    Raises TokenizerError.

    A file is a SentencePiece model or a `tokenizer.json`. ByT5 has neither; it is known by its `tokenizer_config.json`.
    An encoder's tokenizer (BERT's, RoBERTa's, ...) may be a `vocab.txt`, a `vocab.json` beside its `merges.txt`, or a `spm.model`.
    """
    path = find(name)
    if path.suffix in (".json", ".txt") or path.name == encoder_tokenizer.PIECES:
        content = encoder_tokenizer.tokenizer_json(model_files.in_directory(path.parent, name=name))
        if content is not None:
            return of_content(content, name=name)
    if path.name == CONFIG_NAME:
        return Tokenizer(model_proto.model(), name=name)
    try:
        content = paths.read(path)
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read ({error.strerror}).") from error
    if path.name == encoder_tokenizer.PAIRS:
        content = bpe_tokenizer.of_pairs(model_files.in_directory(path.parent, name=name))
    if path.suffix == ".json" and not bpe_tokenizer.is_written(content):
        content = convert(content, name=name)
    return of_content(content, name=name)


@functools.lru_cache(maxsize=1)  # a run reads again what it has staged for its workers
def of_content(content: bytes, *, name: str) -> Tokenizer:
    """Return the tokenizer of `Tokenizer.model`, as a run or a worker keeps it. Raises TokenizerError."""
    if not content.startswith(b"{"):
        return Tokenizer(content, name=name)
    return (BpeTokenizer if bpe_tokenizer.is_written(content) else EncoderTokenizer)(content, name=name)


def find(name: str) -> Path:
    """Return the path of the tokenizer's file, fetched from the Hub where the name is not a local path.

    Raises TokenizerError.
    """
    if name == "sample:":
        from t5prep.sources import sample

        return sample.tokenizer_path()
    path = Path(name)
    if path.is_dir():
        return _file_of(model_files.in_directory(path, name=name))
    if path.exists():
        return path
    if name == "sample" or (name.endswith(":") and difflib.get_close_matches(name, ["sample:"])):
        raise TokenizerError(
            f'"{name}" is not a tokenizer. Did you mean "sample:"? It is the small one that is built in.'
        )
    meant = paths.mistyped(path) if "/" in name else ""
    if meant or path.suffix == ".model" or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise TokenizerError(f"{name} does not exist.{meant} Pass a spiece.model file, its directory, or a Hub name.")
    try:
        return _file_of(model_files.find(name))
    except UsageError as error:
        raise TokenizerError(
            f"{error}".replace(model_files.WANTED, "T5's own tokenizer is google-t5/t5-base.").replace(
                "pass a directory of this machine", "pass a spiece.model file of this machine"
            )
        ) from None


def _file_of(files: ModelFiles) -> Path:
    """Return the file of a model from which its tokenizer is made. Raises TokenizerError if there is none."""
    is_encoders = encoder_tokenizer.tokenizer_json(files) is not None
    of_t5 = (*MODEL_NAMES, JSON_NAME, encoder_tokenizer.PAIRS)
    for name in encoder_tokenizer.CONTENTS if is_encoders else of_t5:
        if name in files.names and (name != encoder_tokenizer.PAIRS or encoder_tokenizer.MERGES in files.names):
            # Gemma's SentencePiece model does not say whether a text begins with <bos>, as T5Gemma 2's do; its JSON file does.
            gemmas = name == "tokenizer.model" and JSON_NAME in files.names
            return files.path(JSON_NAME if gemmas and bpe_tokenizer.begins_texts(files.read(JSON_NAME)) else name)
    for name in (CONFIG_NAME, "config.json"):
        if name in files.names and _class_in(files.read(name)) == BYTES_CLASS:
            return files.path(name).with_name(CONFIG_NAME)
    raise TokenizerError(
        f"{files.name} holds no tokenizer; one of {', '.join((*MODEL_NAMES, JSON_NAME))} is looked for, or a"
        f" {CONFIG_NAME} that names {BYTES_CLASS}."
    )


def _class_in(content: bytes) -> str:
    """Return the tokenizer class that a JSON file names, "" if it names none."""
    try:
        return str(json.loads(content)["tokenizer_class"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
