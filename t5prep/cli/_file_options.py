"""Define the options of every command that reads a user's files: format, encoding, delimiter, escape, column names, records."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from t5prep.reading import file_options
from t5prep.reading.file_options import FileOptions

if TYPE_CHECKING:
    from t5prep.sources import Resolved


def options(*, of_data: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options to a command; `of_data`: what is left out is as the model's data had it."""
    encoding, delimiter, columns = (
        (
            "that of the run's data, or utf-8",
            "that of the run's data, or as the first line has it",
            "the run's, or the first line",
        )
        if of_data
        else ("utf-8", "as the first line has it", "the first line")
    )
    each = (
        click.option(
            "--format",
            default="",
            help="Format, where the name does not say it: csv, tsv, jsonl, parquet, text or conll; document: a row is a file.",
        ),
        click.option(
            "--encoding", default="" if of_data else "utf-8", help=f"Encoding of text files  [default: {encoding}]."
        ),
        click.option(
            "--delimiter",
            default="",
            callback=lambda context, option, text: file_options.parse_delimiter(text),
            help=f"Delimiter of CSV columns: a character, or tab  [default: {delimiter}].",
        ),
        click.option(
            "--escape",
            default="",
            callback=lambda context, option, text: file_options.parse_escape(text),
            help="Escape character of CSV files, as \\.",
        ),
        click.option(
            "--columns",
            "column_names",
            default="",
            callback=lambda context, option, text: file_options.parse_columns(text),
            help=f"Column names of a table that does not begin with them, as in text,label  [default: {columns}].",
        ),
        click.option("--records", default="", help="Path to the rows of JSON documents, as in data[].items[]."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(each):
            command = option(command)
        return command

    return add


def taken(given: dict[str, Any]) -> FileOptions:
    """Take these options out of those of a command, and return them."""
    return FileOptions(**{field.name: given.pop(field.name) for field in dataclasses.fields(FileOptions)})


def split(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds --split, for a command that reads files as they are; it reads `default` without it."""
    help = f"Of a source whose files are splits; all reads every file  [default: {default}]."
    return click.option("--split", default="", help=help)


def selected(uri: str, split: str, *, options: FileOptions) -> "Resolved":
    """Return a source with its files of training, or of the split; what is not read is said on stderr."""
    from t5prep import sources
    from t5prep.cli import _output
    from t5prep.reading import source_files

    selection = source_files.select_split(sources.resolve(uri), split, kind=options.format)
    for message in selection.messages:
        _output.say(message)
    return selection.source
