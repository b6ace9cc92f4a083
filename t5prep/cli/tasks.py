"""`t5prep tasks`."""

import click

from t5prep.cli import _output


@click.command("tasks")
@_output.as_json
def command(as_json: bool) -> None:
    """List what can be prepared, with source, licence and citation.

    \b
    Example:
      t5prep tasks
    """
    from t5prep.tasks import registry

    found = {name: registry.get(name) for name in registry.names()}
    if as_json:
        _output.print_json(
            {
                name: {
                    "summary": registry.summary(name),
                    "source": one.source,
                    "licence": one.licence,
                    "citation": one.citation,
                    "metrics": list(one.metrics),
                }
                for name, one in found.items()
            }
        )
        return
    for name, one in found.items():
        click.echo(_output.colour(name, bold=True))
        click.echo(f"  {registry.summary(name)}")
        click.echo(f"  source    {one.source or 'yours: --source'}")
        for what in ("licence", "citation"):
            if value := getattr(one, what):
                click.echo(f"  {what:<9} {value}")
        click.echo(f"  options   t5prep prepare {name} --help")
