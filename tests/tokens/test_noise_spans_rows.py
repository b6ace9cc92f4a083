import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5prep.tokens import noise_spans, ragged


def documents(sizes):
    """Documents whose tokens say where they stand: 1000 × document + offset."""
    return [(f"doc{index}", np.arange(size, dtype=np.int32) + 1000 * index) for index, size in enumerate(sizes)]


def batches(sizes, max_documents):
    """The same documents, at most so many together."""
    every = documents(sizes)
    for begin in range(0, len(every), max_documents):
        names, ids = zip(*every[begin : begin + max_documents], strict=True)
        yield names, ragged.of(ids)


@given(
    sizes=st.lists(st.integers(0, 40), max_size=30),
    length=st.integers(1, 15),
    window=st.integers(1, 4),
    max_documents=st.integers(1, 9),
)
def test_every_token_stands_once_in_order_and_rows_know_their_start(sizes, length, window, max_documents):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_spans, "ROWS", window)
        blocks = list(noise_spans.chunks(batches(sizes, max_documents), length=length))
    for ids, tokens in blocks:
        assert tokens.dtype == np.int32
        assert len(ids) == len(tokens)
        for name, row in zip(ids, tokens, strict=True):
            document, offset = name.removeprefix("doc").split("@")
            assert row[0] == 1000 * int(document) + int(offset)
    assert all(tokens.shape[1] == length for _, tokens in blocks[:-1])
    assert sum(tokens.shape[1] < length for _, tokens in blocks) <= 1
    flat = np.concatenate([np.empty(0, np.int32), *[tokens.ravel() for _, tokens in blocks]])
    np.testing.assert_array_equal(flat, [token for _, ids in documents(sizes) for token in ids])


@given(
    sizes=st.lists(st.integers(0, 40), max_size=20),
    windows=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=2),
)
def test_rows_do_not_depend_on_how_many_are_cut_at_once(sizes, windows):
    row_lists = []
    for window, max_documents in windows:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(noise_spans, "ROWS", window)
            blocks = list(noise_spans.chunks(batches(sizes, max_documents), length=7))
        row_lists.append(
            [(name, row.tolist()) for ids, tokens in blocks for name, row in zip(ids, tokens, strict=True)]
        )
    assert row_lists[0] == row_lists[1]


def test_no_documents_make_no_rows():
    assert list(noise_spans.chunks([], length=4)) == []
    assert list(noise_spans.chunks([(["a"], ragged.of([[]]))], length=4)) == []
