"""Many rows of ids are decoded as one is."""

import numpy as np
import pytest

from t5prep.tokens import decoding, loading
from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.model_proto import CONTROL, UNKNOWN, Normalization, Piece, build
from t5prep.tokens.tokenizer import Tokenizer

# Pieces that are longer than what is copied at once, and blanks alone.
_PIECES = [
    *(Piece(text, kind=CONTROL) for text in ("<pad>", "</s>")),
    Piece("<unk>", kind=UNKNOWN),
    *(Piece(text, -1.0) for text in ("▁", "▁▁▁", "▁a", "é" * 40, "▁" + "漢字" * 9, "b" * 16, "c" * 17)),
]
LONG = Tokenizer(build(_PIECES, Normalization("identity")), name="long")


def as_one(ids: np.ndarray, tokenizer: Tokenizer, *, keep_newlines: bool) -> str:
    """The text of a row of ids by itself."""
    kept = ids.tolist()
    kept = kept[:-1] if kept[-1:] == [tokenizer.eos_id] else kept
    return newlines.decode(kept, tokenizer=tokenizer, keep_newlines=keep_newlines)


@pytest.mark.parametrize("keep_newlines", [False, True])
@pytest.mark.parametrize("name", ["sample:", "long"])
def test_many_rows_decode_as_one(name: str, keep_newlines: bool) -> None:
    tokenizer, draw = LONG if name == "long" else loading.load(name), np.random.default_rng(7)
    ids = draw.integers(0, tokenizer.padded_size, (500, 24)).astype(np.int32)
    for share, tokens in (
        (0.1, [tokenizer.sentinel(number) for number in range(3)]),
        (0.05, [tokenizer.eos_id]),
        (0.05, [tokenizer.unk_id]),
        (0.15, [tokenizer.processor.piece_to_id("▁")]),
    ):
        where = draw.random(ids.shape) < share
        ids[where] = draw.choice(tokens, int(where.sum()))
    lengths = draw.integers(0, 25, 500).astype(np.int32)
    found = decoding.row_decoder(tokenizer, keep_newlines=keep_newlines)(ids, lengths).to_pylist()
    assert found == [
        as_one(row[:length], tokenizer, keep_newlines=keep_newlines) for row, length in zip(ids, lengths, strict=True)
    ]


@pytest.mark.parametrize("id", [-100, -1, 1 << 30])
def test_an_id_outside_of_the_vocabulary_is_said(id: int) -> None:
    decode = decoding.row_decoder(loading.load("sample:"), keep_newlines=False)
    with pytest.raises(ValueError, match="outside of the vocabulary"):
        decode(np.array([[5, id, 1]], np.int32), np.array([3], np.int32))
    assert decode(np.array([[5, 1, id]], np.int32), np.array([2], np.int32)).to_pylist() == [
        as_one(np.array([5]), loading.load("sample:"), keep_newlines=False)
    ]
