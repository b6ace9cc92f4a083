"""Lists of ids in one array are what they would be one by one, with and without the copying in C."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5prep.tokens import ragged, truncation

IN_C = ragged.copy_lists
LISTS = st.lists(st.lists(st.integers(0, 40_000), max_size=20), max_size=12)


@pytest.fixture(params=["c", "numpy"], autouse=True, scope="module")
def copying(request: pytest.FixtureRequest):
    if request.param == "c" and IN_C is None:
        pytest.skip("copying in C is not built here")
    ragged.copy_lists = IN_C if request.param == "c" else None
    yield
    ragged.copy_lists = IN_C


def of(lists: list[list[int]]) -> ragged.Ragged:
    return ragged.of([np.array(one, np.int32) for one in lists])


def apart(lists: ragged.Ragged) -> list[list[int]]:
    return [one.tolist() for one in lists.apart()]


@given(LISTS, st.sampled_from(truncation.POLICIES), st.integers(4, 12), st.booleans())
def test_cutting(lists: list[list[int]], policy: str, length: int, marked: bool) -> None:
    marker = 99_999 if marked and policy == "head_tail" else None
    keep = truncation.ends(length, policy=policy, marked=marker is not None)
    found = apart(ragged.cut(of(lists), length, keep=keep, middle=marker))
    assert found == [truncation.truncate(one, length, policy=policy, marker=marker) for one in lists]


@given(LISTS, st.integers(1, 3))
def test_joining(lists: list[list[int]], fields: int) -> None:
    columns = [[one * (field + 1) for one in lists] for field in range(fields)]
    found = apart(ragged.joined([of(column) for column in columns], after=1))
    assert found == [[token for one in row for token in (*one, 1)] for row in zip(*columns, strict=True)]


@given(LISTS.filter(len), st.lists(st.integers(0, 11), max_size=20))
def test_taking(lists: list[list[int]], rows: list[int]) -> None:
    picked = np.array([row % len(lists) for row in rows], np.int64)
    assert apart(ragged.taken(of(lists), picked)) == [lists[row] for row in picked]


@pytest.mark.parametrize(
    "numbers", [(-1, 0, 1), (0, -1, 1), (0, 0, -1), (0, 0, 5), (3, 0, 2), (0, 3, 2), (1 << 62, 0, 1 << 62)]
)
def test_c_copies_nothing_that_is_not_there(numbers: tuple[int, int, int]) -> None:
    if IN_C is None:
        pytest.skip("copying in C is not built here")
    begin, place, length = (np.array([number]) for number in numbers)
    with pytest.raises(ValueError, match="offsets"):
        IN_C(np.zeros(4, np.int32), begin, np.zeros(4, np.int32), place, length)
