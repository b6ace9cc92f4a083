"""Read two files whose lines belong together, as translations are often stored: train.source and train.target.

The two files are read line by line together into blocks of two columns, `source` and `target`; later stages see no
pairs.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from t5prep import sources
from t5prep.errors import SourceError
from t5prep.reading import blocks, formats
from t5prep.reading.blocks import BLOCK_BYTES, Block
from t5prep.reading.formats import Format
from t5prep.sources import RawFile, unpacked_name

COLUMNS = ("source", "target")
_ONE_FIELD = re.compile(rb"[\t\r]")


@dataclasses.dataclass(frozen=True)
class Pair:
    """A file of source lines, and the file of their targets."""

    source: RawFile
    target: RawFile


def match(files: Sequence[RawFile], endings: Sequence[tuple[str, str]]) -> list[RawFile | Pair]:
    """Return the files, with each two that differ only in a pair of endings (`.en`, `.ro`) joined as a Pair.

    Raises SourceError for a file whose partner is missing.
    """
    by_name = {unpacked_name(file.name): file for file in files}
    matched: list[RawFile | Pair] = []
    for file in files:
        name = unpacked_name(file.name)
        known = ((end, at, ends) for ends in endings for at, end in enumerate(ends))
        ending = next(((name.removesuffix(end), at, ends) for end, at, ends in known if name.endswith(end)), None)
        if not ending:
            matched.append(file)
            continue
        stem, at, ends = ending
        partner = by_name.get(stem + ends[1 - at])
        if partner is None:
            raise SourceError(
                f"{file.name} has no {stem + ends[1 - at]} beside it. Name the folder, or both by a glob in quotes: "
                f'--source "{stem}.*"'
            )
        if at == 0:
            matched.append(Pair(file, partner))
    return matched


def files(element: RawFile | Pair) -> tuple[RawFile, ...]:
    """Return the file, or both files of a pair."""
    return (element.source, element.target) if isinstance(element, Pair) else (element,)


def scan(
    element: RawFile | Pair,
    *,
    kind: str,
    encoding: str,
    otherwise: str = "",
    records: str = "",
    delimiter: str = "",
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Block]:
    """Yield the blocks of a file (blocks.scan), or of the paired lines of two files.

    `kind` is the format as the user names it, or ""; `otherwise` is the format of files whose names do not tell it;
    `records` is the path to the rows of JSON documents, `delimiter` what divides the columns of CSV, or "".
    Raises SourceError where one file of a pair has more lines.
    """
    if isinstance(element, Pair):
        yield from _scan_pair(element, encoding=encoding, block_bytes=block_bytes)
    else:
        says = unpacked_name(element.name).lower().endswith(tuple(formats.SUFFIXES))
        form = formats.detect(
            element.name, kind=kind or ("" if says else otherwise), encoding=encoding, delimiter=delimiter
        )
        if records and form.kind != "jsonl":
            raise SourceError(f"--records is for JSON documents, and {element.name} is {form.kind}.")
        yield from blocks.scan(element, dataclasses.replace(form, records=records), block_bytes=block_bytes)


def _scan_pair(pair: Pair, *, encoding: str, block_bytes: int) -> Iterator[Block]:
    form = Format("tsv", encoding)
    first, lines, size = 1, [], 0
    with sources.open_stream(pair.source) as left, sources.open_stream(pair.target) as right:
        for number, both in enumerate(itertools.zip_longest(_lines(left), _lines(right)), 1):
            if None in both:
                longer, shorter = (pair.source, pair.target) if both[0] is not None else (pair.target, pair.source)
                raise SourceError(f"{shorter.name} ends after {number - 1:,} lines, {longer.name} goes on.")
            # A tab or \r would separate columns or rows; the tokenizer reads them as spaces anyway.
            line = b"\t".join(_ONE_FIELD.sub(b" ", side) for side in both if side is not None) + b"\n"
            lines.append(line)
            size += len(line)
            if size >= block_bytes:
                yield Block(pair.source, form, COLUMNS, first, len(lines), first, size, b"".join(lines))
                first, lines, size = number + 1, [], 0
    if lines:
        yield Block(pair.source, form, COLUMNS, first, len(lines), first, size, b"".join(lines))


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.rstrip(b"\r\n")
