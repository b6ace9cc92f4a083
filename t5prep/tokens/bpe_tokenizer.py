"""Encode and decode text for models that write texts, by a `tokenizer.json` with a BPE model: CodeT5's, or Gemma's.

The ids are those of the `tokenizers` library. A text ends in EOS like T5's, and begins with the special tokens of the file.
Sentinels are the tokens `<extra_id_0>` and so on, or Gemma's unused pieces (`<unused98>` is `<extra_id_0>`, as in `tokenizer`).
Text that spells a special token is plain text.
"""

import json
from collections.abc import Sequence

from t5prep.errors import TokenizerError
from t5prep.io.model_files import ModelFiles
from t5prep.json_values import MALFORMED_ERRORS
from t5prep.tokens import encoder_tokenizer, special_tokens, words
from t5prep.tokens.encoder_tokenizer import SPACE, Cutting, Described, EncoderTokenizer, MissingSpecialToken
from t5prep.tokens.ragged import Frame
from t5prep.tokens.special_tokens import CONFIG, ENDS, GEMMA_SPECIAL
from t5prep.tokens.tokenizer import SENTINEL_TEXTS, UNUSED, run_of, sentinel_run
from t5prep.tokens.tokenizer_document import Document, SmallFile

PADS, UNKNOWNS = ("<pad>",), ("<unk>",)


def is_of_text_model(content: bytes) -> bool:
    """Check whether the content of a tokenizer.json belongs to a model that writes texts (`writes_texts`)."""
    try:
        return writes_texts(json.loads(content))
    except (ValueError, RecursionError):
        return False  # the code that reads the file raises the error


def writes_texts(document: Document) -> bool:
    """Check whether a tokenizer.json belongs to a model that writes texts, and has a BPE or a Unigram model.

    It does if it has sentinels. It also does if it has one of the EOS tokens ENDS, and does not put special tokens both before and
    after a text, as encoders' files do.
    """
    try:
        if document["model"].get("type") not in ("BPE", "Unigram"):
            return False
        texts = {str(token["content"]) for token in document["added_tokens"]}
        return SENTINEL_TEXTS[0] in texts or (
            encoder_tokenizer.frame_of(document) is None and not texts.isdisjoint(ENDS)
        )
    except MALFORMED_ERRORS:
        return False  # the code that reads the file raises the error


def begins_texts(document: Document) -> bool:
    """Check whether a tokenizer.json belongs to a model that writes texts, and puts special tokens before a text."""
    return writes_texts(document) and bool(encoder_tokenizer.template_of(document).frame.first)


def puts_space(document: Document) -> bool:
    """Check whether a tokenizer.json belongs to a BPE model that writes texts, and puts a space before a text (Llama's).

    >>> puts_space({})
    False
    """
    if not writes_texts(document) or document["model"].get("type") != "BPE":
        return False
    normalizers = encoder_tokenizer.steps(document.get("normalizer"), "normalizers")
    splitters = encoder_tokenizer.steps(document.get("pre_tokenizer"), "pretokenizers")
    return any(step["type"] in ("Prepend", "Metaspace") for step in (*normalizers, *splitters))


def of_pairs(files: ModelFiles) -> bytes:
    """Return the tokenizer.json for a CodeT5's `vocab.json`, `merges.txt` and `added_tokens.json`. Raises TokenizerError."""
    try:
        config: SmallFile = json.loads(files.read(CONFIG)) if CONFIG in files.names else {}
        return encoder_tokenizer.of_pairs(files, config)
    except MALFORMED_ERRORS as error:
        raise TokenizerError(
            f"The vocabulary of {files.name} cannot be read ({error!r:.80}). Fetch the files again.",
            code="tokenizer.damaged",
        ) from error


