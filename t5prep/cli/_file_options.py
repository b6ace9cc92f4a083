"""Define the option --split of commands that read a user's files directly, and select the files."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from t5prep.cli._options import AnyCommand
from t5prep.options.files import FileOptions

if TYPE_CHECKING:
    from t5prep.sources import Resolved


def split(**attributes: Any) -> Callable[[AnyCommand], AnyCommand]:
    """Return the decorator that adds the option --split, with further attributes of its click option."""
    text = "Split to read, if the files are splits; all reads every file [default: train]."
    return click.option("--split", default="", help=text, **attributes)


def selected(uri: str, split: str, *, options: FileOptions) -> "Resolved":
    """Return the source `uri` with the files of `split` alone, or of the training split for "".

    Print on stderr which files are not read.
    """
    from t5prep import sources
    from t5prep.cli import _output
    from t5prep.reading import source_files

    selection = source_files.select_split(sources.resolve(uri), split, kind=options.format)
    for message in selection.messages:
        _output.say(message)
    return selection.source
