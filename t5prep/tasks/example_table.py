"""Define the Arrow table of the examples of many rows, and compute on the texts of their inputs.

Templates and tasks' functions both give this table, and all later steps work on its columns.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.tasks import labels
from t5prep.tasks.example import EOS, Example, Part, Protected, not_utf8
from t5prep.tasks.task import ColumnText, Template, TemplatePart, Words

# One row of the source, with an example or the `reason` why it has none. `inputs` are the parts of the example's input in
# order. `kinds` holds the kind of each: a text (TEXT), a text that is never cut (PROTECTED), or EOS (END), whose text is
# empty. `id` is the example's id, `record_id` the name of its row in `rejected.jsonl`. `group` decides the split.
SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.string()),
        ("record_id", pa.string()),
        ("inputs", pa.list_(pa.large_string())),
        ("kinds", pa.list_(pa.int8())),
        ("target", pa.large_string()),
        ("references", pa.list_(pa.string())),
        ("split", pa.string()),
        ("group", pa.string()),
        ("reason", pa.string()),
    ]
)
TEXT, PROTECTED, END = 0, 1, 2


class Inputs(NamedTuple):
    """The inputs of many rows: all parts one after the other, the `kinds` of parts, int8[parts], and the `starts` of rows.

    Row r has the parts from `starts[r]` to `starts[r + 1]`, int64[rows + 1]. A row without an example has no parts.
    """

    parts: pa.LargeStringArray
    kinds: np.ndarray
    starts: np.ndarray

    def fields(self) -> tuple[pa.LargeStringArray, np.ndarray]:
        """Return the fields (the joined texts between two EOS), and the first field of each row, int64[rows + 1]."""
        edges, rows = self.field_edges()
        return self._spans(edges), rows

    def field_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first part of each field, int64[fields + 1], and the first field of each row, int64[rows + 1]."""
        ends = np.flatnonzero(self.kinds == END)
        filled = self.starts[1:] > self.starts[:-1]
        ends_before = np.searchsorted(ends, self.starts)
        rows = ends_before + np.concatenate([[0], np.cumsum(filled)])
        edges = np.empty(int(rows[-1]) + 1, np.int64)
        first = np.zeros(len(edges), bool)
        first[rows[:-1][filled]] = True
        edges[first] = self.starts[:-1][filled]
        edges[:-1][~first[:-1]] = ends + 1
        edges[-1] = self.starts[-1]
        return edges, rows

    def documents(self) -> pa.LargeStringArray:
        """Return the text of each row: all its parts, joined without separators."""
        return self._spans(self.starts)

    def lines(self) -> pa.LargeStringArray:
        """Return the text of each row with each part on a separate line, as `example.text_of` does. An END is no part of it."""
        # Usually every row has exactly one part. Its text is then the row's text.
        if len(self.parts) == len(self.starts) - 1 and (np.diff(self.starts) == 1).all():
            return self.parts
        is_text = self.kinds != END
        parts = self.parts if is_text.all() else self.parts.filter(pa.array(is_text))
        starts = np.concatenate([[0], np.cumsum(is_text)])[self.starts]
        lists = pa.ListArray.from_arrays(starts.astype(np.int32), parts)
        return pc.binary_join(lists, pa.scalar("\n", pa.large_string()))

    def with_protected(self) -> np.ndarray:
        """Return for each row whether it has a protected part: bool[rows]."""
        protected = np.flatnonzero(self.kinds == PROTECTED)
        return np.diff(np.searchsorted(protected, self.starts)) > 0

    def take(self, rows: np.ndarray) -> "Inputs":
        """Return the inputs of the rows with the indices `rows`, int64[n]."""
        lengths = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        parts = np.arange(starts[-1]) + np.repeat(self.starts[:-1][rows] - starts[:-1], lengths)
        return Inputs(self.parts.take(pa.array(parts)), self.kinds[parts], starts)

    def _spans(self, edges: np.ndarray) -> pa.LargeStringArray:
        """Return the joined texts of the parts from `edges[i]` to `edges[i + 1]`. Their bytes are contiguous and not copied."""
        if np.array_equal(edges, np.arange(len(self.parts) + 1)):
            return self.parts
        offsets, data = byte_edges(self.parts)
        return pa.LargeStringArray.from_buffers(len(edges) - 1, pa.py_buffer(offsets[edges]), data)


# Replaces spaces inside a word, because the words of an input are separated by spaces.
SPACE_IN_WORD = "\u00a0"


def byte_edges(texts: pa.LargeStringArray) -> tuple[np.ndarray, pa.Buffer]:
    """Return the first byte of each text and the end of the last, int64[texts + 1], and the buffer with the bytes."""
    _, offsets, data = texts.buffers()
    edges = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return edges, data if data is not None else pa.py_buffer(b"")


