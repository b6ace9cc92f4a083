"""Read a file as one row: its text, its folder (often its class), and its name."""

import codecs
import json
from collections.abc import Iterator

from t5prep.errors import SourceError
from t5prep.reading.encodings import Readable

COLUMNS = ("text", "folder", "file")
MAX_BYTES = 256 << 20
_CHUNK = 1 << 20


def lines(reader: Readable, *, encoding: str, name: str) -> Iterator[bytes]:
    """Yield the row as one line of JSON, so that later code reads it like JSON lines. Raises SourceError for a huge file."""
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    parts: list[str] = []
    size = 0
    while chunk := reader.read(_CHUNK):
        size += len(chunk)
        if size > MAX_BYTES:
            raise SourceError(
                f"{name} has more than {MAX_BYTES >> 20} MiB, which is too large for one document. To read "
                "each line as a row: --format text",
                code="file.oversized-document",
            )
        parts.append(decoder.decode(chunk))
    text = "".join([*parts, decoder.decode(b"", True)]).replace("\r\n", "\n").strip("\n")
    folder = name.rpartition("/")[0].rpartition("/")[2]
    yield json.dumps(dict(zip(COLUMNS, (text, folder, name), strict=True))).encode() + b"\n"
