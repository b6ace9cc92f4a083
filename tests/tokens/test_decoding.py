"""Many rows of ids are decoded as one is."""

import numpy as np
import pytest
import records_in_python

from t5prep.dataset import tfrecord
from t5prep.tokens import decoding, loading, newlines
from t5prep.tokens.model_proto import BPE, BYTE, CONTROL, UNKNOWN, USER_DEFINED, Normalization, Piece, build, model
from t5prep.tokens.tokenizer import Tokenizer

# Pieces that are longer than what is copied at once, and blanks alone.
_SPECIAL = (*(Piece(text, kind=CONTROL) for text in ("<pad>", "</s>")), Piece("<unk>", kind=UNKNOWN))
_LONG = [
    *(Piece(text, -1.0) for text in ("▁", "▁▁▁", "▁a", "é" * 40, "▁" + "漢字" * 9, "b" * 16, "c" * 17)),
    Piece("<s>", kind=CONTROL),
    Piece("▁own", kind=USER_DEFINED),
]
_BYTES = [Piece(f"<0x{byte:02X}>", kind=BYTE) for byte in range(256)]
MODELS = {
    "long": build([*_SPECIAL, *_LONG], Normalization("identity")),
    "bytes": build([*_SPECIAL, *_BYTES, *_LONG], Normalization("identity")),
    "blanks": build([*_SPECIAL, *_BYTES, *_LONG], Normalization("identity", spaces=False), model_type=BPE),
    # A blank is put before a text, and of several ones all but one are kept.
    "one blank": build([*_SPECIAL, *_LONG], Normalization("identity")).replace(
        b"\x18\x01 \x01(\x01", b"\x18\x01 \x00(\x01"
    ),
    "no blank": build([*_SPECIAL, *_LONG], Normalization("identity")).replace(
        b"\x18\x01 \x01(\x01", b"\x18\x00 \x01(\x01"
    ),
    "byt5": model(),
}


def load(name: str) -> Tokenizer:
    """A tokenizer by its name above, or a built-in one."""
    return Tokenizer(MODELS[name], name=name) if name in MODELS else loading.load(name)


def as_one(ids: np.ndarray, tokenizer: Tokenizer, *, keep_newlines: bool) -> str:
    """The text of a row of ids by itself."""
    tokens = ids.tolist()
    tokens = tokens[:-1] if tokens[-1:] == [tokenizer.eos_id] else tokens
    return newlines.decode(tokens, tokenizer=tokenizer, keep_newlines=keep_newlines)


def decode(rows: list[list[int]], tokenizer: Tokenizer, *, fill: int, keep_newlines: bool = False) -> decoding.Decoded:
    """What rows of ids say, which are read from records."""
    pages = tuple(records_in_python.example({"other": [1], "ids": row}) for row in rows)
    places = np.array([(number, 0, len(page)) for number, page in enumerate(pages)], tfrecord.PLACE)
    return decoding.decoder(tokenizer, keep_newlines=keep_newlines)(pages, places, "ids", 24, fill)


@pytest.mark.parametrize("keep_newlines", [False, True])
@pytest.mark.parametrize("name", ["sample:", *MODELS])
def test_many_rows_decode_as_one(name: str, keep_newlines: bool) -> None:
    tokenizer, draw = load(name), np.random.default_rng(7)
    ids = draw.integers(0, tokenizer.padded_size, (600, 24)).astype(np.int32)
    for share, tokens in (
        (0.1, [tokenizer.sentinel(number) for number in range(3)]),
        (0.05, [tokenizer.eos_id]),
        (0.05, [tokenizer.unk_id]),
        (0.15, [tokenizer.processor.piece_to_id("▁")]),
        (0.15, [tokenizer.processor.piece_to_id("▁▁▁")]),
    ):
        mask = draw.random(ids.shape) < share
        ids[mask] = draw.choice(tokens, int(mask.sum()))
    if "<0x00>" in tokenizer.processor.id_to_piece(list(range(tokenizer.vocab_size))):
        # Whole characters, broken ones, halves of a pair, what is above U+10FFFF, and longer ways to write a character.
        texts = [
            "é漢🙂a\0\ufffd".encode() + b"\xe6\xbc\xf0\x9f\x99a",
            bytes.fromhex("eda080edbfbfeda07ff48fbfbff4908080f5808080"),
        ]
        texts += [bytes.fromhex("c080c1bfc2e08080e0a080f0808080f0908080efbfbf80bf"), "é".encode() * 12]
        for row, text in enumerate(texts * 50):
            offset = draw.integers(0, 3)
            byte_ids = [tokenizer.processor.piece_to_id(f"<0x{byte:02X}>") for byte in text][: 24 - offset]
            ids[row, offset : offset + len(byte_ids)] = byte_ids
            ids[row] = np.where(
                draw.random(24) < 0.02 * (row % 3), draw.integers(0, tokenizer.padded_size, 24), ids[row]
            )
    lengths = draw.integers(0, 25, len(ids))
    rows = [row[:length] for row, length in zip(ids, lengths, strict=True)]
    decoded_rows = decode([row.tolist() for row in rows], tokenizer, fill=-7, keep_newlines=keep_newlines)
    assert decoded_rows.texts.validate(full=True) is None
    assert decoded_rows.texts.to_pylist() == [as_one(row, tokenizer, keep_newlines=keep_newlines) for row in rows]
    assert decoded_rows.lengths.tolist() == lengths.tolist()
    assert decoded_rows.marked.tolist() == [tokenizer.sentinel(1) in row for row in rows]


@pytest.mark.parametrize("id", [-100, -1, 1 << 30])
def test_an_id_outside_of_the_vocabulary_is_said(id: int) -> None:
    tokenizer = loading.load("sample:")
    with pytest.raises(ValueError, match="outside of the vocabulary"):
        decode([[5, id, 1]], tokenizer, fill=0)
    with pytest.raises(ValueError, match="it has no ids, more of them"):
        decode([[5] * 25], tokenizer, fill=0)
    filled = decode([[5, 1, id]], tokenizer, fill=id)
    assert filled.texts.to_pylist() == [as_one(np.array([5]), tokenizer, keep_newlines=False)]
    assert filled.lengths.tolist() == [2]
