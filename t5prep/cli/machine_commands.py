"""Define the commands about this machine: `t5prep doctor`, `cache` and `completion`."""

import dataclasses
import sys

import click

from t5prep.cli import _output
from t5prep.cli._addresses import ADDRESS
from t5prep.io import byte_sizes

# State of a finding → its sign and colour.
_SIGNS = {"ok": ("ok", "green"), "absent": ("–", "yellow"), "wrong": ("wrong", "red")}


@click.command("doctor")
@click.option("--tpu", metavar="local", help="Also run one small training step on the TPU of this machine.")
@click.option(
    "--bucket", type=ADDRESS, metavar="gs://...", help="Also list, write, read and delete an object in this bucket."
)
@_output.as_json
def doctor_command(tpu: str | None, bucket: str | None, as_json: bool) -> None:
    """Check packages, devices and logins on this machine.

    Each line is ok, absent (–: optional, not installed) or wrong, with the command that fixes it.

    Exit code 1 when something is wrong.

    \b
    Example:
      t5prep doctor --bucket gs://my-bucket
    """
    from t5prep.cli._checks import examine, healthy

    findings = []
    for finding in examine(tpu=tpu, bucket=bucket):
        findings.append(finding)
        if as_json:
            continue
        sign, colour = _SIGNS[finding.state]
        click.echo(
            _output.colour(f"{sign:<6}", fg=colour, bold=finding.state == "wrong")
            + f"{finding.what:<18} {finding.seen}"
        )
        if finding.fix:
            click.echo(f"{'':<25}→ {finding.fix}")
    well = healthy(findings)
    if as_json:
        _output.print_json({"ok": well, "findings": [dataclasses.asdict(finding) for finding in findings]})
    sys.exit(0 if well else 1)


@click.group("cache")
def cache_command() -> None:
    """Show or clear the cache.

    The cache holds tokenized blocks, downloads and compiled programs.

    T5PREP_CACHE is the folder of the cache. T5PREP_CACHE_LIMIT, for example 50GB, limits the tokenized blocks: the
    least recently used ones are removed first.

    \b
    Example:
      t5prep cache show
      t5prep cache clear tokenized
    """


@cache_command.command("show")
@_output.as_json
def show(as_json: bool) -> None:
    """Show the size and folder of each kind of cached files.

    \b
    Example:
      t5prep cache show
    """
    from t5prep.io import store

    folders = store.show()
    if as_json:
        by_kind = {
            item.kind: {"files": item.files, "bytes": item.bytes, "folder": str(item.folder)} for item in folders
        }
        _output.print_json({"limit": store.limit(), **by_kind})
        return
    for item in folders:
        bound = f" of at most {byte_sizes.text(store.limit())}" if item.kind == "tokenized" else ""
        click.echo(f"{item.kind:<10} {byte_sizes.text(item.bytes):>10}{bound}  {item.description}  {item.folder}")


@cache_command.command("clear")
@click.argument("kinds", nargs=-1, required=True)
def clear(kinds: tuple[str, ...]) -> None:
    """Remove the cached files of KINDS.

    KINDS are tokenized, sources, plan, tables, programs or answers.

    \b
    Example:
      t5prep cache clear tokenized
    """
    from t5prep.io import store

    for item in store.clear(list(kinds)):
        click.echo(f"{item.kind}: {byte_sizes.text(item.bytes)} removed")


SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example:
      eval "$(t5prep completion bash)"          # in ~/.bashrc
      eval "$(t5prep completion zsh)"           # in ~/.zshrc
      t5prep completion fish > ~/.config/fish/completions/t5prep.fish
    """
    from click import shell_completion

    from t5prep.cli import main

    completion_class = shell_completion.get_completion_class(shell)
    assert completion_class is not None, "click knows these shells"
    completion = completion_class(main, {}, "t5prep", "_T5PREP_COMPLETE")
    # click's `source()` starts bash to check its version, and warns on a machine without bash, so it is not called.
    click.echo(completion.source_template % completion.source_vars())
