"""Large real corpora whose vocabulary stays open, from the documentation packages of Debian: about 90 MB of English.

    python -m tests.benchmarks.open_corpora FOLDER       two minutes; needs apt-get (Debian or Ubuntu)

Rows repeated until they are many have a closed vocabulary, which is kind to every cache of words; real text never stops
bringing new words. Written are JSON lines {"id", "text"}, each text once, in an order shuffled by a fixed seed: en_docs (whole
documents, 200 bytes to a megabyte), en_short (the same in pieces of about 1 kB) and it_short (Italian pieces, 9 MB).
"""

import gzip
import html
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ENGLISH = (
    *("linux-doc-6.1", "python3.11-doc", "llvm-14-doc", "cmake-doc", "perl-doc", "git-doc"),
    *("libreoffice-help-en-us", "wordnet-base"),
)
ITALIAN = ("libreoffice-help-it", "gimp-help-it")
NAMES = ("en_short", "en_docs", "it_short")
_TEXT = (".rst", ".txt", ".pod", ".adoc", ".noun", ".verb", ".adj", ".adv")
_MARKUP = (".html", ".htm")
# Manuals that are there as text too would stand in twice.
_HTML_ONLY = ("libreoffice-help-en-us", *ITALIAN)
_TAG = re.compile(r"(?is)<(script|style|head)\b.*?</\1>|<[^>]+>")
_EMPTY_LINES = re.compile(r"[ \t]*\n\s*\n+")
_PIECE, _LONGEST = 1000, 3000


def folder() -> Path | None:
    """Return where the corpora are, as T5PREP_CORPORA says; None where it says nothing."""
    folder_name = os.environ.get("T5PREP_CORPORA", "")
    return (
        Path(folder_name)
        if folder_name and all((Path(folder_name) / f"{name}.jsonl").exists() for name in NAMES)
        else None
    )


def texts(name: str) -> list[str]:
    """Return the texts of one of NAMES. Raises FileNotFoundError where they were not made."""
    corpora_folder = folder()
    if corpora_folder is None:
        raise FileNotFoundError("python -m tests.benchmarks.open_corpora FOLDER; then set T5PREP_CORPORA=FOLDER")
    with open(corpora_folder / f"{name}.jsonl", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def _documents(package: str, work: Path) -> Iterator[str]:
    subprocess.run(["apt-get", "download", "-qq", package], cwd=work, check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["dpkg", "-x", *work.glob(f"{package}_*.deb"), work / package], check=True)
    suffixes = _MARKUP if package in _HTML_ONLY else _TEXT
    for path in sorted((work / package).rglob("*")):
        plain = path.name.removesuffix(".gz")
        if path.is_symlink() or not path.is_file() or not plain.endswith((*suffixes, *_TEXT)):
            continue
        data = path.read_bytes()
        try:
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        except (UnicodeDecodeError, gzip.BadGzipFile):
            continue
        if plain.endswith(_MARKUP):
            text = html.unescape(_TAG.sub(" ", text))
        text = _EMPTY_LINES.sub("\n\n", text.replace("\0", " ")).strip()
        if len(text) > 200:
            yield text


def _pieces(text: str) -> Iterator[str]:
    piece = ""
    for paragraph in text.split("\n\n"):
        piece = f"{piece}\n\n{paragraph}" if piece else paragraph
        if len(piece) > _PIECE:
            yield from (piece[offset : offset + _LONGEST] for offset in range(0, len(piece), _LONGEST))
            piece = ""
    if len(piece) > 100:
        yield piece


def _write(path: Path, texts: Iterator[str]) -> None:
    once = list(dict.fromkeys(texts))
    random.Random(0).shuffle(once)
    rows = (json.dumps({"id": number, "text": text}, ensure_ascii=False) for number, text in enumerate(once))
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    print(f"{path}: {len(once):,} texts, {path.stat().st_size / 1e6:.0f} MB")


def main() -> None:
    """Make all three in the folder that is named."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        english = [text for package in ENGLISH for text in _documents(package, Path(work))]
        italian = [text for package in ITALIAN for text in _documents(package, Path(work))]
    _write(out / "en_docs.jsonl", iter(english))
    _write(out / "en_short.jsonl", (piece for text in english for piece in _pieces(text)))
    _write(out / "it_short.jsonl", (piece for text in italian for piece in _pieces(text)))


if __name__ == "__main__":
    main()
