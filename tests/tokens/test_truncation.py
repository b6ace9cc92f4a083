"""Truncation on its own: every length around every limit, for every policy."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5prep.dataset.settings import POLICIES
from t5prep.tokens import featurizer, ragged
from t5prep.tokens.featurizer import Truncation
from t5prep.tokens.ragged import Frame
from tests.featurized_examples import truncate

EOS, MARKER = 1, 32_098
LENGTHS = [0, 1, 2, 3, *range(254, 259), *range(510, 515), 1024]


def document(length: int) -> list[int]:
    return [*range(10, 10 + length - 1), EOS][:length]


def cut(ids: list[int], limit: int, policy: str, marker: int | None) -> list[int]:
    """A list of ids, cut as a whole row."""
    (cut_ids,) = Truncation(policy, limit, marker).cut_rows(ragged.of([np.array(ids, np.int32)])).to_arrays()
    return cut_ids.tolist()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("marker", [MARKER, None])
def test_what_survives(policy: str, marker: int | None) -> None:
    marked = policy == "head_tail" and marker is not None
    for tokens, limit in itertools.product(LENGTHS, [4, 5, 255, 256, 511, 512]):
        ids = document(tokens)
        cut_ids = cut(ids, limit, policy, marker)
        if tokens <= limit:
            assert cut_ids == ids
            continue
        assert cut_ids == truncate(ids, limit, policy=policy, marker=marker)
        assert len(cut_ids) == limit
        assert cut_ids[-1] == EOS
        assert cut_ids.count(MARKER) == marked
        head, tail = featurizer.ends(limit, policy=policy, marked=marked)
        assert cut_ids[:head] == ids[:head]
        assert cut_ids[limit - tail :] == ids[tokens - tail :]
        assert policy != "head_tail" or abs(head - tail) <= 1


@given(st.integers(1, 3000), st.integers(4, 600), st.sampled_from(POLICIES), st.sampled_from([MARKER, None]))
def test_cutting_twice_is_cutting_once(tokens: int, limit: int, policy: str, marker: int | None) -> None:
    once = cut(document(tokens), limit, policy, marker)
    assert cut(once, limit, policy, marker) == once


@given(st.lists(st.tuples(st.lists(st.integers(0, 500), max_size=8), st.integers(0, 1000)), min_size=1, max_size=5))
def test_room_is_shared_fairly_and_used_up(rows: list[tuple[list[int], int]]) -> None:
    lengths = [len(wants) for wants, _ in rows]
    wants = np.array([want for row_wants, _ in rows for want in row_wants], np.int64)
    allotments = featurizer.allot(wants, np.repeat(np.arange(len(rows)), lengths), np.array([room for _, room in rows]))
    for (row_wants, room), shares in zip(rows, np.split(allotments, np.cumsum(lengths)[:-1]), strict=True):
        assert shares.sum() == min(room, sum(row_wants))
        assert all(0 <= got <= want for got, want in zip(shares, row_wants, strict=True))
        short = [got for got, want in zip(shares, row_wants, strict=True) if got < want]
        assert not short or max(short) - min(short) <= 1


@given(
    st.lists(st.lists(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=3), min_size=1, max_size=3)),
    st.integers(4, 40),
    st.sampled_from(POLICIES),
    st.booleans(),
)
def test_texts_that_are_cut_apart(rows: list, length: int, policy: str, marked: bool) -> None:
    """Against one row after the other: what is protected stays whole, the others share the rest."""
    marker = MARKER if marked and policy == "head_tail" else None
    parts = [part for row in rows for field in row for part in field]
    fields = ragged.begins([len(field) for row in rows for field in row])
    texts = ragged.of([np.arange(10, 10 + size, dtype=np.int32) for size, _ in parts])
    cut_rows, fixed = Truncation(policy, length, marker).cut_texts(
        texts,
        protected=np.array([is_protected for _, is_protected in parts], bool),
        fields=fields,
        rows=ragged.begins([len(row) for row in rows]),
        frame=Frame((2,), (3, 4), (5,)),
    )
    for row, ids, needed in zip(rows, cut_rows.to_arrays(), fixed.tolist(), strict=True):
        special = 2 + 2 * (len(row) - 1)
        assert needed == special + sum(size for field in row for size, is_protected in field if is_protected)
        wants = [size for field in row for size, is_protected in field if not is_protected]
        room = max(length - needed, 0)
        rooms = iter(featurizer.allot(np.array(wants), np.zeros(len(wants), int), np.array([room])).tolist())
        straight = [2]
        for number, field in enumerate(row):
            straight += [3, 4] if number else []
            for size, is_protected in field:
                straight += one_text(list(range(10, 10 + size)), size if is_protected else next(rooms), policy, marker)
        assert ids.tolist() == [*straight, 5]
        assert len(ids) <= max(length, needed)


def one_text(ids: list[int], room: int, policy: str, marker: int | None) -> list[int]:
    """A text without EOS, cut by itself."""
    if len(ids) <= room or not room:
        return ids[:room]
    if policy == "head":
        return ids[:room]
    return truncate(ids, room, policy=policy, marker=marker)
