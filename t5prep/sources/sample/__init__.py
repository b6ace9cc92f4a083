"""Generate the built-in sample, to run everything without a network: questions of three qualities, a small tokenizer.

The questions are written by our own generator, in the columns of the Kaggle set "60k Stack Overflow questions with
quality rating" (`Id,Title,Body,Tags,CreationDate,Y`). The CSV is not in the repository, because it can be generated:
`write` gives the same bytes on every platform. `spiece.model` is in the repository, because training may differ between
versions of SentencePiece.
"""

import csv
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

from t5prep.io import atomic_files
from t5prep.sources.sample.chooser import Chooser
from t5prep.sources.sample.moves import CLASSES
from t5prep.sources.sample.questions import Question, timestamp

COLUMNS = ("Id", "Title", "Body", "Tags", "CreationDate", "Y")

ROWS = 4000
SHA256 = (
    "55d8c1fb1d6d23dca8c76c98c899d664938c5dad15d7302aedfb7d15b73e0cff"  # of the sample with so many rows and seed 0
)

# These rows are bad on purpose, so that rejected.jsonl has something to show. The others are numbered 0, 1, 2, ...
EMPTY_ROWS = (101, 1303, 2707)
UNKNOWN_LABEL_ROWS = (404, 3205)


def tokenizer_path() -> Path:
    """Return the path of the SentencePiece model that was trained on the sample: 8,000 pieces, T5's conventions."""
    return Path(__file__).with_name("spiece.model")


def write(path: Path, *, rows: int = ROWS, seed: int = 0) -> Path:
    """Write the sample as UTF-8 CSV, whole or not at all, and return its path; an equal file is left as it is.

    The same `rows` and `seed` give the same bytes anywhere; fewer rows are a prefix of more. The classes are balanced.
    Raises OutputError.
    """
    if (rows, seed) == (ROWS, 0) and path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256:
        return path
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(generate(rows=rows, seed=seed))
    data = text.getvalue().encode()
    if not (path.is_file() and path.read_bytes() == data):  # another run may be reading it
        atomic_files.write_whole(path, data, option="T5PREP_CACHE")
    return path


def generate(*, rows: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the sample in COLUMNS. Every three rows hold each class once."""
    for row in range(rows):
        quality = Chooser(f"classes {seed} {row // 3}").shuffled(CLASSES)[row % 3]
        choose = Chooser(f"question {seed} {row}")
        question = Question(choose, quality=quality)
        title, body, tags = question.title(), question.body(), question.tags()
        if row in EMPTY_ROWS:
            title, body = "", ""
        if row in UNKNOWN_LABEL_ROWS:
            quality = "UNRATED"
        yield str(34_550_000 + 7 * row + choose.below(7)), title, body, tags, timestamp(choose), quality
