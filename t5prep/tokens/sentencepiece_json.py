"""Convert a `tokenizer.json` of the `tokenizers` library to a SentencePiece model, if that provably gives the same ids.

Convertible is a Unigram model with SentencePiece's normalizers (a compiled character map, or the rules NMT and NFKC) and spaces
as `▁`. It may split at digits and punctuation, if no piece crosses such a border. Spaces around a text are dropped, as in
SentencePiece.
"""

import base64
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable

import sentencepiece

from t5prep.errors import TokenizerError
from t5prep.json_values import MALFORMED_ERRORS
from t5prep.tokens import encoder_tokenizer, model_proto, special_tokens
from t5prep.tokens.encoder_tokenizer import SPACE
from t5prep.tokens.model_proto import BYTE, CONTROL, NORMAL, UNKNOWN, Normalization, Piece, build
from t5prep.tokens.special_tokens import SENTINEL
from t5prep.tokens.tokenizer import SENTINELS, descending_run
from t5prep.tokens.tokenizer_document import AddedToken, Document, Model, Step

_RUNS_OF_SPACES = ({"Regex": " {2,}"}, {"String": "  "})


class _Unlike(Exception):  # noqa: N818 - its message is the end of a TokenizerError's sentence
    """An error whose message is the end of a sentence: the part of a file that SentencePiece does differently."""


def convert(document: Document, *, name: str) -> bytes:
    """Return a serialized SentencePiece model for a tokenizer.json.

    Raises a TokenizerError that names `name` if the file is damaged, or no SentencePiece model gives the same ids.
    """
    try:
        model = document["model"]
        if model.get("type", "Unigram") != "Unigram" or "vocab" not in model:
            raise _Unlike(f"its model is {model.get('type', 'of another kind')}, but T5's tokenizers are Unigram")
        pieces = _pieces(model, document.get("added_tokens") or [])
        _check_borders(document.get("pre_tokenizer"), pieces)
        return build(pieces, _normalization(document.get("normalizer"), document.get("pre_tokenizer")))
    except _Unlike as error:
        raise TokenizerError(
            f"{name}: tokenizer.json is not supported because {error}. Choose another tokenizer.",
            code="tokenizer.unsupported-json",
        ) from None
    except MALFORMED_ERRORS as error:
        raise TokenizerError(
            f"{name}: tokenizer.json is damaged ({type(error).__name__}). Fetch it again.", code="tokenizer.damaged"
        ) from error


def check_steps(document: Document, *, name: str) -> None:
    """Raise a TokenizerError that names `name` if a tokenizer.json and transformers 5 normalize or split texts differently."""
    if reason := unlike_steps(document):
        raise TokenizerError(
            f"{name}: tokenizer.json is not supported because {reason}. Choose another tokenizer.",
            code="tokenizer.unsupported-json",
        )


def unlike_steps(document: Document) -> str:
    """Return the first difference between a tokenizer.json and transformers 5's T5 in normalizing or splitting; "" if none."""
    try:
        _check_borders(document.get("pre_tokenizer"), [])
        _normalization(document.get("normalizer"), document.get("pre_tokenizer"))
    except _Unlike as error:
        return str(error)
    return ""


def _pieces(model: Model, added: Iterable[AddedToken]) -> list[Piece]:
    """Return the pieces in the order of their ids, without T5's 100 sentinels if these are the last. Raises _Unlike."""
    if (unknown := model.get("unk_id")) is None:
        raise _Unlike("it has no unknown token")
    by_id = {
        index: Piece(str(text), float(score))
        for index, (text, score) in enumerate(special_tokens.unigram_pieces(model))
    }
    if model.get("byte_fallback"):
        by_id |= {i: Piece(p.text, p.score, BYTE) for i, p in by_id.items() if re.fullmatch("<0x[0-9A-F]{2}>", p.text)}
    for token in added:
        by_id[int(token["id"])] = Piece(str(token["content"]), kind=CONTROL)
    by_id[unknown] = Piece(by_id[unknown].text, kind=UNKNOWN)
    if by_id[unknown].text != "<unk>" or sorted(by_id) != list(range(len(by_id))):
        raise _Unlike("its ids are not those of a T5")
    pieces = [by_id[index] for index in range(len(by_id))]
    places = {piece.text: index for index, piece in enumerate(pieces) if SENTINEL.fullmatch(piece.text)}
    count = len(descending_run(places.get, "<extra_id_{}>", unknown=None))
    if count != len(places):
        raise _Unlike("its <extra_id_…> are not in T5's order, from the last id down")
    if count == SENTINELS and places["<extra_id_0>"] == len(pieces) - 1:
        return pieces[:-SENTINELS]
    return [Piece(piece.text, kind=CONTROL) if piece.text in places else piece for piece in pieces]


def _normalization(normalizer: Step | None, splitter: Step | None) -> Normalization:
    """Return SentencePiece's equivalent of the steps. Raises _Unlike for a step that it does not have."""
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
            raise _Unlike(f"SentencePiece has no normalizer {kind}")
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
    """Return the compiled character map of SentencePiece's rule `name`, such as "nmt_nfkc"."""
    spec = sentencepiece.SentencePieceNormalizer(rule_name=name).serialized_model_proto()
    return model_proto.charsmap(spec)


def _check_borders(splitter: Step | None, pieces: Iterable[Piece]) -> None:
    """Raise _Unlike if splitting texts by `splitter` would change the ids that the pieces alone give."""
    crossed: dict[str, Callable[[str], bool]] = {
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
                raise _Unlike(f"it splits at {kind.lower()}, but its piece {across[0]!r} crosses such a split")
        elif kind != "WhitespaceSplit":
            raise _Unlike(f"t5prep does not know its pre-tokenizer {kind}")
