"""Define the options of every command that reads a user's files: format, encoding, delimiter, escape, column names, records."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from t5prep.reading.formats import FileOptions


def _checked(parser: str) -> Callable[[click.Context, click.Parameter, str], str]:
    """Return a callback that parses a value as `prepare` does, by the name of its function in `dataset/settings.py`."""

    def parse(context: click.Context, option: click.Parameter, value: str) -> str:
        from t5prep.dataset import settings

        parsed: str = getattr(settings, parser)(value)
        return parsed

    return parse


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
            callback=_checked("parse_delimiter"),
            help=f"Delimiter of CSV columns: a character, or tab  [default: {delimiter}].",
        ),
        click.option(
            "--escape", default="", callback=_checked("parse_escape"), help="Escape character of CSV files, as \\."
        ),
        click.option(
            "--columns",
            "column_names",
            default="",
            callback=_checked("parse_columns"),
            help=f"Column names of a table that does not begin with them, as in text,label  [default: {columns}].",
        ),
        click.option("--records", default="", help="Path to the rows of JSON documents, as in data[].items[]."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(each):
            command = option(command)
        return command

    return add


def taken(given: dict[str, Any]) -> "FileOptions":
    """Take these options out of those of a command, and return them."""
    from t5prep.reading.formats import FileOptions

    return FileOptions(**{field.name: given.pop(field.name) for field in dataclasses.fields(FileOptions)})
