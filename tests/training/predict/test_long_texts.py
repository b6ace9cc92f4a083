"""Long texts in parts: nothing is lost between them, and none is longer than it may be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5prep.errors import Reject
from t5prep.tasks.example import EOS, Example, Protected
from t5prep.tokens import loading
from t5prep.training.predict import long_texts

WORDS = loading.load("sample:")
TEXTS = st.lists(
    st.sampled_from(
        ["Why?", "So it is.", "  ", "\n\n", " ", "word", "„Da.” ", "Mr. X ", "a" * 40, "…", ".", "\t", "țară "]
    ),
    max_size=60,
).map("".join)


@given(text=TEXTS, room=st.integers(8, 30))
@settings(deadline=None, max_examples=200)
def test_copies_of_the_parts_are_the_text(text: str, room: int) -> None:
    example = Example(None, (Protected("fix: "), text), "")
    parts = long_texts.split(example, tokenizer=WORDS, room=room, limit=30)
    assert parts.join([str(part.inputs[1]) for part in parts.examples]) == text
    for part in parts.examples:
        assert str(part.inputs[1]).strip()
        assert len(WORDS.encode("fix: " + str(part.inputs[1]))) + 1 <= 30


def test_texts_are_divided_between_sentences() -> None:
    text = "Unu doi. Trei? „Patru.” Cinci…\nȘase șapte"
    parts = long_texts.split(Example(None, text, ""), tokenizer=WORDS, room=4, limit=64)
    assert [part.inputs for part in parts.examples] == [
        ("Unu doi.",), ("Trei?",), ("„Patru.”",), ("Cinci…",), ("Șase șapte",)
    ]  # fmt: skip
    assert parts.separators == ("", " ", " ", " ", "\n", "")


def test_what_cannot_be_divided_is_a_reason() -> None:
    for inputs, reason in (
        (("a", EOS, "b"), "its input has 2 texts"),
        ((Protected("a"),), "its input has 0 texts"),
        ((Protected("word " * 40), "b"), "protected text too long"),
    ):
        with pytest.raises(Reject, match=reason):
            long_texts.split(Example(None, inputs, ""), tokenizer=WORDS, room=20, limit=30)
