"""Render templates to HTML pages. All text from data is escaped, and a page loads nothing."""

import functools
import shlex
from collections.abc import Iterator

import jinja2
import markupsafe

from t5prep.io import byte_sizes
from t5prep.io.progress import number_of

# The Content-Security-Policy of a page: if escaping missed a text, this text could neither run nor send anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(template: str, **facts: object) -> str:
    """Return the page made from the template of this name in `templates/` with the variables `facts`."""
    return "".join(pieces(template, **facts)) + "\n"


def pieces(template: str, **facts: object) -> Iterator[str]:
    """Yield the page of `render` in pieces.

    The browser shows the first pieces while later ones are made. A fact that is a function is called when its piece is due.
    """
    return _environment().get_template(template).generate(policy=POLICY, **facts)


@functools.cache
def _environment() -> jinja2.Environment:
    """Return jinja2's environment with the filters of the templates. An undefined variable is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("t5prep.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=lambda value: f"{value:,}",
        number_of=number_of,
        percent=lambda value: f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}",
        size=byte_sizes.text,
        seen=escape_invisible,
        shell=shlex.quote,
        drawing=markupsafe.Markup,  # not escaped: charts contain no text of a user
    )
    return environment


def escape_invisible(text: object, length: int = 300) -> str:
    """Return a value as one line of at most `length` characters, with invisible characters escaped.

    >>> escape_invisible("a\\n\\u202eb"), escape_invisible("x" * 20, 8)
    ('a\\\\n\\\\u202eb', 'xxxxxxx…')
    """
    escaped_text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(text))
    return escaped_text if len(escaped_text) <= length else escaped_text[: length - 1] + "…"
