"""What strangers wrote, and arguments that no caller of ours passes, end in an error in C: never in a crash, nor in a wrong answer."""

import contextlib
import io
import itertools
import os
import threading

import numpy as np
import pytest
import records_in_python
import sentencepiece
from seeds import field, model, piece, rule

from t5prep import _native
from t5prep.dataset import tfrecord
from t5prep.tokens.tokenizer import BlockEncoder


@pytest.mark.parametrize("scores", [(3e38, -3e38), (1.1e30, -1), (1, -3e38), (float("inf"), -1), (float("nan"), -1)])
def test_scores_whose_sums_are_not_finite_are_refused(scores: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="no unigram model"):
        _native.Unigram(model(piece("▁a", scores[0]), piece("x", scores[1])))


def test_pieces_of_the_user_alone_give_no_score_to_unknown_characters() -> None:
    with pytest.raises(ValueError, match="no unigram model"):
        _native.Unigram(model(piece("a", 0, 4)))


def test_the_largest_scores_have_finite_sums() -> None:
    proto = model(piece("▁a", 1e30), piece("x", -1e30), piece("▁", -1))
    encoder = BlockEncoder(proto, sentencepiece.SentencePieceProcessor(model_proto=proto))
    for text in ("aa" + "b" * 5000, "a" * 3000, "xa x" * 900):
        encoder.encode([text])


@pytest.mark.parametrize("kind", [7, 0, (1 << 32) + 1, (1 << 32) + 5, (1 << 64) - 1])
def test_types_of_pieces_are_read_as_protocol_buffers_read_them(kind: int) -> None:
    proto = model(piece("▁", -2), piece("q", -3), piece("z", -3), piece("qz", -1, kind))
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
    encoder = BlockEncoder(proto, processor)
    assert encoder.slow == ""
    assert encoder.encode(["qz"]).ids.tolist() == processor.encode("qz")


def test_a_rule_that_makes_very_much_of_a_byte_is_refused() -> None:
    """A character map whose every `a` becomes a megabyte: positions in the text would not fit into 32 bits."""
    encoder = _native.Unigram(model(piece("b", -1), piece("▁", -2), charsmap=rule("a", b"b" * (1 << 20))))
    assert len(encoder.encode(b"a", np.array([0, 1]))[0]) == 4 * ((1 << 20) + 1)
    with pytest.raises(ValueError, match="too long"):
        encoder.encode(b"a" * 200, np.array([0, 200]))


def test_counts_of_words_whose_sum_is_no_int64_are_refused() -> None:
    counts = np.array([1 << 62, 1 << 62, (1 << 63) - 1, 1], np.int64)  # the sum is 2^64
    room = np.zeros(4, np.uint64), np.zeros(5, np.int64)
    with pytest.raises(ValueError, match="do not fit"):
        _native.run_hashes(np.zeros(4, np.uint64), counts, np.ones(5, np.uint64), *room)


@pytest.mark.parametrize(
    "shape", [(-(1 << 62), (1 << 62) + 1, 1), (0, 1, 1), (4, -1, -1), (1 << 62, 1 << 61, 1), (8, 9, 1), (8, 4, 5)]
)
def test_shapes_of_spans_that_are_none_are_refused(shape: tuple[int, int, int]) -> None:
    tokens, keys = np.zeros(0, np.int32), np.zeros(4, np.uint64)
    with pytest.raises(ValueError, match="do not fit"):
        _native.hide_spans(tokens, keys, shape, 100, 1, np.zeros(4, np.int32), np.zeros(12, np.int32))


# An Example of the feature "a" with four values, and what follows them among its packed numbers.
@pytest.mark.parametrize("trailing_hex", ["808080", "ff" * 11 + "01", "80" * 10 + "00"])
@pytest.mark.parametrize("count", [-1, 4, 5])
def test_numbers_that_are_broken_behind_the_last_one_are_refused(trailing_hex: str, count: int) -> None:
    packed = bytes.fromhex("01020304" + trailing_hex)
    entry = field(1, b"a") + field(2, field(3, field(1, packed)))
    record = field(1, field(1, entry))
    places = np.array([(0, 0, len(record))], tfrecord.PLACE)
    out = np.zeros((1, 4), np.int32)
    assert _native.decode_rows((record,), places, ((b"a", out, 4, 0, count),), None, 0) == 0


