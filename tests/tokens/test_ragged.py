"""Lists of ids in one array are what they would be one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5prep import _native
from t5prep.tokens import ragged

LISTS = st.lists(st.lists(st.integers(0, 40_000), max_size=20), max_size=12)


def of(lists: list[list[int]]) -> ragged.Ragged:
    return ragged.of([np.array(one, np.int32) for one in lists])


def apart(lists: ragged.Ragged) -> list[list[int]]:
    return [one.tolist() for one in lists.apart()]


@given(st.lists(LISTS, max_size=4))
def test_framing(rows: list[list[list[int]]]) -> None:
    edges = ragged.begins([len(row) for row in rows])
    found = apart(ragged.framed(of([one for row in rows for one in row]), edges, ragged.Frame((7,), (8, 9), (1,))))
    straight = [[token for one in row for token in (8, 9, *one)][2:] for row in rows]
    assert found == [[7, *ids, 1] if row else [] for ids, row in zip(straight, rows, strict=True)]


@given(LISTS, st.data())
def test_replacing(lists: list[list[int]], data: st.DataObject) -> None:
    which = [place for place in range(len(lists)) if data.draw(st.booleans())]
    others = [data.draw(st.lists(st.integers(0, 9), max_size=5)) for _ in which]
    changed = dict(zip(which, others, strict=True))
    found = ragged.replaced(of(lists), np.array(which, np.int64), of(others))
    assert apart(found) == [changed.get(place, one) for place, one in enumerate(lists)]


@given(LISTS.filter(len), st.lists(st.integers(0, 11), max_size=20))
def test_taking(lists: list[list[int]], rows: list[int]) -> None:
    picked = np.array([row % len(lists) for row in rows], np.int64)
    assert apart(ragged.take(of(lists), picked)) == [lists[row] for row in picked]


@pytest.mark.parametrize(
    "numbers", [(-1, 0, 1), (0, -1, 1), (0, 0, -1), (0, 0, 5), (3, 0, 2), (0, 3, 2), (1 << 62, 0, 1 << 62)]
)
def test_c_copies_nothing_that_is_not_there(numbers: tuple[int, int, int]) -> None:
    begin, place, length = (np.array([number]) for number in numbers)
    with pytest.raises(ValueError, match="offsets"):
        _native.copy_lists(np.zeros(4, np.int32), begin, np.zeros(4, np.int32), place, length)
