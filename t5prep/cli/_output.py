"""What commands share: where data goes, where talk goes, and when there is colour."""

import json
import os
import sys
from typing import Any

import click


def say(text: str) -> None:
    """A line of talk, on stderr."""
    click.echo(text, err=True)


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def colour(text: str, **style: Any) -> str:
    """Styled text on a terminal that wants colour (NO_COLOR is honoured), else the text."""
    return click.style(text, **style) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


def number_of(count: int, thing: str) -> str:
    """A count with what it counts.

    >>> number_of(1, "row"), number_of(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
