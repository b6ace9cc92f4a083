"""Show records to a person: decoded text, and tokens above their ids, in aligned columns."""

import itertools
import sys
import unicodedata
from collections.abc import Iterator

from t5prep.dataset.prepared import Dataset, DecodedRecord
from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.tokens.tokenizer import Tokenizer


def records(opened: Dataset, *, split: str, count: int) -> Iterator[DecodedRecord]:
    """Yield the first `count` records of `split`, decoded. Raises DatasetError, TokenizerError."""
    read = opened.records(*(shard.name for shard in opened.split(split).shards))
    # `islice` takes no number above sys.maxsize, but a user may type one.
    for number, record in enumerate(itertools.islice(read, min(count, sys.maxsize))):
        with opened.decoding(f"Record {number} of the split {split} in {opened.folder}"):
            decoded_record = opened.decoded(record)
        yield decoded_record


def columns(text: str) -> int:
    """Return the number of terminal columns that `text` takes: wide characters take two, combining marks none.

    >>> columns("▁the"), columns("日本"), columns("e\u0301")
    (4, 4, 1)
    """
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)


def aligned(ids: list[int], tokenizer: Tokenizer, *, width: int) -> Iterator[tuple[str, str]]:
    """Yield pairs of lines, tokens above their ids in aligned columns, each at most `width` columns of a terminal wide.

    An ignored label is shown as `∅`. Equal padding or ignored labels at the end become one cell, such as `∅ × 12`.
    """
    cells = [("-100" if token == IGNORED_LABEL else tokenizer.piece(token), str(token)) for token in ids]
    cells = [("∅" if piece == "-100" else piece, number) for piece, number in cells]
    last = len(cells)
    while last > 1 and cells[last - 1] == cells[-1] and ids[-1] in (IGNORED_LABEL, tokenizer.pad_id):
        last -= 1
    if (repeated := len(cells) - last) > 1:
        cells[last:] = [(f"{cells[-1][0]} × {repeated}", cells[-1][1])]
    top, bottom = "", ""
    for piece, number in cells:
        size = max(columns(piece), len(number))
        if top and len(bottom) + size > width:
            yield top.rstrip(), bottom.rstrip()
            top, bottom = "", ""
        top += piece + " " * (size + 1 - columns(piece))
        bottom += number.ljust(size + 1)
    yield top.rstrip(), bottom.rstrip()
