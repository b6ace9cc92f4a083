"""Define and check the options of reading files.

`--help` imports this module, so it imports nothing slow (no pyarrow).
"""

import dataclasses

from t5prep.errors import UsageError
from t5prep.options.fields import Options, option


def parse_delimiter(text: str) -> str:
    """Return the character that separates columns, for `--delimiter`; "" stays "". Raises UsageError.

    >>> parse_delimiter(";"), parse_delimiter("tab")
    (';', '\\t')
    """
    delimiter = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(delimiter) > 1 or not delimiter.isascii() or delimiter.isalnum() or (delimiter and delimiter in '"\r\n '):
        raise UsageError(
            f'--delimiter "{text}" is not a valid delimiter. Use one character such as ; or |, or the word tab.',
            code="option.malformed",
        )
    return delimiter


def parse_escape(text: str) -> str:
    """Return the escape character, for `--escape`; "" stays "". Raises UsageError."""
    if len(text) > 1 or not text.isascii() or text.isalnum() or (text and text in '",; \t\r\n'):
        raise UsageError(
            f"--escape {text!r} is not a valid escape character. Use one character, such as \\", code="option.malformed"
        )
    return text


def parse_columns(text: str) -> str:
    """Return column names separated by commas, without spaces, for `--columns`; "" stays "". Raises UsageError.

    >>> parse_columns("text, label")
    'text,label'
    """
    names = [name.strip() for name in text.split(",")] if text else []
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(
            f'--columns "{text}" has an empty or repeated name. Name each column once, as in text,label',
            code="option.malformed",
        )
    return ",".join(names)


@dataclasses.dataclass(frozen=True)
class FileOptions(Options):
    """Hold the options of reading files. Where `format`, `delimiter` or `columns` is "", the file's name or first line decides.

    `columns` are names separated by commas. Raises UsageError for an invalid delimiter, escape character or name.
    """

    format: str = option(
        "",
        (
            "file format, if the file names do not tell: csv, tsv, jsonl, parquet, text or conll; document: one row "
            "for each file, with the columns text, folder and file"
        ),
        changes_tokens=True,
        section="Source",
    )
    encoding: str = option("utf-8", "encoding of text files", changes_tokens=True, section="Source")
    delimiter: str = option(
        "",
        "delimiter of CSV columns: a character, or tab [default: the comma or semicolon in the first line]",
        parse=parse_delimiter,
        changes_tokens=True,
        section="Source",
    )
    escape: str = option(
        "",
        "escape character of CSV files, usually a backslash",
        parse=parse_escape,
        changes_tokens=True,
        section="Source",
    )
    columns: str = option(
        "",
        "column names of tables without a header line, such as text,label [default: the first line]",
        parse=parse_columns,
        changes_tokens=True,
        section="Source",
    )
    records: str = option(
        "",
        "path to the rows of JSON documents, such as data[].paragraphs[].qas[]",
        changes_tokens=True,
        section="Source",
    )

    def __post_init__(self) -> None:
        """Check the values, and normalize them: the manifest holds `;` or a tab, however they were typed."""
        super().__post_init__()
        # object.__setattr__, because the dataclass is frozen.
        object.__setattr__(self, "delimiter", parse_delimiter(self.delimiter))
        object.__setattr__(self, "escape", parse_escape(self.escape))
        object.__setattr__(self, "columns", parse_columns(self.columns))

    @property
    def names(self) -> list[str]:
        """Return the column names in order; none if the file's first line has them."""
        return self.columns.split(",") if self.columns else []


@dataclasses.dataclass(frozen=True)
class RowFileOptions(FileOptions):
    """Hold the options of reading rows for a model. The default of each is the option with which its data was prepared."""

    encoding: str = option("", "encoding of text files [default: the run's, or utf-8]")
    delimiter: str = option(
        "",
        "delimiter of CSV columns: a character, or tab [default: the run's, or that of the first line]",
        parse=parse_delimiter,
    )
    columns: str = option(
        "",
        "column names of tables without a header line, such as text,label [default: the run's, or the first line]",
        parse=parse_columns,
    )
