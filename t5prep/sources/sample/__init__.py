"""The built-in sample, which runs everything without a network: questions of three qualities, and a small tokenizer.

A program wrote the 4,000 questions for this purpose, in the columns of the Kaggle dataset "60k Stack Overflow
questions with quality rating" (`Id,Title,Body,Tags,CreationDate,Y`). Five rows are bad on purpose, so that
rejected.jsonl shows something. `spiece.model` was trained on them and on 12,000 similar questions.
"""

import bz2
import hashlib
from pathlib import Path

from t5prep.io import atomic_files

SHA256 = "55d8c1fb1d6d23dca8c76c98c899d664938c5dad15d7302aedfb7d15b73e0cff"  # of the CSV


def tokenizer_path() -> Path:
    """Return the path of the SentencePiece model that was trained on the sample: 8,000 pieces, T5's conventions."""
    return Path(__file__).with_name("spiece.model")


def rows() -> bytes:
    """Return the sample as CSV in UTF-8."""
    return bz2.decompress(Path(__file__).with_name("questions.csv.bz2").read_bytes())


def write(path: Path) -> Path:
    """Write the sample to `path` atomically, unless it is there already, and return the path.

    Raises OutputError.
    """
    if not (path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256):
        atomic_files.write_whole(path, rows(), option="T5PREP_CACHE")
    return path
