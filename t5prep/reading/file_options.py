"""Define what a user says of files, and check it; nothing is imported that takes long, because `--help` needs it."""

import dataclasses

from t5prep.errors import UsageError


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """Hold what a user says of files; each text may be empty. `column_names` are names with commas between them.

    Raises UsageError for a delimiter, an escape character or names that cannot be.
    """

    format: str = ""
    encoding: str = "utf-8"
    delimiter: str = ""
    escape: str = ""
    column_names: str = ""
    records: str = ""

    def __post_init__(self) -> None:
        """Check the values, and write them as `prepare` does."""
        object.__setattr__(self, "delimiter", parse_delimiter(self.delimiter))
        object.__setattr__(self, "escape", parse_escape(self.escape))
        object.__setattr__(self, "column_names", parse_columns(self.column_names))

    @property
    def names(self) -> list[str]:
        """Return the names of columns, in order."""
        return self.column_names.split(",") if self.column_names else []


def parse_delimiter(text: str) -> str:
    """Return the one character that divides columns; "" stays. Raises UsageError.

    >>> parse_delimiter(";"), parse_delimiter("tab")
    (';', '\\t')
    """
    delimiter = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(delimiter) > 1 or not delimiter.isascii() or delimiter.isalnum() or (delimiter and delimiter in '"\r\n '):
        raise UsageError(f'--delimiter "{text}": it is one character, as ; or |, or the word tab')
    return delimiter


def parse_escape(text: str) -> str:
    """Return the one character that escapes another; "" stays. Raises UsageError."""
    if len(text) > 1 or not text.isascii() or text.isalnum() or (text and text in '",; \t\r\n'):
        raise UsageError(f"--escape {text!r}: it is one character, as \\")
    return text


def parse_columns(text: str) -> str:
    """Return some names with commas between them, without spaces around; "" stays. Raises UsageError.

    >>> parse_columns("text, label")
    'text,label'
    """
    names = [name.strip() for name in text.split(",")] if text else []
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f'--columns "{text}": it is the name of each column once, as in text,label')
    return ",".join(names)
