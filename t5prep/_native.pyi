"""Declare and describe what is in C (native/*module.c). Arrays are contiguous; numbers that do not fit each other raise ValueError."""

import numpy as np

class Unigram:
    """A SentencePiece unigram model. Raises ValueError for a model of another kind."""

    def __new__(cls, model: bytes) -> Unigram: ...
    def encode(self, data: object, offsets: np.ndarray) -> tuple[bytes, bytes]:
        """Return the ids of texts as bytes of int32[total], and as bytes of int64[texts + 1] where each text's begin.

        `data` holds UTF-8 and `offsets`, int64[texts + 1], where in it each text begins.
        """

def frame_records(
    columns: tuple[bytes, ...],
    starts: bytes,
    width: int,
    lengths: tuple[int, int],
    pads: tuple[int, int],
    masks: tuple[bool, bool],
    separator: int,
    packed: bool,
    keep: bool = True,
) -> tuple[bytes, bytes]:
    """Return framed records as bytes, one after the other, and how many bytes each has as bytes of uint32[records].

    Without `keep`, the sizes alone: no records.

    All arrays are bytes, which nobody can change meanwhile. `columns` are ids (UTF-8), inputs, labels (token ids of
    `width` bytes, 2 or 4) and references (each behind its size in four bytes), each followed by where those of each
    example begin, int64[examples + 1]. Record r holds the examples `starts[r]:starts[r + 1]`, int64, one of them unless
    it is `packed`. `lengths` are what both sides are filled up to with their `pads`, 0 for not at all; `masks` says which
    sides get one. With a `separator` from 0 on, token types are written: 1 behind the first of it.
    """

def first_fit(sizes: np.ndarray, room: tuple[int, int], rows: np.ndarray) -> None:
    """Write into `rows`, int64[n], the row of each example by first-fit.

    `sizes`, int64[n, 2], are the tokens of its two sides, of which a row has `room`.
    """

def hide_spans(
    tokens: np.ndarray,
    keys: np.ndarray,
    shape: tuple[int, int, int],
    sentinel: int,
    eos: int,
    inputs: np.ndarray,
    targets: np.ndarray,
) -> None:
    """Write the inputs and targets of rows, all int32, with spans hidden.

    `keys` are uint64, one a row, and `shape` says how long a row is, how many of its tokens are hidden, and in how many
    spans. `sentinel` is the id of the first one.
    """

def copy_lists(
    source: np.ndarray, begins: np.ndarray, target: np.ndarray, places: np.ndarray, lengths: np.ndarray, size: int = 4
) -> None:
    """Copy `lengths[i]` items of `size` bytes from `source[begins[i]]` on to `target[places[i]]` on, for each i: int64."""

def cut_blocks(blocks: tuple[bytes, ...], counts: np.ndarray, places: np.ndarray) -> int:
    """Write where the records of blocks lie into `places`, three int64 a record: block, begin, size.

    `counts`, int64[blocks], are how many records each block holds. Checksums are checked. Return the number of blocks
    before the first that does not hold what it should.
    """

def decode_rows(
    blocks: tuple[bytes, ...],
    places: np.ndarray,
    features: tuple[tuple[bytes, np.ndarray, int, int, int], ...],
    mask: np.ndarray | None,
    pad: int,
) -> int:
    """Read ids of serialized records; return how many were read before the first that is not as this project writes it.

    `places`, int64[records, 3], says where in the blocks the records lie. `features` are tuples (name, target, length,
    fill, count): the first `length` ids of the feature `name` are written into `target`, int32[records, length], and what
    a record lacks of a row is filled with `fill`. It must have `count` ids, at most the length where that is -1. A `mask`
    has the shape of the first target: it gets 0 where that has the id `pad`, else 1.
    """

def read_texts(blocks: tuple[bytes, ...], places: np.ndarray, name: bytes, counts: np.ndarray) -> tuple[bytes, bytes]:
    """Return the values of a feature of serialized records, which are bytes, one after the other, and where each begins.

    That is int32[values + 1], as bytes. `counts`, int32[records], gets how many each record has. Raises ValueError for a
    record that is something else.
    """

def write_texts(
    blocks: tuple[bytes, ...],
    places: np.ndarray,
    feature: tuple[bytes, int, int],
    letters: object,
    pieces: np.ndarray,
    how: tuple[int, int, bool],
    counts: np.ndarray,
    ends: np.ndarray,
    marked: np.ndarray,
) -> bytes:
    """Return the texts of ids of serialized records, one after the other, and write where each ends, int32[records].

    `places` are as in `decode_rows`. `feature` is its name, the most ids that are read, and what stands for none. `pieces`,
    uint64[ids], are how each id is written, in `letters`, behind which 16 bytes can be read: bits 0 to 31 say where it
    begins, 32 to 47 its bytes, 48 to 60 how many of them are left out where it begins a run of pieces. Bit 61: it is a byte,
    part of a character. Bit 62: it ends a line. Bit 63: it is special, a run of its own, and padding if it has no letters.
    `how` are EOS, which is left out at the end of a text; the id of a special piece; and whether all blanks at the beginning
    of a run are left out, not those of one piece. `counts`, int32[records], gets how many ids there are, `marked`,
    uint8[records], 1 where that special piece is one. Raises ValueError for a record or an id that is something else.
    """

def row_ends(data: bytes | bytearray | memoryview) -> int:
    """Return the number of row ends in bytes without quotes."""

def csv_rows(data: bytes | bytearray, final: bool) -> tuple[int, int] | None:
    """Return the end of the last whole row and the number of rows; None if quotes are not as in RFC 4180."""

def plain_json_lines(data: bytes) -> int:
    """Return the number of lines where each is an object that all readers of JSON see in one way, if it is JSON; else 0."""

def word_hashes(
    data: np.ndarray, begins: np.ndarray, hashes: np.ndarray, counts: np.ndarray, long_words: np.ndarray
) -> tuple[int, int]:
    """Write the hashes of all words and how many each text has; return how many words and long words there are."""

def run_hashes(
    hashes: np.ndarray, counts: np.ndarray, factors: np.ndarray, runs: np.ndarray, begins: np.ndarray
) -> int:
    """Write the hashes of all runs of len(factors) words and where those of each text begin; return their number."""

def list_digests(ids: np.ndarray, starts: np.ndarray, digests: np.ndarray) -> None:
    """Continue the digest of each row, uint64[rows], by a list of ids: those of row i are int32 `ids[starts[i]:starts[i + 1]]`."""

def list_counts(ids: np.ndarray, starts: np.ndarray, id: int, counts: np.ndarray) -> None:
    """Write how often an id stands in each list, int64[lists], of int32 ids: list i is `ids[starts[i]:starts[i + 1]]`."""
