"""Print as all commands do: data to stdout, messages to stderr, colours only on a terminal."""

import json
import os
import sys
from typing import Any

import click


def say(text: str) -> None:
    """Print a message on stderr."""
    click.echo(text, err=True)


def print_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def colour(text: str, **style: Any) -> str:
    """Return styled text where stdout is a terminal and NO_COLOR is not set, else the text unchanged."""
    style = {name: value for name, value in style.items() if value}  # click writes an escape for False too
    return click.style(text, **style) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


def number_of(count: int, thing: str) -> str:
    """Return a count with the name of what it counts.

    >>> number_of(1, "row"), number_of(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
