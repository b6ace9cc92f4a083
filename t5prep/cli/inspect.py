"""Define `t5prep inspect`, which shows records as a model sees them."""

import dataclasses
import shutil

import click

from t5prep.cli import _output

_NARROWEST = 20  # columns; on a narrower terminal, lines are longer than its width


@click.command("inspect")
@click.argument("data")
@click.option("--split", default="train", show_default=True, help="Which split.")
@click.option("-n", "count", default=3, show_default=True, type=click.IntRange(min=1), help="How many records.")
@click.option("--tokenizer", help="The tokenizer, if the one that the manifest names cannot be found.")
@_output.as_json
def command(data: str, split: str, count: int, tokenizer: str | None, as_json: bool) -> None:
    """Show records of DATA as a model sees them: text, tokens, ids and the label mask, aligned.

    \b
    Example:
      t5prep inspect data/sample --split validation -n 1
    """
    from t5prep.dataset import inspect_records, manifest

    shown = inspect_records.records(data, split=split, count=count, tokenizer=tokenizer)
    if as_json:
        _output.print_json({"records": [dataclasses.asdict(record) for record in shown]})
        return
    dataset_manifest = manifest.load(data)
    loaded_tokenizer = inspect_records.open_tokenizer(dataset_manifest, tokenizer)
    width = max(_NARROWEST, shutil.get_terminal_size((100, 24)).columns)
    for record in shown:
        title = f"── {record.id} ".ljust(width, "─")  # the id of a packed row has the ids of all its examples
        click.echo(_output.colour(title if len(title) <= width else f"{title[: width - 1]}…", bold=True))
        for what, text, ids in (("input", record.inputs, record.input_ids), ("target", record.targets, record.labels)):
            click.echo(_output.colour(f"{what}  {len(ids)} places", fg="cyan"))
            for line in text.split("\n"):
                click.echo(click.wrap_text(line, width=width - 2, initial_indent="  ", subsequent_indent="  "))
            if what == "target" and dataset_manifest.settings.target == "class":
                click.echo("    " + _output.colour(f"class {ids[0]}", dim=True))
                continue
            for tokens, numbers in inspect_records.aligned(ids, loaded_tokenizer, width=width - 4):
                click.echo("    " + tokens)
                click.echo("    " + _output.colour(numbers, dim=True))
        for answer in record.references:
            click.echo(
                click.wrap_text(f"also right: {answer}", width=width - 2, initial_indent="  ", subsequent_indent="  ")
            )
