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

    found, failures = registry.installed()
    for failure in failures:
        click.echo(_output.colour(f"Warning: {failure}", fg="yellow"), err=True)
    if as_json:
        _output.print_json(
            {
                name: {
                    "summary": one.summary,
                    "source": one.task.corpus.source,
                    "licence": one.task.corpus.licence,
                    "citation": one.task.corpus.citation,
                    "metrics": list(one.task.metrics),
                }
                for name, one in found.items()
            }
        )
        return
    for name, one in found.items():
        click.echo(_output.colour(name, bold=True))
        click.echo(f"  {one.summary}")
        click.echo(f"  source    {one.task.corpus.source or 'yours: --source'}")
        for what in ("licence", "citation"):
            if value := getattr(one.task.corpus, what):
                click.echo(f"  {what:<9} {value}")
        click.echo(f"  options   t5prep prepare {name} --help")
