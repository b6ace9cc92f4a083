"""Lists of ids in one array are what they would be one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5prep import _native
from t5prep.tokens import ragged

LISTS = st.lists(st.lists(st.integers(0, 40_000), max_size=20), max_size=12)


def of(lists: list[list[int]]) -> ragged.Ragged:
    return ragged.of([np.array(ids, np.int32) for ids in lists])


def to_lists(lists: ragged.Ragged) -> list[list[int]]:
    return [ids.tolist() for ids in lists.to_arrays()]


@given(st.lists(LISTS, max_size=4))
def test_framing(rows: list[list[list[int]]]) -> None:
    edges = ragged.begins([len(row) for row in rows])
    actual = to_lists(
        ragged.framed(of([tokens for row in rows for tokens in row]), edges, ragged.Frame((7,), (8, 9), (1,)))
    )
    straight = [[token for tokens in row for token in (8, 9, *tokens)][2:] for row in rows]
    assert actual == [[7, *ids, 1] if row else [] for ids, row in zip(straight, rows, strict=True)]


@given(LISTS, st.data())
def test_replacing(lists: list[list[int]], data: st.DataObject) -> None:
    indices = [index for index in range(len(lists)) if data.draw(st.booleans())]
    replacements = [data.draw(st.lists(st.integers(0, 9), max_size=5)) for _ in indices]
    changed = dict(zip(indices, replacements, strict=True))
    actual = ragged.replaced(of(lists), np.array(indices, np.int64), of(replacements))
    assert to_lists(actual) == [changed.get(index, ids) for index, ids in enumerate(lists)]


@given(LISTS.filter(len), st.lists(st.integers(0, 11), max_size=20))
def test_taking(lists: list[list[int]], rows: list[int]) -> None:
    picked = np.array([row % len(lists) for row in rows], np.int64)
    assert to_lists(ragged.take(of(lists), picked)) == [lists[row] for row in picked]


@pytest.mark.parametrize(
    "numbers", [(-1, 0, 1), (0, -1, 1), (0, 0, -1), (0, 0, 5), (3, 0, 2), (0, 3, 2), (1 << 62, 0, 1 << 62)]
)
def test_c_copies_nothing_that_is_not_there(numbers: tuple[int, int, int]) -> None:
    begin, target_offset, length = (np.array([number]) for number in numbers)
    with pytest.raises(ValueError, match="offsets"):
        _native.copy_lists(np.zeros(4, np.int32), begin, np.zeros(4, np.int32), target_offset, length)
