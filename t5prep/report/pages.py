"""Render templates to pages: all text from data is escaped, and a page contains everything it needs."""

import functools
import shlex
from collections.abc import Iterator

import jinja2
import markupsafe

from t5prep.io import byte_sizes

# The Content-Security-Policy of a page: it may load nothing. Text that escaping missed could not run or send anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(template: str, **facts: object) -> str:
    """Return the page that a template of this package makes of the facts."""
    return "".join(pieces(template, **facts)) + "\n"


def pieces(template: str, **facts: object) -> Iterator[str]:
    """Yield the same page piece by piece: a fact that is a function is called when the page comes to it."""
    return _environment().get_template(template).generate(policy=POLICY, **facts)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("t5prep.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=lambda value: f"{value:,}",
        percent=lambda value: f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}",
        size=byte_sizes.text,
        seen=escape_invisible,
        shell=shlex.quote,
        drawing=markupsafe.Markup,  # charts are made here and contain no text of the user
    )
    return environment


def escape_invisible(text: object, length: int = 300) -> str:
    """Return a value as text on one line, of bounded length, with invisible characters escaped.

    >>> escape_invisible("a\\n\\u202eb"), escape_invisible("x" * 20, 8)
    ('a\\\\n\\\\u202eb', 'xxxxxxx…')
    """
    escaped_text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(text))
    return escaped_text if len(escaped_text) <= length else escaped_text[: length - 1] + "…"