def inputs_of(table: pa.Table) -> Inputs:
    """Return the inputs in a table of examples with SCHEMA."""
    parts, kinds = (table[name].combine_chunks() for name in ("inputs", "kinds"))
    return Inputs(parts.flatten(), kinds.flatten().to_numpy(), np.concatenate([[0], np.cumsum(_lengths(parts))]))


def made_of(rows: Sequence[int], examples: Sequence[Example | str], **columns: Sequence[str | None]) -> pa.Table:
    """Return the table of examples, with each row's example or the reason (a str) why it has none.

    rows: the numbers of the rows. columns: `record_id` and `group` of each row, if known. An example with a text that cannot be
    written in UTF-8 is replaced by a reason.
    """
    try:
        return _table(rows, examples, columns)
    except UnicodeEncodeError:  # a user's task or filter made half of a surrogate pair
        # A reason quotes the text, so it is escaped to be valid UTF-8.
        texts = (
            example.encode(errors="backslashreplace").decode()
            if isinstance(example, str)
            else not_utf8(example) or example
            for example in examples
        )
        return _table(rows, list(texts), columns)


def examples_of(table: pa.Table) -> list[Example | str]:
    """Return for each row of a table its example, or the reason why it has none."""
    names = ("id", "inputs", "kinds", "target", "references", "split", "reason")
    return [
        reason if reason is not None else Example(id, tuple(map(_part, parts, kinds)), target, tuple(references), split)
        for id, parts, kinds, target, references, split, reason in zip(
            *(table[name].to_pylist() for name in names), strict=True
        )
    ]


def reasons_of(table: pa.Table) -> dict[int, str]:
    """Return the reasons of the rows without an example, by their index in the table."""
    reasons = table["reason"]
    if reasons.null_count == len(reasons):
        return {}
    return {row: reason for row, reason in enumerate(reasons.to_pylist()) if reason is not None}


def _table(
    rows: Sequence[int], examples: Sequence[Example | str], columns: dict[str, Sequence[str | None]]
) -> pa.Table:
    parts: list[str] = []
    kinds: list[int] = []
    ends = [0]
    for example in examples:
        if not isinstance(example, str):
            if isinstance(example.inputs, str):
                parts.append(example.inputs)
                kinds.append(TEXT)
            else:
                for part in example.inputs:
                    if isinstance(part, str):
                        parts.append(part)
                        kinds.append(TEXT)
                    elif part is EOS:
                        parts.append("")
                        kinds.append(END)
                    else:
                        parts.append(part.text)  # type: ignore[union-attr]
                        kinds.append(PROTECTED)
        ends.append(len(parts))
    filled_examples = [_NOTHING if isinstance(example, str) else example for example in examples]
    offsets = pa.array(ends, pa.int32())
    arrays = {
        "row": pa.array(rows, pa.int64()),
        "id": [example.id for example in filled_examples],
        "inputs": pa.ListArray.from_arrays(offsets, pa.array(parts, pa.large_string())),
        "kinds": pa.ListArray.from_arrays(offsets, pa.array(kinds, pa.int8())),
        "target": [example.targets for example in filled_examples],
        "references": [example.references for example in filled_examples],
        "split": [example.split for example in filled_examples],
        "reason": [example if isinstance(example, str) else None for example in examples],
        **columns,
    }
    return of_columns(arrays, len(examples))


def of_columns(columns: dict[str, object], rows: int) -> pa.Table:
    """Return a table with SCHEMA and `rows` rows from `columns`, arrays or lists; missing columns are null."""
    arrays = []
    for field in SCHEMA:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(rows, field.type))
        else:
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
    return pa.table(arrays, schema=SCHEMA)


def _part(text: str, kind: int) -> Part:
    return EOS if kind == END else Protected(text) if kind == PROTECTED else text


def _lengths(lists: pa.ListArray) -> np.ndarray:
    return np.diff(lists.offsets.to_numpy())


_NOTHING = Example(None, "", "")


# The following functions fill the table of examples from columns of text by a template.

# The characters that str.strip removes; U+3000, the ideographic space, is the last of them.
SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
# A change of a single text → the same change of a column in Arrow.
_CHANGES: dict[Callable[[str], str], Callable[[pa.LargeStringArray], pa.LargeStringArray]] = {
    str.strip: functools.partial(pc.utf8_trim, characters=SPACES),
    str.lower: pc.utf8_lower,
}


def can_fill(template: Template) -> bool:
    """Check whether `fill` supports all changes of a template's columns."""
    words = (*template.input_columns, *template.target)
    return all(word.change is None or word.change in _CHANGES for word in words if isinstance(word, ColumnText))


