"""JSON that is written in pieces has the bytes of JSON that is written at once, and needs no memory for its length."""

import dataclasses
import json
import tracemalloc
from typing import Any

import pytest

from t5prep.dataset import manifest


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Stand for a shard."""

    name: str
    bytes: int


@pytest.mark.parametrize(
    "how", [{}, {"indent": 2, "ensure_ascii": False}, {"sort_keys": True, "separators": (",", ":")}]
)
def test_the_bytes_are_those_of_a_text_made_at_once(how: dict[str, Any]) -> None:
    parts = [Part(f"ă{i}", i) for i in range(3000)]
    facts = {"z": 1, "parts": parts, "none": [], "a": {"b": None, "part": parts[0]}}
    pieces = list(manifest.json_pieces(facts, **how))
    assert len(pieces) > 2
    assert b"".join(pieces) == json.dumps(facts, default=dataclasses.asdict, **how).encode()


def test_a_hundred_thousand_parts_are_not_in_memory_as_text() -> None:
    part = Part("x" * 300, 1)
    tracemalloc.start()
    try:
        size = sum(len(piece) for piece in manifest.json_pieces([part] * 10_000, indent=2))
        assert tracemalloc.get_traced_memory()[1] < size / 4
    finally:
        tracemalloc.stop()
