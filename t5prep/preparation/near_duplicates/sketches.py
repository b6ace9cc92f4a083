"""Sketch a block for the search for near-duplicates: shingles of its texts, their MinHashes, and LSH bands of these."""

import bisect
import dataclasses
import functools
import hashlib
import itertools
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep import _native
from t5prep.io import atomic_files
from t5prep.tokens import scripts

# The increment of SplitMix64: 2^64 divided by the golden ratio, made odd.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Longer words (base64, addresses) are hashed one by one by Python, all others in C, eight bytes at a time.
LONG_WORD = 256
# Kana and Han are written without spaces, so each character is a word. `folded` separates the letters of other such
# scripts.
_WORD = re.compile("[\u3000-\u9fff]|[0-9a-z\x80-\u2fff\ua000-\U0010ffff]+")
_SIGNS = re.compile(r"[^\x00- ]+")


class Shingles(NamedTuple):
    """The shingles of many texts: `hashes[begins[i]:begins[i + 1]]` are those of text i, `uint64`."""

    hashes: np.ndarray
    begins: np.ndarray


def mix(values: np.ndarray) -> np.ndarray:
    """Return a bijective mix of the bits of each value, `uint64[n]`: the finalizer of SplitMix64 (Steele et al. 2014).

    >>> mix(np.array([1, 2], np.uint64)).tolist()
    [6238072747940578789, 15839785061582574730]
    """
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def odd_numbers(count: int, *, stream: int) -> np.ndarray:
    """Return `uint64[count]` odd pseudo-random numbers, which depend on `stream` only: the output of SplitMix64."""
    steps = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(stream << 20)
    return mix(steps * _GOLDEN) | np.uint64(1)


