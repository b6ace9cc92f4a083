"""Define `t5prep diff`, which compares two prepared datasets."""

import dataclasses
import sys
from typing import Any

import click

from t5prep.cli import _output, _progress


@click.command("diff")
@click.argument("data_a")
@click.argument("data_b")
@_output.as_json
def command(data_a: str, data_b: str, as_json: bool) -> None:
    """Show what differs from DATA_A to DATA_B: what the manifests say, ids added and gone, ids whose records changed.

    Exit code 0 when all that decides the records is equal, 1 when anything differs (or cannot be read, which stderr says).

    \b
    Example:
      t5prep diff data/sample gs://my-bucket/sample
    """
    from t5prep.dataset import diff

    with _progress.Line("comparing") as line:
        difference = diff.diff(data_a, data_b, started=line.started, progress=line.progress)
    if as_json:
        changes = [change._asdict() for change in difference.manifest]
        _output.print_json({**dataclasses.asdict(difference), "manifest": changes})
    else:
        _tell(difference)
    sys.exit(0 if difference.equal else 1)


def _tell(difference: Any) -> None:
    from t5prep.dataset import diff

    for change in difference.manifest:
        dim = not diff.decides(change)
        a, b = (_short(value) for value in (change.a, change.b))
        click.echo(f"  {change.field:<36} " + _output.colour(f"{a} → {b}", dim=dim))
    for what, ids in (
        ("only in A", difference.gone),
        ("only in B", difference.added),
        ("in another split", difference.moved),
        ("changed", difference.changed),
    ):
        if ids.count:
            more = ", …" if ids.count > len(ids.first) else ""
            click.echo(f"  {what:<36} {ids.count:,}: {', '.join(map(_short, ids.first))}{more}")
    verdict = "equal" if difference.equal else "different"
    click.echo(f"{_output.colour(verdict, bold=True)}: {difference.same:,} records are the same in both")


def _short(value: object) -> str:
    """Return a value as text on one line, of at most 60 characters."""
    text = "nothing" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if len(text) <= 60 else text[:59] + "…"
