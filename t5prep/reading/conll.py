"""Read CoNLL files as rows: each line has a word with its tags, and a blank line ends a sentence.

A sentence becomes one line of JSON with a list for each column, so that later code reads it like JSON lines.
"""

import codecs
import json
from collections.abc import Iterator, Sequence

from t5prep.reading.encodings import Readable

_CHUNK = 1 << 20
_DOCUMENT = "-DOCSTART-"
Words = list[list[str]]  # the fields of each word


def lines(reader: Readable, *, encoding: str, columns: Sequence[str] = ()) -> Iterator[bytes]:
    """Yield each sentence as one line of JSON: an object, or a string with the reason why the sentence is invalid.

    Without `columns`, the first is named `tokens` and the last `tags`. A line `# words` before a sentence is a
    comment, unless it has as many fields as a word. A line `# name = value` always is.
    """
    words: Words = []
    width = len(columns)
    for line in _lines(reader, encoding):
        fields = line.split("\t") if "\t" in line.strip() else line.split()
        if not fields:
            yield from _sentence(words, columns)
            words = []
            continue
        if not words and fields[0] == "#" and (len(fields) != width or fields[2:3] == ["="]):
            continue
        width = width or len(fields)
        words.append([field.strip() for field in fields])
    yield from _sentence(words, columns)


def _sentence(words: Words, columns: Sequence[str]) -> Iterator[bytes]:
    """Yield the row of a sentence; nothing for no words, or for a line that only marks a new document."""
    if not words or words[0][0] == _DOCUMENT:
        return
    width = len(columns) or len(words[0])
    names = columns or (["tokens", *(f"column_{number}" for number in range(2, width)), "tags"][:width])
    wrong = next((word for word in words if len(word) != width), None)
    if wrong is not None:
        row: object = f"wrong number of fields: {len(wrong)} where there are {width} columns, at the word {wrong[0]}"
    else:
        row = dict(zip(names, map(list, zip(*words, strict=True)), strict=True))
    yield json.dumps(row).encode() + b"\n"


def _lines(reader: Readable, encoding: str) -> Iterator[str]:
    """Yield the lines of a stream, decoded. Undecodable bytes become surrogates, so that only their rows are rejected."""
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    partial_line, is_end = "", False
    while not is_end:
        chunk = reader.read(_CHUNK)
        is_end = not chunk
        partial_line += decoder.decode(chunk, is_end).replace("\r\n", "\n")
        *complete_lines, partial_line = partial_line.split("\n")
        yield from complete_lines
    yield partial_line
