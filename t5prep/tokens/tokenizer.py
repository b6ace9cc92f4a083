"""Encode and decode text with a SentencePiece model by T5's conventions: 100 sentinels, one EOS, text stays text.

The vocabulary is as in T5 (Raffel et al. 2020; google-research/text-to-text-transfer-transformer README): the model's pieces,
then 100 sentinels in descending order (`<extra_id_0>` is the last id), then padding to a multiple of 128. Other models differ in
their sentinels:

* A model that holds sentinels, such as mT5's, keeps them. `loading` adds another number of them, such as umT5's 300.
* A model of bytes, ByT5's, uses its last bytes.
* A model with unused pieces, Gemma's `<unused0>` to `<unused98>`, uses these, the last one as `<extra_id_0>`.

Unigram models are encoded in C, and all others by SentencePiece, with the same ids. For Gemma, each distinct word of a block is
encoded once (docs/decisions/026-encode-each-distinct-word-once.md).
"""

import hashlib
import itertools
import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import sentencepiece

from t5prep import _native
from t5prep.errors import TokenizerError
from t5prep.tokens import model_proto, ragged, words
from t5prep.tokens.ragged import Frame, Names, Ragged

SENTINELS = 100
SENTINEL_TEXTS = [f"<extra_id_{number}>" for number in range(SENTINELS)]
UNUSED = "<unused{}>"  # the names of Gemma's unused pieces
# ByT5's sentinels are its last bytes, from 255 down. Bytes 255 to 245 occur in no text (RFC 3629: UTF-8 excludes them).
BYTE_SENTINELS = 11
EMBEDDING_MULTIPLE = 128
# The version of SentencePiece whose order of float additions native/ repeats. A test fails if another version is installed.
REPLICATED = "0.2.3"
# Texts that reveal a difference between the encoder in C and SentencePiece.
_PROBES = (
    "", " ", "a", "The quick brown fox jumps over the lazy dog.", "  two  blanks\tand\na line\r\n", "---- -- --- -----",
    "ＦＵＬＬ ｗｉｄｔｈ ﬁ ﷺ", "e\u0301 a\u030a", "\u200b\u00a0\u3000x", "\u2581b \u2581",
    "\x01\x7f\x00", "İstanbul ß", "漢字 и 🙂🙂",
    "<unk> <pad> </s> <0x41>", "1234567890 " * 8, "wordwithnoblankatall" * 8, "\ufffd \U0010ffff", "~ `~` ~",
)  # fmt: skip


def run_of(id_of: Callable[[str], int | None], text: str, *, unknown: int | None) -> list[int]:
    """Return the ids of the texts `text.format(0)`, `text.format(1)`, …, as long as they increase by 1, at most SENTINELS.

    id_of: returns the id of a piece. unknown: the id that it returns for a missing piece.
    """
    return _run(id_of, text, unknown=unknown, step=1, limit=SENTINELS)


def sentinel_run(id_of: Callable[[str], int | None], *, unknown: int | None) -> list[int]:
    """Return the ids of the sentinels in a vocabulary, from `<extra_id_0>` on; mT5 has them as `▁<extra_id_0>`.

    id_of, unknown: see `run_of`.
    """
    runs = (descending_run(id_of, text, unknown=unknown) for text in ("▁<extra_id_{}>", "<extra_id_{}>"))
    return next(filter(None, runs), [])


def descending_run(id_of: Callable[[str], int | None], text: str, *, unknown: int | None) -> list[int]:
    """Return the ids of the texts `text.format(0)`, `text.format(1)`, …, as long as they decrease by 1.

    id_of, unknown: see `run_of`.
    """
    return _run(id_of, text, unknown=unknown, step=-1, limit=None)


def _run(
    id_of: Callable[[str], int | None], text: str, *, unknown: int | None, step: int, limit: int | None
) -> list[int]:
    ids: list[int] = []
    while limit is None or len(ids) < limit:
        id = id_of(text.format(len(ids)))
        if id is None or id == unknown or (ids and id != ids[-1] + step):
            break
        ids.append(id)
    return ids


