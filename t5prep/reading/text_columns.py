"""Read the plain texts of a corpus, for work that needs no examples: training a tokenizer, auditing one."""

import itertools
from collections.abc import Iterator, Sequence

from t5prep.errors import SourceError
from t5prep.reading import blocks, formats
from t5prep.reading.blocks import Block
from t5prep.reading.rows import Record
from t5prep.sources import RawFile, Resolved


def texts_of(record: Record, *, columns: Sequence[str]) -> Iterator[str]:
    """Yield the texts of a row: those of the columns named, else of its column `text`, where it has them.

    >>> list(texts_of({"text": "a", "n": 1}, columns=()))
    ['a']
    """
    for column in columns or ("text",):
        if isinstance(value := record.get(column), str) and value:
            yield value


def texts(
    source: Resolved,
    *,
    columns: Sequence[str] = (),
    limit: int | None = None,
    format: str = "",
    encoding: str = "utf-8",
) -> Iterator[str]:
    """Yield the texts of the first `limit` rows of a source, in order; rows that cannot be read are skipped.

    Raises SourceError for a missing column.
    """
    check(source, columns=columns, format=format, encoding=encoding)
    scanned = (block for file in source.files for block in scan(file, format=format, encoding=encoding))
    rows = (row for block in scanned for row in blocks.read(block, columns=tuple(columns) or ("text",)))
    for row in itertools.islice(rows, limit):
        yield from texts_of(row.record or {}, columns=columns)


def scan(file: RawFile, *, format: str, encoding: str) -> Iterator[Block]:
    """Yield the blocks of a file. Raises UsageError where neither its name nor the user tells its format."""
    return blocks.scan(file, formats.detect(file.name, kind=format, encoding=encoding))


def check(source: Resolved, *, columns: Sequence[str], format: str, encoding: str) -> None:
    """Check that a source has these columns, before any work. Raises SourceError."""
    if not source.files:
        raise SourceError(f"{source.uri} has no files.")
    first = source.files[0]
    block = next(scan(first, format=format, encoding=encoding), None)
    if block is None:
        raise SourceError(f"{first.name} is empty.")
    names = block.columns or tuple(next((row.record for row in blocks.read(block) if row.record), {}))
    for column in columns or ("text",):
        if column not in names:
            raise SourceError(
                f'{first.name} has no column "{column}"; it has {", ".join(names)}. '
                "Say which hold the text: --column NAME"
            )