def fill(
    template: Template,
    columns: Mapping[str, pa.LargeStringArray],
    numbers: np.ndarray,
    *,
    record_id: pa.LargeStringArray | None,
    group: pa.LargeStringArray | None,
    split: pa.StringArray | None = None,
) -> tuple[pa.Table, np.ndarray]:
    """Return a table (SCHEMA) of the examples of the rows that `template` describes, and for each row whether it is one.

    columns: the rows' texts, without nulls. numbers: the rows' numbers, int64[rows]. record_id, group, split: columns of the
    table. `Template` lists the rows that are not described; a row with a null in `split` is not described either.
    """
    described = np.logical_or.reduce([visible(columns[column.name]) for column in template.input_columns])
    target = _joined(template.target, columns) if template.target else None
    if target is not None and template.labels:
        values = target.dictionary_encode()
        label_names = [labels.find(value, template.labels) for value in values.dictionary.to_pylist()]
        target = pa.array(label_names, pa.large_string()).take(values.indices)
        described &= target.is_valid().to_numpy(zero_copy_only=False)
    elif target is not None:
        described &= visible(target)
    if split is not None:
        described &= split.is_valid().to_numpy(zero_copy_only=False)
    if template.id:
        described &= pc.greater(pc.binary_length(columns[template.id]), 0).to_numpy(zero_copy_only=False)
    arrays = {
        "row": numbers,
        "id": columns[template.id].cast(pa.string()) if template.id else None,
        "record_id": None if record_id is None else record_id.cast(pa.string()),
        **_inputs(template, columns, len(numbers)),
        "target": pa.repeat(pa.scalar("", pa.large_string()), len(numbers)) if target is None else target,
        "references": pa.ListArray.from_arrays(np.zeros(len(numbers) + 1, np.int32), pa.array([], pa.string())),
        "group": None
        if group is None
        else pc.if_else(pc.equal(group, ""), pa.scalar(None, pa.large_string()), group).cast(pa.string()),
        "split": split,
    }
    every_row = of_columns(arrays, len(numbers))
    return every_row if described.all() else every_row.filter(pa.array(described)), described


def _inputs(template: Template, columns: Mapping[str, pa.LargeStringArray], rows: int) -> dict[str, pa.ListArray]:
    """Return the columns `inputs` and `kinds` of all rows."""
    words = [part.words if isinstance(part, TemplatePart) else () for part in template.inputs]
    texts = _joined(tuple(word for part in words for word in part), columns)
    kinds = [
        END if not isinstance(part, TemplatePart) else PROTECTED if part.protected else TEXT for part in template.inputs
    ]
    if len(words) > 1:  # cut the text of each row into its parts, by their lengths in bytes
        lengths = np.zeros((rows, len(words)), np.int64)
        for index, word in ((index, word) for index, part in enumerate(words) for word in part):
            if isinstance(word, ColumnText):
                lengths[:, index] += pc.binary_length(_text(word, columns)).to_numpy()
            else:
                lengths[:, index] += len(word.encode())
        offsets, data = byte_edges(texts)
        edges = np.concatenate([[0], np.cumsum(lengths)]) + offsets[0]
        texts = pa.LargeStringArray.from_buffers(len(edges) - 1, pa.py_buffer(edges), data)
    ends = pa.array(np.arange(rows + 1, dtype=np.int32) * len(words))
    return {
        "inputs": pa.ListArray.from_arrays(ends, texts),
        "kinds": pa.ListArray.from_arrays(ends, pa.array(np.tile(np.array(kinds, np.int8), rows))),
    }


def _joined(words: Words, columns: Mapping[str, pa.LargeStringArray]) -> pa.LargeStringArray:
    """Return the text of `words` for each row."""
    texts = [
        _text(word, columns) if isinstance(word, ColumnText) else pa.scalar(word, pa.large_string()) for word in words
    ]
    if len(texts) == 1 and isinstance(texts[0], pa.LargeStringArray):
        return texts[0]
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()))


def _text(column: ColumnText, columns: Mapping[str, pa.LargeStringArray]) -> pa.LargeStringArray:
    """Return the text of `column` for each row, after its change."""
    texts = columns[column.name]
    return _CHANGES[column.change](texts) if column.change else texts


def visible(texts: pa.LargeStringArray) -> np.ndarray:
    """Return for each text whether `str.strip` leaves any character: bool[texts].

    >>> visible(pa.array([" \u3000", "a ", ""], pa.large_string())).tolist()
    [False, True, False]
    """
    trimmed = pc.utf8_trim(texts, characters=SPACES)
    return np.asarray(pc.binary_length(trimmed).to_numpy(zero_copy_only=False) > 0)
