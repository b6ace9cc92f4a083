"""Define `t5prep cache`, which shows and removes the cached files of this machine."""

import click

from t5prep.cli import _output
from t5prep.io import byte_sizes


@click.group("cache")
def command() -> None:
    """Show or remove what t5prep keeps on this machine: tokenized blocks, downloads, compiled programs.

    Tokenized blocks are bounded: the longest unused go first. T5PREP_CACHE_LIMIT=50GB says to how much, T5PREP_CACHE
    where all of it is kept.

    \b
    Example:
      t5prep cache show
      t5prep cache clear tokenized
    """


@command.command("show")
@_output.as_json
def show(as_json: bool) -> None:
    """Say what is kept, how much of it, and where.

    \b
    Example:
      t5prep cache show
    """
    from t5prep.io import cache_folder

    folders = cache_folder.show()
    if as_json:
        by_kind = {
            item.kind: {"files": item.files, "bytes": item.bytes, "folder": str(item.folder)} for item in folders
        }
        _output.print_json({"limit": cache_folder.limit(), **by_kind})
        return
    for item in folders:
        bound = f" of at most {byte_sizes.text(cache_folder.limit())}" if item.kind == "tokenized" else ""
        click.echo(f"{item.kind:<10} {byte_sizes.text(item.bytes):>10}{bound}  {item.what}  {item.folder}")


@command.command("clear")
@click.argument("kinds", nargs=-1, required=True)
def clear(kinds: tuple[str, ...]) -> None:
    """Remove all of KINDS (tokenized, sources, plan, programs).

    \b
    Example:
      t5prep cache clear tokenized
    """
    from t5prep.io import cache_folder

    for item in cache_folder.clear(list(kinds)):
        click.echo(f"{item.kind}: {byte_sizes.text(item.bytes)} removed")