def shingles(texts: Sequence[str], *, words: int) -> Shingles:
    """Return the hash of every run of `words` words in each text. A shorter text is one shingle.

    Case, punctuation, spaces and compatibility forms have no influence (`folded`). A repeated run has repeated
    hashes. A text of punctuation only is one word; an empty text has no shingle.
    """
    encoded = [folded(text).encode("utf-8", "surrogatepass") for text in texts]
    data = np.frombuffer(b" ".join([*encoded, bytes(8)]), np.uint8)
    begins = np.concatenate([[0], np.cumsum([len(text) + 1 for text in encoded], dtype=np.int64)]).astype(np.int64)
    hashes, counts = np.empty(len(data), np.uint64), np.empty(len(begins) - 1, np.int64)
    long_words = np.empty((len(data) // LONG_WORD + 1, 3), np.int64)
    total, longs = _native.word_hashes(data, begins, hashes, counts, long_words)
    for word, begin, end in long_words[:longs].tolist():
        hashes[word] = long_word_hash(data[begin:end])
    runs, run_begins = np.empty(total, np.uint64), np.empty(len(begins), np.int64)
    written = _native.run_hashes(hashes, counts, odd_numbers(words, stream=1), runs, run_begins)
    return Shingles(runs[:written], run_begins)


def word_edges(text: str) -> list[tuple[int, int]]:
    """Return the begin and end of each word of a text; words are those that shingles consist of.

    >>> [text[begin:end] for text in ("Don't “go”!", "?!", "《ﬁre》 今天") for begin, end in word_edges(text)]
    ['Don', 't', 'go', '?!', 'ﬁre', '今', '天']
    """
    # A character is folded together with its combining marks, because NFKC composes them. So the folded text can be
    # mapped back to the original piece by piece.
    places = [i for i in range(len(text)) if text.isascii() or not (i and unicodedata.combining(text[i]))] + [len(text)]
    parts = [text.lower()] if text.isascii() else [folded(text[begin:end]) for begin, end in itertools.pairwise(places)]
    ends = range(1, len(text) + 1) if text.isascii() else list(itertools.accumulate(map(len, parts)))
    plain = "".join(parts)
    matches = list(_WORD.finditer(plain)) or list(_SIGNS.finditer(plain))
    of = [(bisect.bisect_right(ends, word.start()), bisect.bisect_left(ends, word.end())) for word in matches]
    return [(places[first], places[last + 1]) for first, last in of]


def folded(text: str) -> str:
    """Return a text in lower case and compatibility form, with spaces for its punctuation marks outside ASCII.

    The letters of scripts without spaces, such as Thai, are separated.

    >>> folded("“Why”, asked the ﬁrst")
    ' why , asked the first'
    """
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold()
    for mark in _marks().intersection(plain):  # few: faster than a test of each character
        plain = plain.replace(mark, " ")
    return scripts.with_spaces(plain)


@functools.cache
def _marks() -> frozenset[str]:
    """Return the punctuation marks, symbols and separators outside ASCII (planes 0 and 1)."""
    return frozenset(chr(code) for code in range(0x80, 0x20000) if unicodedata.category(chr(code))[0] in "PSZ")


def long_word_hash(word: np.ndarray) -> int:
    """Return the hash of a word longer than LONG_WORD, `uint8[length]`."""
    return int.from_bytes(hashlib.blake2b(word.tobytes(), digest_size=8).digest(), "little")


# MinHash signatures of sets of shingles, and the values of LSH bands.

# Least probability that two texts whose similarity equals the threshold share a band.
LEAST_RECALL = 0.9


class Bands(NamedTuple):
    """The division of hashes into `bands` groups of `rows` hashes. Texts that agree in a whole group are compared."""

    bands: int
    rows: int


def choose_bands(hashes: int, threshold: float) -> Bands:
    """Return the bands with the most rows that find texts at the threshold with probability LEAST_RECALL.

    More rows give fewer false candidates. These cost only time, because each pair is verified. 112 hashes and 0.8
    give the 14 bands of 8 of FineWeb (Penedo et al. 2024, https://arxiv.org/abs/2406.17557).

    >>> choose_bands(112, 0.8), choose_bands(16, 0.5)
    (Bands(bands=14, rows=8), Bands(bands=16, rows=1))
    """
    rows = max(
        (rows for rows in range(1, hashes + 1) if _recall(hashes // rows, rows, threshold) >= LEAST_RECALL), default=1
    )
    return Bands(hashes // rows, rows)


def _recall(bands: int, rows: int, similarity: float) -> float:
    """Return the probability that texts of a similarity share a band (Leskovec et al., Mining of Massive Datasets, 3.4.2)."""
    return 1 - (1 - similarity**rows) ** bands


def signatures(shingles: Shingles, *, hashes: int) -> np.ndarray:
    """Return `uint32[hashes, texts]`: the minimum of each text's shingles under each of `hashes` hash functions.

    Two texts agree in one row with the probability of their Jaccard similarity (Broder 1997). Each text must have a
    shingle.
    """
    # The shingles' 64-bit hashes are folded to 32 bits. Each hash function then xors a salt and multiplies by an odd number.
    narrow = (shingles.hashes >> np.uint64(32)).astype(np.uint32) ^ shingles.hashes.astype(np.uint32)
    factors, salts = odd_numbers(hashes, stream=2).astype(np.uint32), odd_numbers(hashes, stream=3)
    salts = (salts >> np.uint64(32)).astype(np.uint32)
    smallest = np.empty((hashes, len(shingles.begins) - 1), np.uint32)
    hashed = np.empty_like(narrow)
    for number in range(hashes if smallest.shape[1] else 0):
        np.bitwise_xor(narrow, salts[number], out=hashed)
        np.multiply(hashed, factors[number], out=hashed)
        np.minimum.reduceat(hashed, shingles.begins[:-1], out=smallest[number])
    return smallest


def band_values(signatures: np.ndarray, *, bands: Bands) -> np.ndarray:
    """Return `uint64[texts, bands]`. In a column, texts have equal values if their signatures agree in the whole band."""
    used = signatures[: bands.bands * bands.rows].reshape(bands.bands, bands.rows, -1)
    factors = odd_numbers(bands.rows, stream=4)
    salts = odd_numbers(bands.bands, stream=5)
    total = np.repeat(salts[:, None], used.shape[2], axis=1)
    for row in range(bands.rows):
        total = mix(total + used[:, row].astype(np.uint64) * factors[row])
    return np.ascontiguousarray(total.T)


# The data of one block for the search for near-duplicates: its sorted LSH bands, and the shingles of each row.

# A row that may repeat another one. `high` and `low` are its position, `split` its split, `row` its number in its
# file.
ROWS = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.string()),
        ("split", pa.string()),
        ("high", pa.uint64()),
        ("low", pa.uint64()),
        ("shingles", pa.list_(pa.uint64())),
    ]
)


@dataclasses.dataclass(frozen=True)
class Sketch:
    """The rows and bands of one block.

    Its `size` bytes are a table of ROWS as an Arrow IPC stream, `bands` band values, and for each value the index of
    its row. They are in `data`, or in the file `path`.
    """

    file: str
    first_row: int
    rows: int
    bands: int
    size: int = 0
    data: bytes | pa.Buffer = b""
    path: str = ""

    @property
    def _table_ends(self) -> int:
        """The number of bytes of the table, behind which the bands begin."""
        return self.size - self.bands * (8 + _place_type(self.rows).itemsize)

    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted values of all bands, `uint64[bands]`, and the index of the row of each."""
        data, begin = self.data, self._table_ends
        if self.path:
            with atomic_files.open_scratch(Path(self.path)) as file:
                file.seek(begin)
                data, begin = file.read(), 0
        values = np.frombuffer(data, np.uint64, self.bands, offset=begin)
        return values, np.frombuffer(data, _place_type(self.rows), self.bands, offset=begin + values.nbytes)

    def drop_bands(self) -> None:
        """Truncate the file, if there is one, to the rows, because the bands were copied to where they are compared."""
        if self.path:
            os.truncate(self.path, self._table_ends)

    def rows_of(self, places: np.ndarray) -> bytes:
        """Return the rows at these indices as bytes for `tables`. Their schema names their file."""
        source = pa.memory_map(self.path) if self.path else pa.BufferReader(self.data)
        with source as opened:
            rows = pa.ipc.open_stream(opened).read_all().take(pa.array(places))
        return to_bytes(rows.replace_schema_metadata({"file": self.file}))

    def spooled(self, path: Path) -> "Sketch":
        """Write the bytes to a scratch file, and return the sketch that reads them from there."""
        atomic_files.write_scratch(path, self.data)
        return dataclasses.replace(self, data=b"", path=str(path))


def to_bytes(table: pa.Table) -> bytes:
    """Return a table as bytes for `tables`, which reads also several concatenated ones."""
    return _buffer(table).to_pybytes()


def _buffer(table: pa.Table, *behind: np.ndarray) -> pa.Buffer:
    """Return the bytes of a table, followed by those of the arrays `behind`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    for array in behind:
        sink.write(array.data)
    return sink.getvalue()


def tables(data: bytes | pa.Buffer) -> Iterator[pa.Table]:
    """Yield the tables in concatenated results of `to_bytes`."""
    opened = pa.BufferReader(data)
    while opened.tell() < len(data):
        yield pa.ipc.open_stream(opened).read_all()


def sketch(table: pa.Table, *, file: str, first_row: int, bands: Bands) -> Sketch:
    """Return the sketch of a block's rows (ROWS). Rows without shingles repeat nothing and are excluded."""
    has_shingles = pc.greater(pc.list_value_length(table["shingles"]), 0)
    table = table if pc.all(has_shingles).as_py() else table.filter(has_shingles)  # no copy: shingles may have 50 MB
    values = np.zeros((0, bands.bands), np.uint64)
    if len(table):
        hashed = signatures(of_lists(table["shingles"]), hashes=bands.bands * bands.rows)
        values = band_values(hashed, bands=bands)
    order = np.argsort(values, axis=None, kind="stable")
    places = (order // bands.bands).astype(_place_type(len(table)))
    data = _buffer(table, values.reshape(-1)[order], places)
    return Sketch(file, first_row, len(table), len(order), data.size, data)


def _place_type(rows: int) -> np.dtype:
    """Return the smallest type for the index of one of `rows` rows."""
    return np.dtype(np.uint16 if rows <= 1 << 16 else np.uint32)


def of_lists(column: pa.ChunkedArray) -> Shingles:
    """Return the shingles in a column of lists. A single chunk is not copied."""
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    lists = (pa.concat_arrays(chunks) if len(chunks) > 1 else chunks[0]) if chunks else pa.array([], column.type)
    begins = lists.offsets.to_numpy().astype(np.int64)
    return Shingles(lists.values.to_numpy()[begins[0] : begins[-1]], begins - begins[0])
