"""Define `t5prep tasks`, which lists the installed tasks."""

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

    definitions, failures = registry.installed()
    for failure in failures:
        click.echo(_output.colour(f"Warning: {failure}", fg="yellow"), err=True)
    if as_json:
        _output.print_json(
            {
                name: {
                    "summary": definition.summary,
                    "source": definition.task.corpus.source,
                    "licence": definition.task.corpus.licence,
                    "citation": definition.task.corpus.citation,
                    "metrics": list(definition.task.metrics),
                }
                for name, definition in definitions.items()
            }
        )
        return
    for name, definition in definitions.items():
        click.echo(_output.colour(name, bold=True))
        click.echo(f"  {definition.summary}")
        click.echo(f"  source    {definition.task.corpus.source or 'yours: --source'}")
        for what in ("licence", "citation"):
            if value := getattr(definition.task.corpus, what):
                click.echo(f"  {what:<9} {value}")
        click.echo(f"  options   t5prep prepare {name} --help")
