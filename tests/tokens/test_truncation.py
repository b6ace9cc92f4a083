"""Truncation on its own: every length around every limit, for every policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5prep.tokens import truncation

EOS, MARKER = 1, 32_098
LENGTHS = [0, 1, 2, 3, *range(254, 259), *range(510, 515), 1024]


def document(length: int) -> list[int]:
    return [*range(10, 10 + length - 1), EOS][:length]


@pytest.mark.parametrize("policy", truncation.POLICIES)
@pytest.mark.parametrize("marker", [MARKER, None])
@pytest.mark.parametrize("tokens", LENGTHS)
@pytest.mark.parametrize("limit", [4, 5, 255, 256, 511, 512])
def test_what_survives(policy: str, marker: int | None, tokens: int, limit: int) -> None:
    ids = document(tokens)
    cut = truncation.truncate(ids, limit, policy=policy, marker=marker)
    if tokens <= limit:
        assert cut == ids
        return
    assert len(cut) == limit
    assert cut[-1] == EOS
    assert cut.count(MARKER) == (policy == "head_tail" and marker is not None)
    head, tail = truncation.ends(limit, policy=policy, marked=policy == "head_tail" and marker is not None)
    assert cut[:head] == ids[:head]
    assert cut[limit - tail :] == ids[tokens - tail :]
    assert abs(head - tail) <= 1 if policy == "head_tail" else True


@given(st.integers(1, 3000), st.integers(4, 600), st.sampled_from(truncation.POLICIES), st.sampled_from([MARKER, None]))
def test_cutting_twice_is_cutting_once(tokens: int, limit: int, policy: str, marker: int | None) -> None:
    once = truncation.truncate(document(tokens), limit, policy=policy, marker=marker)
    assert truncation.truncate(once, limit, policy=policy, marker=marker) == once


@given(st.lists(st.integers(0, 500), min_size=1, max_size=8), st.integers(0, 1000))
def test_room_is_shared_fairly_and_used_up(wants: list[int], room: int) -> None:
    given_ = truncation.allot(wants, room)
    assert sum(given_) == min(room, sum(wants))
    assert all(0 <= got <= want for got, want in zip(given_, wants, strict=True))
    short = [got for got, want in zip(given_, wants, strict=True) if got < want]
    assert not short or max(short) - min(short) <= 1
