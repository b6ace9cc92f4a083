import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5prep import _native
from t5prep.preparation.near_duplicates.sketches import LONG_WORD, folded, shingles, word_edges
from tests import shingles_in_numpy


def _of(text: str, *, words: int = 3) -> list[int]:
    return shingles([text], words=words).hashes.tolist()


def test_each_run_of_words_is_a_shingle() -> None:
    assert len(_of("one two three four five")) == 3
    assert _of("one two three four")[1] == _of("zero two three four")[1]
    assert len(set(_of("one two three four five six"))) == 4


@pytest.mark.parametrize(
    ("first_text", "second_text"),
    [
        ("Why not?", "why  NOT"),
        ("“why” — not…", "why not"),
        ("the ﬁrst (text)", "The first text."),
        ("STRASSE frei", "straße frei"),
    ],
)
def test_case_marks_and_forms_do_not_count(first_text: str, second_text: str) -> None:
    assert _of(first_text) == _of(second_text)


@pytest.mark.parametrize(
    ("first_text", "second_text"),
    [
        ("a b c", "c b a"),
        ("ab c", "a bc"),
        ("a", "a a"),
        ("a b", "b a"),
        ("x" * 8, "x" * 9),
        ("x" * LONG_WORD + "y", "x" * LONG_WORD + "z"),
        ("!!!", "???"),
        ("12345678 abcdefgh", "abcdefgh 12345678"),
        ("abcdefgh12345678", "12345678abcdefgh"),
    ],
)
def test_different_words_have_different_shingles(first_text: str, second_text: str) -> None:
    assert _of(first_text) != _of(second_text)


def test_a_short_text_is_one_shingle_and_an_empty_one_none() -> None:
    assert len(_of("two words", words=5)) == 1
    assert _of("", words=5) == _of(" \n", words=5) == []
    assert len(_of("?!", words=5)) == 1


def test_characters_of_scripts_without_spaces_are_words() -> None:
    assert len(_of("东京は晴れ", words=3)) == 3
    assert set(_of("abc东京は", words=2)) >= set(_of("东京は", words=2))
    assert len(_of("xé东y", words=1)) == 3


@given(st.lists(st.text(), max_size=6))
def test_a_text_has_the_same_shingles_alone_and_among_others(texts: list[str]) -> None:
    all_shingles = shingles(texts, words=2)
    assert len(all_shingles.begins) == len(texts) + 1
    for i, text in enumerate(texts):
        text_hashes = all_shingles.hashes[all_shingles.begins[i] : all_shingles.begins[i + 1]]
        assert text_hashes.tolist() == _of(text, words=2)


@given(st.lists(st.sampled_from(["a", "bb", "x" * 300, "12", "c3" * 7]), max_size=12))
def test_as_many_shingles_as_runs_of_words(words: list[str]) -> None:
    expected = {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))} if words else set()
    assert len(np.unique(_of(" ".join(words)))) == len(expected)


_PIECES = st.sampled_from(
    ["a", "bb!", "?!", " ", "\n", "12345678", "x" * 300, "京都は", "é", "—", "ﬁ", "\ud800", "\0", "が\u3099"]
)


@given(st.lists(st.one_of(st.text(), st.lists(_PIECES, max_size=9).map("".join)), max_size=6), st.integers(1, 6))
def test_c_and_numpy_make_the_same_shingles(texts: list[str], words: int) -> None:
    in_c = shingles(texts, words=words)
    in_numpy = shingles_in_numpy.shingles(texts, words=words)
    assert in_c.begins.tolist() == in_numpy.begins.tolist()
    assert in_c.hashes.tolist() == in_numpy.hashes.tolist()


def test_buffers_that_do_not_fit_are_refused() -> None:
    data, begins = np.zeros(16, np.uint8), np.array([0, 9])
    buffers = np.empty(16, np.uint64), np.empty(1, np.int64), np.empty((1, 3), np.int64)
    with pytest.raises(ValueError, match="do not fit"):
        _native.word_hashes(data, begins, *buffers)  # fewer than eight bytes follow the text
    with pytest.raises(ValueError, match="do not fit"):
        _native.run_hashes(
            np.zeros(3, np.uint64), np.array([4]), np.ones(2, np.uint64), buffers[0], np.empty(2, np.int64)
        )


@given(st.one_of(st.text(), st.lists(_PIECES, max_size=9).map("".join)))
def test_words_are_those_that_shingles_are_made_of(text: str) -> None:
    encoded = folded(text).encode("utf-8", "surrogatepass")
    data = np.frombuffer(encoded + bytes(9), np.uint8)
    starts, stops, _ = shingles_in_numpy.spans_of(data, np.array([0, len(encoded) + 1]))
    words = [encoded[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, stops, strict=True)]
    folded_words = [folded(text[begin:end]) for begin, end in word_edges(text)]
    assert len(folded_words) == len(words)
    assert all(word in folded_word for word, folded_word in zip(words, folded_words, strict=True))
