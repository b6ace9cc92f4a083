"""ByT5's vocabulary as a SentencePiece model: 3 special tokens, then a token for each of the 256 bytes of UTF-8.

ByT5 (Xue et al. 2022) comes without a vocabulary file. As a model of bytes alone, of SentencePiece's type `char`, it is
kept, hashed and shipped like any other; nothing is normalized, so every text comes back as it was.
"""

from t5prep.tokens.build_model import BYTE, CHAR, CONTROL, UNKNOWN, Normalization, Piece, build

SPECIAL = (Piece("<pad>", kind=CONTROL), Piece("</s>", kind=CONTROL), Piece("<unk>", kind=UNKNOWN))


def model() -> bytes:
    """Return the serialized model: id 3 is byte 0, id 258 byte 255."""
    pieces = [*SPECIAL, *(Piece(f"<0x{byte:02X}>", kind=BYTE) for byte in range(256))]
    return build(pieces, Normalization("identity", spaces=False), model_type=CHAR)
