"""Encode many texts at once with a SentencePiece unigram model: in C, or by SentencePiece itself, with the same ids."""

import itertools
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import sentencepiece

try:
    from t5prep.tokens import _native
except ImportError as error:
    _native = None  # type: ignore[assignment]
    _IMPORT_ERROR = str(error)

# Whose additions native/ makes again. A test says what to look at when the installed one is another.
REPLICATED = "0.2.3"
# Texts on which a model of another kind, or another SentencePiece, would soon show.
_PROBES = (
    "", " ", "a", "The quick brown fox jumps over the lazy dog.", "  two  blanks\tand\na line\r\n", "---- -- --- -----",
    "ＦＵＬＬ ｗｉｄｔｈ ﬁ ﷺ", "e\u0301 a\u030a", "\u200b\u00a0\u3000x", "\u2581b \u2581",
    "\x01\x7f\x00", "İstanbul ß", "漢字 и 🙂🙂",
    "<unk> <pad> </s> <0x41>", "1234567890 " * 8, "wordwithnoblankatall" * 8, "\ufffd \U0010ffff", "~ `~` ~",
)  # fmt: skip


class Tokens(NamedTuple):
    """Ids of several texts, one after the other: int32[ids], and where each text's ids begin: int64[texts + 1]."""

    ids: np.ndarray
    starts: np.ndarray

    def apart(self) -> list[np.ndarray]:
        """Return the ids of each text: int32[length] each."""
        ends = self.starts.tolist()
        return [self.ids[start:end] for start, end in itertools.pairwise(ends)]


class BlockEncoder:
    """Encodes blocks of texts. Threads may share it. `slow` says why SentencePiece does the work, "" where C does."""

    def __init__(self, model: bytes, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._processor = processor
        self._native, self.slow = _load(model)
        if self._native is not None and not self._agree():
            self._native = None
            self.slow = f"it gives other ids than SentencePiece {sentencepiece.__version__}"

    def encode(self, texts: list[str]) -> Tokens:
        """Return the ids of texts, without EOS."""
        if self._native is None:
            return self._by_sentencepiece(texts)
        array = pa.array(texts, pa.large_string())
        _, offsets, data = array.buffers()
        try:
            return self.encode_utf8(data or b"", np.frombuffer(offsets, np.int64, len(texts) + 1))
        except ValueError:  # a text longer than places in it are counted
            return self._by_sentencepiece(texts)

    def encode_utf8(self, data: bytes | memoryview | pa.Buffer, offsets: np.ndarray) -> Tokens:
        """Return the ids of texts in UTF-8. Text i is `data[offsets[i] : offsets[i + 1]]`, offsets int64[texts + 1].

        Raises ValueError where a text is longer than 32 MB.
        """
        if self._native is None:
            view, ends = memoryview(data), offsets.tolist()
            pairs = itertools.pairwise(ends)
            return self._by_sentencepiece([str(view[start:end], "utf-8") for start, end in pairs])
        ids, starts = self._native.encode(data, np.ascontiguousarray(offsets, np.int64))
        return Tokens(np.frombuffer(ids, np.int32), np.frombuffer(starts, np.int64))

    def _by_sentencepiece(self, texts: list[str]) -> Tokens:
        encoded = self._processor.encode(texts, return_type="numpy", num_threads=1) if texts else []
        starts = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(ids) for ids in encoded], out=starts[1:])
        return Tokens(np.concatenate([np.zeros(0, np.int32), *encoded]), starts)

    def _agree(self) -> bool:
        texts = list(_PROBES)
        ours, theirs = self.encode(texts), self._by_sentencepiece(texts)
        return np.array_equal(ours.ids, theirs.ids) and np.array_equal(ours.starts, theirs.starts)


def _load(model: bytes) -> tuple["_native.Unigram | None", str]:
    """Return a model for the encoder in C, or None and why there is none."""
    if _native is None:
        return None, f"the encoder in C is not installed ({_IMPORT_ERROR})"
    try:
        return _native.Unigram(model), ""
    except ValueError as error:
        return None, str(error)
