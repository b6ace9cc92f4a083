"""Print `t5prep --version`: the version of t5prep, and those of the packages that it depends on."""

import platform
from collections.abc import Callable
from typing import Any

import click

from t5prep import __version__

# In the order that is useful in a bug report; packages that are not installed are left out.
_NAMED = (
    *("apache-beam", "sentencepiece", "numpy", "pyarrow", "tensorflow", "tensorflow-cpu", "transformers"),
    *("jax", "libtpu"),
)


def option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--version` to a command."""
    return click.option(
        "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show, help="Show versions and exit."
    )(command)


def text() -> str:
    """Return the version of t5prep on the first line, and those of Python and the packages on the second."""
    import importlib.metadata  # imported here because loading it takes as long as loading click

    versions = [f"Python {platform.python_version()}"]
    for name in _NAMED:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"t5prep {__version__}\n{', '.join(versions)}"


def _show(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(text())
        ctx.exit()
