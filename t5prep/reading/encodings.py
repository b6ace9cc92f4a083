"""Detect and check the encodings of text files, and recode text to UTF-8."""

import codecs
import io
import re
from typing import BinaryIO, Protocol, cast

from t5prep.errors import SourceError, UsageError
from t5prep.reading.formats import Format

BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16, whose mark is a prefix of this one
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_LINE_END = re.compile(rb"\r\n|\r|\n")
# Bytes of the longest character in any encoding of Python.
_LONGEST_CHARACTER = 8
# Bytes that delimit rows and fields, and some others. An encoding that gives them another meaning is recoded.
_STRUCTURE = b'\t\n\r ",:[]{}\\n0123456789abcxyzABCXYZ'
# Encodings that keep the meaning of these bytes, but use them also inside of other characters.
_STATEFUL = ("iso2022", "hz", "utf-7")
# Replaces invalid bytes. UTF-8 cannot encode it, so the row is rejected later.
_NO_CHARACTER = "\ud800"

codecs.register_error("t5prep.no_character", lambda error: (_NO_CHARACTER, error.end))  # type: ignore[attr-defined]


class Readable(Protocol):
    """A stream that returns bytes, and b"" at its end."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes."""


class PrependedStream:
    """A stream whose first bytes (`head`) were read before. `is_complete`: the head is the whole stream."""

    def __init__(self, stream: BinaryIO, head: bytes, *, is_complete: bool = False) -> None:
        self._stream, self._head, self._buffer = stream, head, bytearray()
        self._is_complete = is_complete

    @property
    def is_exhausted(self) -> bool:
        """Check whether all bytes were read, as far as it is known without reading. False may also mean "unknown"."""
        return self._is_complete and not self._head

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes."""
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._stream.read(size)

    def read_at(self, offset: int, size: int) -> bytes | bytearray:
        """Return at most `size` bytes from `offset` in the stream on, in memory that the next call overwrites."""
        self._head, self._is_complete = b"", False
        self._stream.seek(offset)
        if len(self._buffer) != size:
            self._buffer = bytearray(size)
        read = cast(io.BufferedIOBase, self._stream).readinto(self._buffer)
        return self._buffer if read == size else bytes(memoryview(self._buffer)[:read])


class RecodedStream:
    """A stream of any encoding, read as UTF-8, in which a newline is one byte."""

    def __init__(self, stream: Readable, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("t5prep.no_character")

    def read(self, size: int, /) -> bytes:
        """Return about `size` bytes of UTF-8. Invalid bytes become invalid UTF-8."""
        while data := self._stream.read(size):
            if text := self._decoder.decode(data):
                return text.encode("utf-8", "surrogatepass")
        return self._decoder.decode(b"", True).encode("utf-8", "surrogatepass")


# Magic numbers of files that are not text, and how to read such files.
_NO_TEXT = {
    b"\x28\xb5\x2f\xfd": "compressed with zstd. Rename it to end in .zst",
    b"\x1f\x8b": "compressed with gzip. Rename it to end in .gz",
    b"BZh": "compressed with bzip2. Rename it to end in .bz2",
    b"\xfd7zXZ": "compressed with xz. Rename it to end in .xz",
    b"\x04\x22\x4d\x18": "compressed with lz4. Unpack it, or compress it with gzip",
    b"PK\x03\x04": "a zip archive or a spreadsheet. Rename an archive to end in .zip, or save a table as CSV",
    b"PAR1": "Parquet. Add --format parquet",
    b"%PDF": "a PDF. Extract its text",
}


def byte_order_mark(head: bytes) -> bytes:
    """Return the byte order mark at the beginning of a file, or b""."""
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            aligned_head = head[: len(head) // 4 * 4]
            # UTF-16 text whose first character is NUL begins with the mark of UTF-32.
            if encoding.startswith("utf-32") and "\ufffd" in aligned_head.decode(encoding, "replace"):
                continue
            return mark
    return b""


def keeps_structure(encoding: str) -> bool:
    r"""Check whether an encoding separates rows and fields by the same single bytes as ASCII.

    >>> keeps_structure("cp1252"), keeps_structure("shift_jis"), keeps_structure("utf-16"), keeps_structure("cp500")
    (True, True, False, False)
    """
    if codecs.lookup(encoding).name.startswith(_STATEFUL):
        return False
    try:
        return _STRUCTURE.decode(encoding) == _STRUCTURE.decode("ascii")
    except UnicodeError:
        return False


def check_name(encoding: str) -> None:
    """Raise UsageError for an unknown encoding, and for one that is not for text."""
    try:
        " ".encode(encoding)
    except (LookupError, ValueError):  # ValueError: a codec without a space, or NUL in the name
        if "\0" not in encoding and _is_codec(encoding):
            raise UsageError(
                f'--encoding "{encoding}" does not decode text. Try utf-8.', code="option.invalid-encoding"
            ) from None
        raise UsageError(
            f'--encoding "{encoding}" is not an encoding that Python knows. Try utf-8.', code="option.invalid-encoding"
        ) from None
    if codecs.lookup(encoding).name in ("idna", "punycode"):
        raise UsageError(
            f'--encoding "{encoding}" is for host names, not for text. Try utf-8.', code="option.invalid-encoding"
        )


def _is_codec(encoding: str) -> bool:
    """Check whether Python knows a codec of that name."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        return False
    return True


