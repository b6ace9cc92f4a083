"""Fill the table of examples (example_table.py) from columns of text, as a template says."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.tasks import example_table
from t5prep.tasks.template import Column, Part, Template, Words

# What str.strip removes: the last of it is the ideographic space.
SPACES = [character for character in map(chr, range(0x3001)) if character.isspace()]
_ASCII_SPACES = "".join(filter(str.isascii, SPACES))
_SPACES_OF_BYTES = {
    size: np.array([int.from_bytes(spelled, "big") for spelled in map(str.encode, SPACES) if len(spelled) == size])
    for size in (1, 2, 3)
}


class Filled(NamedTuple):
    """The examples of rows that a template describes (example_table.SCHEMA), and which rows these are: bool[rows]."""

    examples: pa.Table
    described: np.ndarray


def fill(
    template: Template,
    columns: Mapping[str, pa.LargeStringArray],
    numbers: np.ndarray,
    *,
    record_id: pa.LargeStringArray | None,
    group: pa.LargeStringArray | None,
) -> Filled:
    """Return the examples of rows, given by their columns of text (no nulls) and their numbers, int64[rows].

    record_id, group: as a table of examples has them.
    """
    described = np.logical_or.reduce([visible(columns[column.name]) for column in template.input_columns])
    for column in template.input_columns:
        if column.stripped:  # of white space in ASCII: other white space at the ends is for rows
            described &= np.logical_and(*_visible_ends(_text(column, columns)))
    target = _joined(template.target, columns) if template.target else None
    if target is not None and template.labels:
        which = pc.index_in(target, pa.array(list(template.labels), pa.large_string()))
        described &= which.is_valid().to_numpy(zero_copy_only=False)
        target = pa.array(list(template.labels.values()), pa.large_string()).take(which.fill_null(0))
    elif target is not None:
        described &= visible(target)
    if template.id:
        described &= pc.greater(pc.binary_length(columns[template.id]), 0).to_numpy(zero_copy_only=False)
    made = {
        "row": numbers,
        "id": columns[template.id].cast(pa.string()) if template.id else None,
        "record_id": None if record_id is None else record_id.cast(pa.string()),
        **_inputs(template, columns, len(numbers)),
        "target": pa.repeat(pa.scalar("", pa.large_string()), len(numbers)) if target is None else target,
        "references": pa.ListArray.from_arrays(np.zeros(len(numbers) + 1, np.int32), pa.array([], pa.string())),
        "group": None
        if group is None
        else pc.if_else(pc.equal(group, ""), pa.scalar(None, pa.large_string()), group).cast(pa.string()),
    }
    every_row = example_table.of_columns(made, len(numbers))
    return Filled(every_row if described.all() else every_row.filter(pa.array(described)), described)


def _inputs(template: Template, columns: Mapping[str, pa.LargeStringArray], rows: int) -> dict[str, pa.ListArray]:
    """Return the parts of the inputs of all rows, and what each part is."""
    words = [part.words if isinstance(part, Part) else () for part in template.inputs]
    texts = _joined(tuple(word for part in words for word in part), columns)
    kinds = [
        example_table.END
        if not isinstance(part, Part)
        else example_table.PROTECTED
        if part.protected
        else example_table.TEXT
        for part in template.inputs
    ]
    if len(words) > 1:  # the text of each row, cut into its parts
        lengths = np.zeros((rows, len(words)), np.int64)
        for place, word in ((place, word) for place, part in enumerate(words) for word in part):
            if isinstance(word, Column):
                lengths[:, place] += pc.binary_length(_text(word, columns)).to_numpy()
            else:
                lengths[:, place] += len(word.encode())
        offsets, data = example_table.byte_edges(texts)
        edges = np.concatenate([[0], np.cumsum(lengths)]) + offsets[0]
        texts = pa.LargeStringArray.from_buffers(len(edges) - 1, pa.py_buffer(edges), data)
    ends = pa.array(np.arange(rows + 1, dtype=np.int32) * len(words))
    return {
        "inputs": pa.ListArray.from_arrays(ends, texts),
        "kinds": pa.ListArray.from_arrays(ends, pa.array(np.tile(np.array(kinds, np.int8), rows))),
    }


def _joined(words: Words, columns: Mapping[str, pa.LargeStringArray]) -> pa.LargeStringArray:
    """Return the text of some words in each row."""
    texts = [_text(word, columns) if isinstance(word, Column) else pa.scalar(word, pa.large_string()) for word in words]
    if len(texts) == 1 and isinstance(texts[0], pa.LargeStringArray):
        return texts[0]
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()))


def _text(column: Column, columns: Mapping[str, pa.LargeStringArray]) -> pa.LargeStringArray:
    """Return the text of a column in each row, without white space in ASCII at the ends where it is stripped."""
    texts = columns[column.name]
    return pc.ascii_trim(texts, characters=_ASCII_SPACES) if column.stripped else texts


def visible(texts: pa.LargeStringArray) -> np.ndarray:
    """Return which texts are not blank, as str.strip understands it: bool[texts]."""
    seen = np.logical_or(*_visible_ends(texts))
    for place in np.flatnonzero(~seen).tolist():
        seen[place] = bool(texts[place].as_py().strip())
    return seen


def _visible_ends(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return which texts begin, and which end, with a character that str.strip leaves there: each bool[texts]."""
    edges, data = example_table.byte_edges(texts)
    characters = np.frombuffer(data if data.size else b"\0", np.uint8)
    begins, ends = edges[:-1], edges[1:]
    first, last = begins < ends, begins < ends
    for size, spaces in _SPACES_OF_BYTES.items():
        holds = ends - begins >= size
        first = first & ~(holds & np.isin(_numbers(characters, begins, size), spaces))
        last = last & ~(holds & np.isin(_numbers(characters, ends - size, size), spaces))
    return first, last


def _numbers(characters: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    """Return the `size` bytes at each place as one number; of places outside of the bytes, some number."""
    numbers = np.zeros(len(places), np.int64)
    for place in range(size):
        numbers = numbers << 8 | characters[np.clip(places + place, 0, len(characters) - 1)]
    return numbers
