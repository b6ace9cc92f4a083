"""Encode many texts at once with a SentencePiece unigram model: in C, or by SentencePiece itself, with the same ids."""

import itertools

import numpy as np
import pyarrow as pa
import sentencepiece

from t5prep.tokens import ragged
from t5prep.tokens.ragged import Ragged

try:
    from t5prep.tokens import _native
except ImportError as error:
    _native = None  # type: ignore[assignment]
    _IMPORT_ERROR = str(error)

# The version of SentencePiece whose order of float additions native/ repeats. A test fails when another is installed.
REPLICATED = "0.2.3"
# Texts that reveal a difference between the encoder in C and SentencePiece.
_PROBES = (
    "", " ", "a", "The quick brown fox jumps over the lazy dog.", "  two  blanks\tand\na line\r\n", "---- -- --- -----",
    "ＦＵＬＬ ｗｉｄｔｈ ﬁ ﷺ", "e\u0301 a\u030a", "\u200b\u00a0\u3000x", "\u2581b \u2581",
    "\x01\x7f\x00", "İstanbul ß", "漢字 и 🙂🙂",
    "<unk> <pad> </s> <0x41>", "1234567890 " * 8, "wordwithnoblankatall" * 8, "\ufffd \U0010ffff", "~ `~` ~",
)  # fmt: skip


class BlockEncoder:
    """Encode blocks of texts. Threads may share it.

    `slow` is the reason why SentencePiece does the work, "" where the encoder in C does.
    """

    def __init__(self, model: bytes, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._processor = processor
        self._native, self.slow = _load(model)
        if self._native is not None and not self._agree():
            self._native = None
            self.slow = f"it gives other ids than SentencePiece {sentencepiece.__version__}"

    def encode(self, texts: list[str] | pa.LargeStringArray) -> Ragged:
        """Return the ids of texts, none of them null, without EOS."""
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
        """Return the ids of texts in UTF-8. Text i is `data[offsets[i] : offsets[i + 1]]`, offsets int64[texts + 1].

        Raises ValueError where a text is longer than 32 MB.
        """
        if self._native is None:
            view, ends = memoryview(data), offsets.tolist()
            pairs = itertools.pairwise(ends)
            return self._by_sentencepiece([str(view[start:end], "utf-8") for start, end in pairs])
        ids, starts = self._native.encode(data, np.ascontiguousarray(offsets, np.int64))
        return Ragged(np.frombuffer(ids, np.int32), np.frombuffer(starts, np.int64))

    def _by_sentencepiece(self, texts: list[str] | pa.LargeStringArray) -> Ragged:
        texts = texts if isinstance(texts, list) else texts.to_pylist()
        encoded = self._processor.encode(texts, return_type="numpy", num_threads=1) if texts else []
        return ragged.of(encoded)

    def _agree(self) -> bool:
        texts = list(_PROBES)
        ours, theirs = self.encode(texts), self._by_sentencepiece(texts)
        return np.array_equal(ours.ids, theirs.ids) and np.array_equal(ours.starts, theirs.starts)


def _load(model: bytes) -> tuple["_native.Unigram | None", str]:
    """Return a model for the encoder in C, or None and the reason why there is none."""
    if _native is None:
        return None, f"the encoder in C is not installed ({_IMPORT_ERROR})"
    try:
        return _native.Unigram(model), ""
    except ValueError as error:
        return None, str(error)