class Tokenizer:
    """Encode text to ids and decode ids, with a SentencePiece model of T5's kind.

    `model` is the content of the model's file. Raises TokenizerError if it is no such model.
    """

    file_name = "spiece.model"  # the name of the tokenizer's file beside a trained model
    mask_id: int | None = None  # the id of the mask in an encoder's tokenizer
    is_encoders = False  # True for tokenizers of BERT and similar models (`encoder_tokenizer`)
    template_without = ""  # "pair" or "single" if the file has no special tokens for two texts, or for one

    def __init__(self, model: bytes, *, name: str) -> None:
        try:
            self.facts = model_proto.facts(model)
            model_proto.check_charsmap(self.facts.charsmap)
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            if not self.processor.get_piece_size():
                raise ValueError("it has no pieces")
        except (ValueError, RuntimeError, TypeError) as error:
            raise TokenizerError(
                f"{name} is not a SentencePiece model ({str(error).splitlines()[0][:80]}). "
                "Pass a spiece.model file, a directory that holds one, or a Hub name such as google-t5/t5-base.",
                code="tokenizer.invalid-sentencepiece",
            ) from error
        self.model = model
        self.name = name
        self.sha256 = hashlib.sha256(model).hexdigest()
        self.vocab_size: int = self.processor.get_piece_size()
        self.pad_id: int = self.processor.pad_id()
        if self.pad_id < 0:  # Madlad-400 pads with BOS, which no text contains
            self.pad_id = self.processor.bos_id()
        self.eos_id: int = self.processor.eos_id()
        self.unk_id: int = self.processor.unk_id()
        if self.pad_id < 0 or self.eos_id < 0:
            missing = "<pad>" if self.pad_id < 0 else "</s>"
            raise TokenizerError(
                f"The tokenizer {name} has no {missing} piece, which T5 needs. Train a tokenizer that has "
                "this piece: t5prep tokenizer train --help",
                code="tokenizer.missing-token",
            )
        self.frame = Frame((), (self.eos_id,), (self.eos_id,))
        self.frame_of_targets = Frame((), (), (self.eos_id,))
        inside = sentinel_run(self.processor.piece_to_id, unknown=self.unk_id)
        self.is_bytes: bool = self.processor.is_byte(self.vocab_size - 1)
        unused = [] if inside else run_of(self.processor.piece_to_id, UNUSED, unknown=self.unk_id)
        above = 0 if inside or unused or self.is_bytes else SENTINELS
        self._first_sentinel = inside[0] if inside else unused[-1] if unused else self.vocab_size + above - 1
        # The number of sentinels.
        self.sentinels = BYTE_SENTINELS if self.is_bytes else len(inside) or len(unused) or SENTINELS
        self.size = self.vocab_size + above
        self.padded_size = -(-self.size // EMBEDDING_MULTIPLE) * EMBEDDING_MULTIPLE
        # If sentinels are normal pieces of the model, they are special ids that text must never be encoded to.
        sentinel_numbers = range(self.sentinels if inside or unused else 0)
        special = [self.pad_id, self.eos_id, *map(self.sentinel, sentinel_numbers)]
        # Special ids that SentencePiece would give to a text that spells them: they are no control pieces of the model.
        self.controls = np.array([token for token in special if not self.processor.is_control(token)], np.int32)
        self.blocks = BlockEncoder(model, self.processor)
        # The reason why SentencePiece encodes texts; "" if the faster encoder in C does.
        self.slow = self.blocks.slow

    def sentinel(self, number: int) -> int:
        """Return the id of `<extra_id_number>`: 32,099 − number in T5."""
        return self._first_sentinel - number

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without EOS. `</s>` and `<extra_id_0>` in the text are encoded as plain text."""
        ids: list[int] = self.encode_block([text]).ids.tolist()
        return ids

    def encode_all(self, texts: list[str]) -> list[np.ndarray]:
        """Return the ids of each text, int32[length], as `encode` does."""
        return self.encode_block(texts).to_arrays()

    def encode_block(self, texts: list[str] | pa.LargeStringArray) -> Ragged:
        """Return the ids of many texts as a Ragged, as `encode` does. No text may be null."""
        tokens = self.blocks.encode(texts)
        if not len(self.controls) or not np.isin(tokens.ids, self.controls).any():
            return tokens
        id_lists = tokens.to_arrays()
        for i, ids in enumerate(id_lists):
            if np.isin(ids, self.controls).any():
                id_lists[i] = self._encode_spelled(str(texts[i]))
        return ragged.of(id_lists)

    def _encode_spelled(self, text: str) -> np.ndarray:
        """Return the ids of a text that spells a special piece. It is split after the "<", so that no piece can cover it."""
        ids = self.blocks.encode(re.split(r"(?<=<)(?=/s>|pad>|eos>|extra_id_\d+>|unused\d+>)", text)).ids
        return ids[~np.isin(ids, self.controls)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids. Sentinels are written as `<extra_id_n>`, EOS as `</s>`; padding is left out."""
        out: list[str] = []
        plain: list[int] = []
        for token in [*ids, None]:
            special = None if token is None else self.special(token)
            if token is not None and special is None:
                plain.append(token)
                continue
            if plain:
                out.append(self.processor.decode(plain))
                plain = []
            if special and token != self.pad_id:
                out.append(special)
        return " ".join(out)

    def to_read(self, text: str) -> str:
        """Return a decoded text without the traces of tokenizing. SentencePiece leaves none, so the text is unchanged."""
        return text

    def texts_in(self, ids: Sequence[int]) -> list[str]:
        """Return the texts between the special tokens in `ids`."""
        groups = itertools.groupby(ids, key=lambda token: self.special(token) is not None)
        return [self.decode(list(group)) for special, group in groups if not special]

    def special(self, token: int) -> str | None:
        """Return the text of a special token, such as `</s>`; None for a piece of text.

        An id of the padded vocabulary without a piece has the text `<unused_n>`.
        """
        if token in (self.pad_id, self.eos_id):
            return "<pad>" if token == self.pad_id else "</s>"
        number = self._first_sentinel - token
        if 0 <= number < self.sentinels:
            return f"<extra_id_{number}>"
        return f"<unused_{token}>" if not 0 <= token < self.vocab_size else None

    def piece(self, token: int) -> str:
        """Return the text of a token in the vocabulary: `▁the`, `</s>`, `<extra_id_0>`."""
        return self.special(token) or self.processor.id_to_piece(token)


class BlockEncoder:
    """Encode blocks of texts, in C if possible. Threads may share an encoder.

    `slow` is the reason why SentencePiece encodes; "" if the encoder in C does. That encoder is used only if it gives the same ids
    as SentencePiece for all texts in _PROBES.
    """

    def __init__(self, model: bytes, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._processor = processor
        self._native: _native.Unigram | None = None
        self.slow = ""
        try:
            self._native = _native.Unigram(model)
        except ValueError as error:
            self.slow = str(error)
        self._is_cut = self._native is None and _encodes_words_separately(model, processor)
        if self._native is not None and not self._agree():
            self._native = None
            self.slow = f"it gives other ids than SentencePiece {sentencepiece.__version__}"

    def encode(self, texts: list[str] | pa.LargeStringArray) -> Ragged:
        """Return the ids of texts without EOS, as a Ragged. No text may be null."""
        if self._is_cut and len(texts) > 1:
            array = pa.array(texts, pa.large_string()) if isinstance(texts, list) else texts
            return words.before_spaces(array, self._by_sentencepiece)
        if self._native is None:
            return self._by_sentencepiece(texts)
        if not len(texts):
            return ragged.of([])
        array = pa.array(texts, pa.large_string()) if isinstance(texts, list) else texts
        _, offsets, data = array.buffers()
        starts = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        try:
            return self.encode_utf8(data or b"", starts)
        except ValueError:  # a text is longer than the 32-bit offsets of the encoder in C allow
            return self._by_sentencepiece(texts)

    def encode_utf8(self, data: bytes | memoryview | pa.Buffer, offsets: np.ndarray) -> Ragged:
        """Return the ids of texts in UTF-8, by the encoder in C. Raises ValueError if a text is longer than 32 MB.

        Text i is `data[offsets[i] : offsets[i + 1]]`, with int64[texts + 1] offsets.
        """
        assert self._native is not None, "`encode` asks where there is one"
        ids, starts = self._native.encode(data, np.ascontiguousarray(offsets, np.int64))
        return Ragged(np.frombuffer(ids, np.int32), np.frombuffer(starts, np.int64))

    def _by_sentencepiece(self, texts: list[str] | pa.LargeStringArray) -> Ragged:
        texts = texts if isinstance(texts, list) else texts.to_pylist()
        encoded = self._processor.encode(texts, return_type="numpy", num_threads=1) if texts else []
        return ragged.of(encoded)

    def _agree(self) -> bool:
        probes = Names.of(_PROBES)
        ours, theirs = self.encode_utf8(probes.data, probes.starts), self._by_sentencepiece(list(_PROBES))
        return np.array_equal(ours.ids, theirs.ids) and np.array_equal(ours.starts, theirs.starts)


def _encodes_words_separately(model: bytes, processor: sentencepiece.SentencePieceProcessor) -> bool:
    """Check whether words can be encoded separately: the model is BPE, changes no character, and no piece contains a space.

    BPE merges two neighbours only if they form a piece. Without a piece across a space, nothing is merged across the beginning of
    a word.
    """
    facts = model_proto.facts(model)
    plain = facts.model_type == model_proto.BPE and not facts.charsmap and facts.escape_whitespaces
    if not plain or facts.add_dummy_prefix or facts.remove_extra_whitespaces or facts.whitespace_as_suffix:
        return False
    pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
    return not any("▁" in piece.lstrip("▁") for piece in pieces)
