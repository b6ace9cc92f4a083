"""`t5prep --version`: ours, and those that decide what it does."""

import platform
from collections.abc import Callable
from typing import Any

import click

from t5prep import __version__

# In the order in which one asks for them in a bug report; those that are not installed are left out.
_NAMED = (
    *("apache-beam", "sentencepiece", "numpy", "pyarrow", "tensorflow", "transformers"),
    *("jax", "libtpu"),
)


def option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--version`."""
    return click.option(
        "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show, help="Show versions and exit."
    )(command)


def text() -> str:
    """Our version on the first line, Python's and the packages' below."""
    import importlib.metadata  # as long to load as click itself

    found = [f"Python {platform.python_version()}"]
    for name in _NAMED:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"t5prep {__version__}\n{', '.join(found)}"


def _show(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(text())
        ctx.exit()
