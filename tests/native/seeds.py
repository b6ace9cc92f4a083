"""Write the inputs that fuzzers begin with: python -m tests.native.seeds FOLDER. Each is small; none is a stranger's."""

import struct
import sys
from pathlib import Path

import numpy as np

from tests.records_in_python import example, field, varint


def piece(text: str, score: float, kind: int = 1) -> bytes:
    """A piece of a SentencePiece model."""
    return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + varint(kind))


def model(
    *pieces: bytes, charsmap: bytes = b"", options: bytes = b"\x18\x01\x20\x01\x28\x01", trainer: bytes = b"\x18\x01"
) -> bytes:
    """A unigram model of these pieces, and what each has."""
    special = piece("<unk>", 0, 2) + piece("<pad>", 0, 3) + piece("</s>", 0, 3)
    return (
        special + b"".join(pieces) + field(2, trainer) + field(3, (field(2, charsmap) if charsmap else b"") + options)
    )


def rule(byte: str, becomes: bytes) -> bytes:
    """A character map with one rule."""
    units = np.zeros(1024 // 4, np.uint32)
    units[0] = 1 << 10  # the root: its children are at 1 ^ label
    units[1 ^ ord(byte)] = ord(byte) | 1 << 8 | (ord(byte) ^ 1 ^ 2) << 10  # a leaf, whose value is at 2
    units[2] = 1 << 31  # the text at 0
    return struct.pack("<I", 1024) + units.tobytes() + becomes + b"\0"


def seeds() -> dict[str, list[bytes]]:
    """Return the inputs for each target of fuzz.c. Their first bytes are numbers that it takes."""
    plain = model(piece("▁", -2), piece("a", -3), piece("▁ab", -1), piece("b", -3))
    fallback = model(
        *(piece(f"<0x{byte:02X}>", -5, 6) for byte in range(256)), piece("▁a", -1), trainer=b"\x18\x01\x98\x02\x01"
    )
    odd = model(piece("▁a", 3e38), piece("x", -3e38), piece("q▁z", -1), piece("own", 0, 4))
    rules = model(piece("b", -1), piece("▁", -2), charsmap=rule("a", b"bbb b"))
    spaces = model(piece("▁▁", -1), piece("a", -2), options=b"\x18\x00\x20\x00\x28\x01")
    texts = [b"ab a  b", "a\u00e9 漢字\ufdfa".encode(), b"\xff\xe2\x96\x81a\xf0\x9f", b"own q z" + b"x" * 40]
    record, frames = example({"id": [b"a"], "input_ids": [5, 300, 70_000, 1], "labels": [-100, 2]}), b""
    for payload in (b"", b"abc", record):
        frames += struct.pack("<Q", len(payload)) + bytes(4) + payload + bytes(4)
    return {
        "MODEL": [
            struct.pack(">H", len(text)) + payload + text
            for payload in (plain, fallback, odd, rules, spaces)
            for text in texts
        ],
        "ENCODE": [*texts, "line 1: café, “x” ﷺ e\u0301".encode(), b"the  of \n and" * 5],
        "DECODE": [
            struct.pack(">4H", *shape) + payload
            for payload in (record, example({"id": [b"a"], "input_ids": [], "labels": []}))
            for shape in ((4, 2, 0, 0), (3, 2, 5, 3))
        ],
        "BLOCKS": [struct.pack(">H", 3) + frames, struct.pack(">H", 0)],
        "CSV": [b'a,"b ""c""\r\nd",e\n\rx\n', b'"a\n', b'a","\n', b"\r\r\n"],
        "JSON": [b'{"a": [1, {"b\\n": "c"}], "d": "\\u0000"}\n{"a": NaN}\n', b'{"a": 1, "a": 2}', b"{}\n{}"],
        "SHINGLES": [b"\0\5some words \xe3\x81\x82\xe3\x81\x84 here\0?!\0" + b"x" * 300, b"\0\0\0\0"],
        "FRAMES": [
            struct.pack(">3H", 2, flags, 5) + bytes(50) + struct.pack(">2H", 60, 9) + b"\1\0\0\0x" * 30
            for flags in range(32)
        ],
        "PIECES": [
            struct.pack(">26H", 7, *(range(24) if first else [5, 6, 7, 8] * 6), strip)
            + struct.pack("<3Q", first << 63 | 3 << 32, 1 << 62, 1 << 48 | 20 << 32 | 3)
            + struct.pack("<4Q", *(1 << 61 | 1 << 32 | position for position in (21, 22, 23, 24)))
            + b" a " * 7
            + b"\xf0\x9f\x99\x82" * 5
            for first in (0, 1)
            for strip in (0, 1)
        ],
        "SPANS": [struct.pack(">3H", 15, 60, 4) + bytes(range(16)), struct.pack(">3H", 0, 0, 0) + bytes(8)],
    }


if __name__ == "__main__":
    for target, inputs in seeds().items():
        folder = Path(sys.argv[1]) / target
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(inputs):
            (folder / str(number)).write_bytes(data)
