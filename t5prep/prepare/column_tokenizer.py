"""Tokenize the rows that a task's template describes into a table of features, column by column."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset.settings import Settings
from t5prep.prepare.feature_table import SCHEMA
from t5prep.tasks.template import Column, Field, Template
from t5prep.tokens import ragged
from t5prep.tokens.column_encoder import ClassColumnEncoder, ColumnEncoder
from t5prep.tokens.encoder import MARKUP
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.tokenizer import Tokenizer

# What str.strip removes: the last of it is the ideographic space.
_SPACES = [character for character in map(chr, range(0x3001)) if character.isspace()]
_ASCII_SPACES = "".join(filter(str.isascii, _SPACES))
_SPACES_OF_BYTES = {
    size: np.array([int.from_bytes(spelled, "big") for spelled in map(str.encode, _SPACES) if len(spelled) == size])
    for size in (1, 2, 3)
}


class Described(NamedTuple):
    """Hold the features of the rows that the template describes (feature_table.SCHEMA), and which rows these are: bool[rows]."""

    table: pa.Table
    rows: np.ndarray


def usable(settings: Settings) -> bool:
    """Return whether these settings ask for nothing that only examples can give."""
    asks = settings.filter or settings.decontaminate or settings.group_column
    return settings.dedup == "none" and not settings.keep_newlines and not asks


class ColumnTokenizer:
    """Tokenize columns of text by a template. Threads may share it.

    `classes`: the words whose numbers are the targets, where the settings say so.
    """

    def __init__(
        self, template: Template, settings: Settings, tokenizer: Tokenizer, *, classes: Sequence[str] = ()
    ) -> None:
        self.template = template
        self._tokenizer = tokenizer
        self._classes = None
        if settings.target == "class":
            self._classes = ClassColumnEncoder(
                tokenizer, input_length=settings.input_length, policy=settings.truncation
            )
            words = template.words or {word: word for word in classes}
            known = {value: classes.index(word) for value, word in words.items() if word in classes}
            self._values = pa.array(list(known), pa.large_string())
            self._numbers = np.array([*known.values()], np.int32)
            return
        self._encode = ColumnEncoder(
            tokenizer,
            input_length=settings.input_length,
            target_length=settings.target_length,
            policy=settings.truncation,
            marker=settings.marker,
        )
        self._values = pa.array(list(template.words), pa.large_string())
        self._words = tokenizer.encode_block(list(template.words.values()))

    def __call__(self, table: pa.Table, numbers: np.ndarray) -> Described:
        """Return the features of a table's rows; `numbers`, int64[rows], are the rows' own."""
        described = self._plain(table)
        fields = [_filled(field, table) for field in self.template.fields]
        if self._classes:
            which, known = self._which(table)
            features, right = self._classes.rows(fields, self._numbers[which])
            described &= known & right
        else:
            if self.template.target:
                targets, known = self._targets(table)
                features = self._encode.pairs(fields, targets)
                described &= known & (features.target_tokens > 1)
            else:
                features = self._encode.documents(fields[0])
            described &= features.tokens > len(fields)
        columns = {
            "row": numbers,
            "id": table[self.template.id].combine_chunks().cast(pa.string()) if self.template.id else None,
            "inputs": _lists(features.inputs),
            "labels": _lists(features.labels),
            "references": pa.ListArray.from_arrays(np.zeros(len(numbers) + 1, np.int32), pa.array([], pa.string())),
            "tokens": features.tokens.astype(np.int32),
            "target_tokens": features.target_tokens.astype(np.int32),
            "markup": _markup(fields) if self.template.target else np.zeros(len(numbers), bool),
        }
        arrays = [_column(columns.get(field.name), field, len(numbers)) for field in SCHEMA]
        every_row = pa.table(arrays, schema=SCHEMA)
        return Described(every_row if described.all() else every_row.filter(pa.array(described)), described)

    def _plain(self, table: pa.Table) -> np.ndarray:
        """Return which rows have an input and a target that are not blank, and an id, bool[rows]: perhaps not all of those."""
        plain = np.logical_or.reduce([_visible(table[name].combine_chunks()) for name in self.template.inputs])
        for column in (part for field in self.template.fields for part in field if isinstance(part, Column)):
            if column.stripped:  # of white space in ASCII: other white space at the ends is for rows
                plain &= np.logical_and(*_visible_ends(_text(column, table)))
        if self.template.target and not self.template.words:
            plain &= _visible(_filled(self.template.target, table))
        if self.template.id:
            plain &= pc.greater(pc.binary_length(table[self.template.id]), 0).to_numpy()
        return plain

    def _targets(self, table: pa.Table) -> tuple[Ragged, np.ndarray]:
        """Return the ids of targets, and which rows have one that is known: bool[rows]."""
        if not self.template.words:
            target = _filled(self.template.target, table)
            return self._tokenizer.encode_block(target), np.ones(len(target), bool)
        which, known = self._which(table)
        return ragged.taken(self._words, which), known

    def _which(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of targets among the known values, int32[rows], and which rows have one: bool[rows]."""
        which = pc.index_in(_filled(self.template.target, table), self._values)
        return which.fill_null(0).to_numpy(), which.is_valid().to_numpy(zero_copy_only=False)


