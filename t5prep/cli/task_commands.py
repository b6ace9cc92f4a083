"""Define `t5prep tasks` and `filter`, which list the tasks and filters of `prepare`."""

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from t5prep.cli import _file_options, _options, _output
from t5prep.cli._addresses import ADDRESS
from t5prep.io.progress import number_of
from t5prep.options.files import FileOptions

if TYPE_CHECKING:
    from t5prep.tasks.filters.chain import Trial


@click.command("tasks")
@_output.as_json
def tasks_command(as_json: bool) -> None:
    """List all tasks with source, licence and citation.

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
        for attribute in ("licence", "citation"):
            if value := getattr(definition.task.corpus, attribute):
                click.echo(f"  {attribute:<9} {value}")
        click.echo(f"  options   t5prep prepare {name} --help")


_WITH_TRY: dict[str, Any] = {"cls": _options.DependentOption, "only_with": ("source",)}
_FILES_WITH_TRY: dict[str, Any] = {field.name: _WITH_TRY for field in dataclasses.fields(FileOptions)}


@click.command("filter")
@click.argument("filters", nargs=-1, metavar="[FILTER]...")
@click.option("--try", "source", type=ADDRESS, metavar="SOURCE", help="Corpus to try the filters on.")
@click.option("--column", multiple=True, help="Column with text; repeat for several [default: text].", **_WITH_TRY)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Maximum number of rows to try.",
    **_WITH_TRY,
)
@_file_options.split(**_WITH_TRY)
@_options.options(FileOptions, **_FILES_WITH_TRY)
@_output.as_json
def filter_command(
    filters: tuple[str, ...],
    source: str | None,
    column: tuple[str, ...],
    limit: int,
    split: str,
    as_json: bool,
    **files: str,
) -> None:
    """List the filters of `prepare --filter`, or try them.

    A FILTER is a name, with changed settings after a colon, or a function in a Python file of yours.

    \b
    Example:
      t5prep filter gopher:least_words=20,stop_words=0 addresses mine.py:no_menus --try pages.jsonl --column text
    """
    from t5prep.errors import UsageError
    from t5prep.reading import columns
    from t5prep.tasks.filters import chain

    if source is None:
        _list([text.partition(":")[0] for text in filters] or chain.names(), as_json=as_json)
        return
    if not filters:
        raise UsageError(
            f"--try {source} needs at least one filter. Name a filter: t5prep filter gopher --try {source}",
            code="option.missing",
        )
    options = FileOptions(**files)
    selected = _file_options.selected(source, split, options=options)
    trial = chain.attempt(columns.texts(selected, columns=column, limit=limit, options=options), filters)
    if as_json:
        _output.print_json({"source": source, **trial.to_json()})
    else:
        _tell(trial)


def _list(names: list[str], *, as_json: bool) -> None:
    """Print the description of each filter, and its settings with their defaults."""
    from t5prep.tasks.filters import chain

    kinds = {name: chain.cls(name) for name in names}
    about = {name: " ".join((kind.__doc__ or "").split()) for name, kind in kinds.items()}
    settings = {
        name: {
            field.name: {"default": field.default, "help": field.metadata["help"]} for field in dataclasses.fields(kind)
        }
        for name, kind in kinds.items()
    }
    if as_json:
        _output.print_json({name: {"about": about[name], "settings": settings[name]} for name in names})
        return
    for name in names:
        click.echo(_output.colour(name, bold=True))
        click.echo(click.wrap_text(about[name], width=110, initial_indent="  ", subsequent_indent="  "))
        for setting, facts in settings[name].items():
            click.echo(f"  {setting + '=' + str(facts['default']):<24} {facts['help']}")
    click.echo(
        "FILE.py:FUNCTION is your own filter: a function that returns its text or raises t5prep.tasks.Reject(reason)."
    )


def _tell(trial: "Trial") -> None:
    """Print the result of each filter: rejected and changed rows, the reasons, and some of the texts."""
    for outcome in trial.outcomes:
        if not outcome.texts:
            click.echo(f"{outcome.filter}: no row is left to try")
            continue
        share = f"{outcome.rejected / outcome.texts:.1%}"
        changed = f", {outcome.changed:,} changed" if outcome.changed else ""
        click.echo(
            f"{outcome.filter}: {outcome.rejected:,} of {number_of(outcome.texts, 'row')} rejected ({share}), "
            f"with {number_of(outcome.words, 'word')}{changed}"
        )
        for reason, number in sorted(outcome.reasons.items(), key=lambda item: (-item[1], item[0])):
            click.echo(f"  {number:>8,}  {reason}")
        for reason, text in outcome.examples:
            click.echo(f"            {reason}  |  {text}")
    summary = (
        f"{trial.kept:,} of {number_of(trial.texts, 'row')}, {trial.kept_words:,} of {number_of(trial.words, 'word')}"
    )
    click.echo(f"kept: {summary}")
