"""Build ByT5's vocabulary as a SentencePiece model: 3 special tokens, then one token for each of the 256 bytes.

ByT5 (Xue et al. 2022) has no vocabulary file. As a SentencePiece model of type `char` with byte pieces only, it is
saved, hashed and copied like any other model. Nothing is normalized, so every text decodes to itself.
"""

from t5prep.tokens.build_model import BYTE, CHAR, CONTROL, UNKNOWN, Normalization, Piece, build

SPECIAL = (Piece("<pad>", kind=CONTROL), Piece("</s>", kind=CONTROL), Piece("<unk>", kind=UNKNOWN))


def model() -> bytes:
    """Return the serialized model: id 3 is byte 0, id 258 is byte 255."""
    pieces = [*SPECIAL, *(Piece(f"<0x{byte:02X}>", kind=BYTE) for byte in range(256))]
    return build(pieces, Normalization("identity", spaces=False), model_type=CHAR)