class BpeTokenizer(EncoderTokenizer):
    """Encode text to ids and decode ids, with a `tokenizer.json` of a model that writes texts. Raises TokenizerError."""

    is_encoders = False
    _kind = "a T5-like model"
    _advice = "Train a tokenizer that has one: t5prep tokenizer train --help"

    def __init__(self, model: bytes, *, name: str) -> None:
        super().__init__(model, name=name)
        document = json.loads(model)
        pieces = special_tokens.vocabulary(document)
        ids = {**pieces, **{str(token["content"]): int(token["id"]) for token in document["added_tokens"]}}
        run = sentinel_run(ids.get, unknown=None) or run_of(ids.get, UNUSED, unknown=None)[::-1]
        self._first_sentinel, self.sentinels = (run[0] if run else -1), len(run)
        # T5Gemma has fewer embeddings than its tokenizer has tokens. The tokens for images and dialogues, which come last, are not
        # used in a T5, so they do not count for the size.
        used = [*pieces.values(), *(id for text, id in ids.items() if text not in GEMMA_SPECIAL)]
        self.vocab_size = self.size = self.padded_size = 1 + max(used)
        # As in CodeT5's training, targets too have RoBERTa's <s> and </s> around them.
        if encoder_tokenizer.frame_of(document):
            self.frame_of_targets = Frame(self.frame.first, (), self.frame.last)

    def sentinel(self, number: int) -> int:
        """Return the id of `<extra_id_number>`, or of the piece that is used for it; -1 if the vocabulary has none."""
        return self._first_sentinel - number if number < self.sentinels else -1

    def _describe(self, document: Document) -> Described:
        """Return the special tokens: those around texts, padding, unknown, and sentinels. Raises Missing."""
        ids = {str(token["content"]): int(token["id"]) for token in document["added_tokens"]}
        id_groups = [[ids[text] for text in texts if text in ids] for texts in (ENDS, PADS, UNKNOWNS)]
        for id_group, texts in zip(id_groups, (ENDS, PADS, UNKNOWNS), strict=True):
            if not id_group:
                raise MissingSpecialToken(f"no {' or '.join(texts)}")
        (end, *_), (pad, *_), (unknown, *_) = id_groups
        frame = encoder_tokenizer.template_of(document).frame
        if document["model"]["type"] == "Unigram":
            # mT5's sentinels are pieces of the model, so a text that spells one would become it.
            pieces = special_tokens.vocabulary(document)
            ids |= {text: id for text, id in pieces.items() if special_tokens.has_role(text)}
        special = {id: text for text, id in ids.items() if special_tokens.has_role(text) or id in frame.first}
        return Described(Frame(frame.first, (end,), (end,)), pad, unknown, special)

    def _cuts(self, document: Document) -> Cutting | None:
        """Return the function that encodes texts word by word; None if words cannot be encoded separately.

        Gemma's file replaces each space by `▁` and does not split at it. Words can be encoded separately all the same if no piece
        contains a space.
        """
        model, normalizer, splitter = (
            document["model"],
            document.get("normalizer") or {},
            document.get("pre_tokenizer") or {},
        )
        if model.get("ignore_merges"):
            return None
        users = encoder_tokenizer.users(document)
        if any(token.get(flag) for token in users for flag in ("lstrip", "rstrip", "single_word")):
            return None  # such a token is found depending on the words beside it
        if splitter.get("type") == "ByteLevel":
            return None if users else encoder_tokenizer.cutting(document)
        replaced = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
        at_spaces = splitter.get("pattern") == {"String": " "} and splitter.get("behavior") == "MergedWithPrevious"
        if normalizer != replaced or (splitter and not at_spaces):
            return None
        across = (
            text
            for text in (*model["vocab"], *(str(token["content"]) for token in users))
            if any(space in text.lstrip(f" {SPACE}") for space in (" ", SPACE))
        )
        return None if next(across, None) is not None else words.before_spaces

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, with sentinels and EOS, but without padding and the special tokens before a text."""
        left_out = {self.pad_id, *self.frame.first}
        return super().decode([token for token in ids if token not in left_out])
