import numpy as np
import pytest
import records_in_python
from hypothesis import given
from hypothesis import strategies as st
from unpacked_records import unpack

from t5prep.tokens import ragged

ROOM = (16, 6)
PADS = {"pad_id": 0, "label_pad": -100}


@st.composite
def examples(draw):
    sizes = draw(st.lists(st.tuples(st.integers(1, ROOM[0]), st.integers(0, ROOM[1])), max_size=30))
    # Every token is another one, so that a token at a wrong place shows.
    names = iter(range(3, 10_000))
    return [tuple(np.array([next(names) for _ in range(size)], np.int32) for size in pair) for pair in sizes]


def plain_first_fit(sizes, room):
    """The definition, as slow as it is plain."""
    free, rows = [], []
    for size in sizes:
        row = next(
            (
                index
                for index, remaining_room in enumerate(free)
                if all(a >= b for a, b in zip(remaining_room, size, strict=True))
            ),
            None,
        )
        if row is None:
            row = len(free)
            free.append(room)
        free[row] = tuple(a - b for a, b in zip(free[row], size, strict=True))
        rows.append(row)
    return rows


@given(examples())
def test_first_fit_is_first_fit(pairs):
    sizes = np.array([[len(side) for side in pair] for pair in pairs], np.int64).reshape(-1, 2)
    assert ragged.first_fit(sizes, room=ROOM).tolist() == plain_first_fit(sizes.tolist(), ROOM)


@given(examples())
def test_unpack_gives_back_every_example(pairs):
    packed = records_in_python.pack(pairs, room=ROOM, **PADS)
    rows = unpack(packed)
    read_counts = [0] * len(rows)
    for pair, row in zip(pairs, packed["example_rows"], strict=True):
        for side, unpacked_ids in zip(pair, rows[row][read_counts[row]], strict=True):
            np.testing.assert_array_equal(unpacked_ids, side)
        read_counts[row] += 1
    assert read_counts == [len(row) for row in rows]


@given(examples())
def test_rows_hold_what_the_contract_says(pairs):
    packed = records_in_python.pack(pairs, room=ROOM, **PADS)
    for ids, name, length, pad in (("input_ids", "input", ROOM[0], 0), ("labels", "label", ROOM[1], -100)):
        segments, positions = packed[f"{name}_segment_ids"], packed[f"{name}_positions"]
        for key in (ids, f"{name}_segment_ids", f"{name}_positions"):
            assert packed[key].dtype == np.int32
            assert packed[key].shape == (packed["example_rows"].max(initial=-1) + 1, length)
        assert ((packed[ids] == pad) == (segments == 0)).all()
        for row in range(len(segments)):
            tokens = int((segments[row] > 0).sum())
            assert (segments[row, tokens:] == 0).all(), "padding stands only at the end"
            assert (np.diff(segments[row, :tokens]) >= 0).all()
            for segment in set(segments[row, :tokens].tolist()):
                mine = positions[row][segments[row] == segment]
                np.testing.assert_array_equal(mine, np.arange(len(mine)))
            assert (positions[row, tokens:] == 0).all()


@pytest.mark.parametrize("size", [(17, 1), (1, 7)])
def test_an_example_longer_than_a_row_is_refused(size):
    pair = tuple(np.ones(length, np.int32) for length in size)
    with pytest.raises(ValueError, match="example 1 has"):
        records_in_python.pack([(np.ones(2, np.int32), np.ones(1, np.int32)), pair], room=ROOM, **PADS)


def test_short_examples_lose_most_of_their_padding():
    generator = np.random.default_rng(0)
    sizes = np.stack([generator.integers(4, 60, 2000), np.full(2000, 2)], axis=1)
    rows = ragged.first_fit(sizes, room=(512, 64))
    filled = [sizes.sum() / (count * (512 + 64)) for count in (len(sizes), int(rows.max()) + 1)]
    assert filled[0] < 0.1
    assert filled[1] > 0.9


def test_no_examples_make_no_rows():
    packed = records_in_python.pack([], room=ROOM, **PADS)
    assert packed["input_ids"].shape == (0, 16)
    assert unpack(packed) == []


@pytest.mark.parametrize("last", [(1, 1), (300, 10)])
def test_rows_that_stay_open_cost_no_walk_over_them(last):
    """One short example keeps every row open: a walk over the open rows for each example would be quadratic."""
    sizes = np.tile(np.array([[300, 10]]), (400_000, 1))
    sizes[-1] = last
    rows = ragged.first_fit(sizes, room=(512, 114))
    assert rows[:-1].tolist() == list(range(len(sizes) - 1))
    assert rows[-1] == (0 if last == (1, 1) else len(sizes) - 1)