def _filled(field: Field, table: pa.Table) -> pa.LargeStringArray:
    """Return the text of a field in each row."""
    parts = [_text(part, table) if isinstance(part, Column) else pa.scalar(part, pa.large_string()) for part in field]
    if len(parts) == 1 and isinstance(parts[0], pa.LargeStringArray):
        return parts[0]
    return pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))


def _text(column: Column, table: pa.Table) -> pa.LargeStringArray:
    """Return the text of a column in each row, without white space in ASCII at the ends where it is stripped."""
    texts = table[column.name].combine_chunks()
    return pc.ascii_trim(texts, characters=_ASCII_SPACES) if column.stripped else texts


def _visible(texts: pa.LargeStringArray) -> np.ndarray:
    """Return which texts are not blank, bool[rows]: perhaps not all of those."""
    visible = np.logical_or(*_visible_ends(texts))
    others = np.flatnonzero(~visible)
    if len(others):
        trimmed = pc.ascii_trim(texts.take(pa.array(others)), characters=_ASCII_SPACES)
        visible[others] = np.logical_or(*_visible_ends(trimmed))
    return visible


def _visible_ends(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return which texts begin, and which end, with a character that str.strip leaves there: each bool[rows]."""
    edges, characters = _bytes_of(texts)
    begins, ends = edges[:-1], edges[1:]
    first, last = begins < ends, begins < ends
    for size, spaces in _SPACES_OF_BYTES.items():
        holds = ends - begins >= size
        first = first & ~(holds & np.isin(_numbers(characters, begins, size), spaces))
        last = last & ~(holds & np.isin(_numbers(characters, ends - size, size), spaces))
    return first, last


def _bytes_of(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return where texts begin, and the last one ends, int64[rows + 1], in some bytes, uint8[at least one]."""
    _, offsets, data = texts.buffers()
    edges = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return edges, np.frombuffer(data or b"\0", np.uint8)


def _numbers(characters: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    """Return the `size` bytes at each place as one number; of places outside of the bytes, some number."""
    numbers = np.zeros(len(places), np.int64)
    for place in range(size):
        numbers = numbers << 8 | characters[np.clip(places + place, 0, len(characters) - 1)]
    return numbers


def _markup(fields: list[pa.LargeStringArray]) -> np.ndarray:
    """Return which rows hold an HTML tag in one of their fields, bool[rows]."""
    marked = np.zeros(len(fields[0]), bool)
    for field in fields:
        for i in _holding(field, ord("<")).tolist():
            marked[i] = marked[i] or MARKUP.search(field[i].as_py()) is not None
    return marked


def _holding(texts: pa.LargeStringArray, byte: int) -> np.ndarray:
    """Return the rows of texts that hold a byte, int64[n], in order. Arrow looks at one byte after the other."""
    edges, characters = _bytes_of(texts)
    places = np.flatnonzero(characters[edges[0] : edges[-1]] == byte) + edges[0]
    return np.unique(np.searchsorted(edges, places, side="right") - 1)


def _lists(lists: Ragged) -> pa.ListArray:
    return pa.ListArray.from_arrays(lists.starts.astype(np.int32), lists.ids)


def _column(values: pa.Array | np.ndarray | None, field: pa.Field, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, field.type)
    return values if isinstance(values, pa.Array) else pa.array(values, field.type)
