"""Drawing lines by hash: a set's sample, whatever the order and the parts it comes in."""

import collections

from hypothesis import given
from hypothesis import strategies as st

from t5prep.tokens import tokenizer_training
from t5prep.tokens.tokenizer_training import LONGEST_LINE_BYTES, Drawing


def draw(lines, *, max_lines, seed=0):
    """Return the sample of some lines."""
    drawing = Drawing(max_lines, seed=seed)
    drawing.add(lines)
    return drawing.lines()


texts = st.lists(st.text(max_size=8), max_size=60)


@given(texts, st.integers(1, 20), st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(lines, max_lines, random):
    expected = draw(lines, max_lines=max_lines)
    random.shuffle(lines)
    assert draw(lines, max_lines=max_lines) == expected
    assert len(expected) == min(max_lines, len(set(lines)))


@given(texts, st.integers(1, 20), st.integers(0, 60))
def test_drawing_from_parts_is_drawing_from_the_whole(lines, max_lines, cut):
    parts = [draw(part, max_lines=max_lines) for part in (lines[:cut], lines[cut:])]
    assert draw([line for part in parts for line in part], max_lines=max_lines) == draw(lines, max_lines=max_lines)


@given(texts, st.integers(1, 20))
def test_more_lines_begin_with_fewer(lines, max_lines):
    assert draw(lines, max_lines=max_lines + 3)[:max_lines] == draw(lines, max_lines=max_lines)


def test_it_never_holds_more_than_it_draws():
    drawing = Drawing(10, seed=0)
    for number in range(1000):
        drawing.add([f"line {number}"] * 2)
        assert len(drawing._heap) == len(drawing._priorities) <= 10


def test_every_line_is_as_likely_and_another_seed_draws_others():
    lines = [f"line {number}" for number in range(100)]
    samples = [draw(lines, max_lines=10, seed=seed) for seed in range(200)]
    counts = collections.Counter(line for sample in samples for line in sample)
    assert len({tuple(sample) for sample in samples}) == 200
    assert 3 <= min(counts.values()) <= max(counts.values()) <= 40  # 20 expected, sd 4.2


@given(st.text(st.sampled_from("aé𝄞 \n\t"), max_size=40_000))
def test_lines_are_cut_and_nothing_is_lost(text):
    lines = list(tokenizer_training.lines_of(text))
    assert all(0 < len(line.encode()) <= LONGEST_LINE_BYTES for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_long_line_is_cut_at_spaces():
    words = "word " * 3000
    assert {word for line in tokenizer_training.lines_of(words) for word in line.split()} == {"word"}
    assert [len(line) for line in tokenizer_training.lines_of("é" * 5000)] == [2096, 2096, 808]