def test_numbers_of_all_sizes_are_read_as_they_were_written() -> None:
    draw = np.random.default_rng(3)
    values = (draw.integers(0, 1 << 31, (400, 31)) >> draw.integers(0, 32, (400, 31))).astype(np.int32)
    values[draw.random(values.shape) < 0.02] = -100
    blocks = tuple(records_in_python.example({"a": row.tolist()}) for row in values)
    places = np.array([(number, 0, len(block)) for number, block in enumerate(blocks)], tfrecord.PLACE)
    for length in (31, 30, 7):
        out = np.zeros((len(values), length), np.int32)
        assert _native.decode_rows(blocks, places, ((b"a", out, length, 0, 31),), None, 0) == len(values)
        assert (out == values[:, :length]).all()


# Letters that do not reach behind the last piece, more left out than there are, and room for another number of rows.
@pytest.mark.parametrize(
    ("packed_piece", "rows"), [(4 << 32 | 1, 1), (5 << 32, 1), (2 << 48 | 1 << 32, 1), (0, 2), (0, 0)]
)
def test_pieces_that_are_none_are_refused(packed_piece: int, rows: int) -> None:
    places, counts, ends, marked = (
        np.array([packed_piece], np.uint64),
        *np.zeros((2, rows), np.int32),
        np.zeros(rows, np.uint8),
    )
    record = records_in_python.example({"a": [0]})
    record_places = np.array([(0, 0, len(record))], tfrecord.PLACE)
    with pytest.raises(ValueError, match="do not fit"):
        _native.write_texts(
            (record,), record_places, (b"a", 1, 9), bytes(20), places, (1, -1, True), counts, ends, marked
        )


def test_texts_of_records_are_read() -> None:
    row_texts = [["a"], ["é" * 200, ""], [], ["x" * 5]]
    blocks = tuple(
        records_in_python.example({"n": [5], "t": [text.encode() for text in texts]} if texts else {"n": [5]})
        for texts in row_texts
    )
    places = np.array([(number, 0, len(block)) for number, block in enumerate(blocks)], tfrecord.PLACE)
    counts = np.zeros(len(blocks), np.int32)
    texts, ends = _native.read_texts(blocks, places, b"t", counts)
    assert counts.tolist() == list(map(len, row_texts))
    starts = np.frombuffer(ends, np.int32).tolist()
    assert [texts[begin:end].decode() for begin, end in itertools.pairwise(starts)] == list(itertools.chain(*row_texts))
    with pytest.raises(ValueError, match="too long, or not of the kind"):
        _native.read_texts(blocks, places, b"n", counts)
    with pytest.raises(ValueError, match="do not fit"):
        _native.read_texts(blocks, places, b"t", counts[1:])
    with pytest.raises(ValueError, match="do not fit"):
        _native.read_texts(blocks[:-1], places, b"t", counts)


def test_the_checksum_of_a_length_is_checked() -> None:
    frame = bytearray(records_in_python.frame(b"hello"))
    assert len(tfrecord.cut_records([bytes(frame)], np.array([1]))) == 1
    frame[9] ^= 1
    with pytest.raises(ValueError, match="broken record header"):
        list(tfrecord.read(io.BytesIO(frame)))
    with pytest.raises(tfrecord.BrokenPageError):
        tfrecord.cut_records([bytes(frame)], np.array([1]))


def test_numbers_that_are_not_whole_or_not_aligned_are_refused() -> None:
    data = bytearray(40)
    for numbers in (memoryview(data)[:12], memoryview(data)[4:20]):
        with pytest.raises(ValueError, match="do not fit"):
            _native.run_hashes(numbers, numbers, numbers, bytearray(8), bytearray(8))
    with pytest.raises(BufferError):
        _native.word_hashes(b"", b"", os.urandom(8), bytearray(8), bytearray(8))
    ids, digests = np.zeros(4, np.int32), np.zeros(2, np.uint64)
    for starts in ([0, 5, 5], [0, 3, 2], [-1, 0, 4], [0, 4], [0, 1, 2, 3]):
        with pytest.raises(ValueError, match="do not fit"):
            _native.list_digests(ids, np.array(starts), digests)
        with pytest.raises(ValueError, match="do not fit"):
            _native.list_counts(ids, np.array(starts), 0, digests)


def test_numbers_that_another_thread_changes_are_those_that_were_checked() -> None:
    data = np.frombuffer(b"some words " * 20_000 + bytes(8), np.uint8)
    begins = np.arange(0, len(data) - 7, 1100)
    right, hashes, counts = begins[-1], np.empty(len(data), np.uint64), np.empty(len(begins) - 1, np.int64)
    stop_event = threading.Event()

    def change() -> None:
        while not stop_event.is_set():
            begins[-1] = 1 << 40
            begins[-1] = right

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(50):
            with contextlib.suppress(ValueError):
                assert _native.word_hashes(data, begins, hashes, counts, np.empty((1000, 3), np.int64)) == (40_000, 0)
    finally:
        stop_event.set()
        thread.join()
