"""Check that a file has the needed columns before any work, and advise options that read it if it has another format."""

import collections
import itertools
import json
import math
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t5prep.errors import SourceError
from t5prep.reading import blocks, rows
from t5prep.reading.blocks import Block
from t5prep.reading.rows import Column

# Number of blocks that are examined if rows need not have all columns, about 32 MiB.
BLOCKS_LOOKED_AT = 16
# Number of files of each split that are opened before any work.
FILES_LOOKED_AT = 8
# Lines of a text that must have the same number of a divider; their least number; and words that show a value instead
# of a name.
_LINES, _FEWEST_LINES, _WORDS = 50, 2, 4
_DIVIDERS = ("\t", ";", "|", ",")


class Lacking(NamedTuple):
    """The result of the check: the missing columns, as the end of "it has no column ...", the last block read, and advice.

    `column` and `advice` are "" and `block` is None if there are none.
    """

    column: str
    block: Block | None
    advice: str = ""


def find_missing(scanned: Iterable[Block], required_columns: Sequence[Column], *, name: str) -> Lacking:
    """Return the needed columns that a file lacks, given its blocks. Raises SourceError for a path that leads nowhere.

    In JSON lines, many rows may omit a key, so several blocks are examined.
    """
    columns, block = dict[str, None](), None
    for block in itertools.islice(scanned, BLOCKS_LOOKED_AT):
        columns |= dict.fromkeys(blocks.column_names(block))
        if columns and not rows.missing(required_columns, tuple(columns)):
            _check_paths(block, rows.names_of(required_columns), name=name)
            return Lacking("", block)
        if block.columns:
            break
    if block is None or not columns:
        return Lacking("", block)
    advice_text = advice(block, required_columns)
    return Lacking(rows.missing(required_columns, tuple(columns), advice=advice_text), block, advice_text)


def _check_paths(block: Block, names: Sequence[str], *, name: str) -> None:
    """Raise SourceError if a name is a path into a column and leads to nothing in each row of a block."""
    paths = [path for path in names if rows.is_path(path) and path not in block.columns]
    records = [row.record for row in blocks.read(block, columns=names) if row.record] if paths else []
    for path in paths:
        lacking = [rows.lacks(record, path) for record in records]
        if lacking and all(lacking) and (value := records[0].get(rows.root(path))) is not None:
            raise SourceError(
                f'{name} has no column "{path}", because {rows.root(path)} is {json.dumps(value, default=str)[:80]}',
                code="column.missing",
            )


def advice(block: Block, required_columns: Sequence[Column]) -> str:
    """Return a sentence with options that would read the file, or "" if its beginning suggests none."""
    fields, options = block.columns, ""
    if block.format.kind == "text":
        divider, fields = _division(block)
        if not divider:
            return ""
        options = "--format tsv" if divider == "\t" else f'--format csv --delimiter "{divider}"'
    elif not block.format.headed:
        return ""
    elif len(fields) == 1 and (divider := next((character for character in "\t;|" if character in fields[0]), "")):
        fields = tuple(fields[0].split(divider))
        options = "--format tsv" if divider == "\t" else f'--delimiter "{divider}"'
    if rows.missing(required_columns, fields) and any(map(_is_datum, fields)):
        names = [next(iter(rows.names_of([column])), "") for column in required_columns]
        if len(names) != len(fields):
            names = [f"column_{number}" for number in range(1, len(fields) + 1)]
        options = " ".join(filter(None, (options, f"--columns {shlex.quote(','.join(names))}")))
        return f" If the first line is already a row, name the columns in order: {options}"
    return f" Name the delimiter of the columns: {options}" if options else ""


def _division(block: Block) -> tuple[str, tuple[str, ...]]:
    """Return the divider that occurs equally often in all first lines of a text, and the fields of the first line; or "" and ()."""
    records = (row.record for row in blocks.read(block) if row.record)
    lines = [rows.text(record, "text") for record in itertools.islice(records, _LINES)]
    for divider in _DIVIDERS if len(lines) >= _FEWEST_LINES else ():
        counts = collections.Counter(line.count(divider) for line in lines)
        if len(counts) == 1 and 0 not in counts:
            return divider, tuple(lines[0].split(divider))
    return "", ()


def _is_datum(name: str) -> bool:
    """Check whether a column name looks like a value: a number, or several words.

    >>> _is_datum("text"), _is_datum("4"), _is_datum("i felt the cloud again")
    (False, True, True)
    """
    try:
        return math.isfinite(float(name))
    except ValueError:
        return len(name.split()) >= _WORDS