def check(head: bytes, format: Format, *, name: str) -> None:
    """Raise SourceError if the beginning of a file (`head`) is not in the expected encoding, and name a likely one.

    Later invalid bytes only reject their rows. Raises UsageError for an unknown encoding (`check_name`).
    """
    check_name(format.encoding)
    try:
        head.decode(format.encoding)
    except UnicodeDecodeError as error:
        # The head may end inside of a character.
        if error.start >= len(head) - _LONGEST_CHARACTER and _ends_inside_character(head, format.encoding):
            return
        if packed := next((words for magic, words in _NO_TEXT.items() if head.startswith(magic)), ""):
            raise SourceError(f"{name} is not text, but {packed}.", code="file.binary-content") from None
        line = len(_LINE_END.findall(head, 0, error.start)) + 1
        # Near the first invalid byte: ASCII text before it fits each encoding.
        guess = likely(head[max(0, error.start - 4096) :])
        tried = codecs.lookup(guess).name == codecs.lookup(format.encoding).name
        raise SourceError(
            f"{name} is not {format.encoding}: byte 0x{head[error.start]:02x} in line {line}. "
            + ("No other encoding fits either." if tried else f"Name its encoding, probably: --encoding {guess}"),
            code="file.wrong-encoding",
        ) from None


def reads_as_utf8_too(head: bytes, encoding: str) -> bool:
    """Check whether the beginning of a file is valid both as UTF-8 and in `encoding`, with different texts.

    ASCII text in UTF-16 or ISO-2022 is not UTF-8, although it decodes.

    >>> reads_as_utf8_too("naïve".encode(), "cp1252"), reads_as_utf8_too("naïve".encode("cp1252"), "cp1252")
    (True, False)
    >>> reads_as_utf8_too("a".encode("utf-16-le"), "utf-16-le")
    False
    """
    if byte_order_mark(head):
        return False  # the mark determines the encoding
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
        return (
            not {"\0", "\x1b"}.intersection(text)
            and text != codecs.getincrementaldecoder(encoding)("replace").decode(head)[: len(text)]
        )
    except (UnicodeError, LookupError):
        return False


def likely(data: bytes) -> str:
    """Return the probable encoding of some bytes, as a value of `--encoding`."""
    import charset_normalizer

    matches = charset_normalizer.from_bytes(data[: 1 << 16])
    fitting = [encoding for match in matches for encoding in match.could_be_from_charset]
    # cp1252 (Windows, Western Europe) is the most frequent of such encodings. Similar ones fit the same few bytes.
    return "cp1252" if "cp1252" in fitting or not fitting else fitting[0].replace("_", "-")


def _ends_inside_character(head: bytes, encoding: str) -> bool:
    """Check whether only the last character is incomplete: an incremental decoder then waits for its rest."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(head)
    except (UnicodeError, LookupError):
        return False
    return True
