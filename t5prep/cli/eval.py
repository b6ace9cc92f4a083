"""Define `t5prep eval`, which scores a model on splits."""

import json
from pathlib import Path
from typing import Any

import click

from t5prep.cli import _device, _generation, _output, _scores

WORST = 20


@click.command("eval")
@click.option("--model", required=True, help="A run, a Hugging Face directory, or a Hub name.")
@click.option("--data", multiple=True, help="A prepared dataset, or several; of a run, all that it was trained on.")
@click.option(
    "--split",
    "splits",
    multiple=True,
    default=["validation"],
    show_default=True,
    help="A split, or several: every record is scored, once.",
)
@_device.which
@click.option("--batch", default=32, show_default=True, type=click.IntRange(min=1), help="Rows at a time.")
@click.option("--limit", default=0, type=click.IntRange(min=0), help="Score only so many records; 0: all.")
@_generation.options
@click.option("--metric", "metrics", multiple=True, help="Compute this metric, or several, in place of the task's.")
@click.option("--bootstrap", is_flag=True, help="Add 95 % intervals to ROUGE.")
@click.option("--dtype", default="auto", type=click.Choice(["auto", "float32", "bfloat16"]), help="Of matrix products.")
@click.option("--scores", is_flag=True, help="With the predictions: what the metrics say of each one.")
@click.option("--predictions", "file", help="Write the JSON, predictions and worst examples to this file.")
@_device.tokenizer
@_device.options
@_output.as_json
def command(
    model: str,
    data: tuple[str, ...],
    splits: tuple[str, ...],
    which: str,
    scores: bool,
    file: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Score a model on a split: accuracy and confusion matrix of classes, or the task's metrics of generated answers.

    \b
    Example:
      t5prep eval --model runs/sample --data data/sample --split validation --split train
    """
    import t5prep
    from t5prep.io import atomic_files

    if file:
        atomic_files.check_writable(Path(file), option="--predictions")
    found = t5prep.evaluate(model, data=data, split=splits, checkpoint=which, worst=WORST, **given)
    whole = found.to_json(scores=scores)
    if file:
        atomic_files.write_whole(
            Path(file), (json.dumps(whole, ensure_ascii=False, indent=2) + "\n").encode(), option="--predictions"
        )
    if as_json:
        _output.print_json(whole)
        return
    for result in found.each or [found]:
        if found.each:
            click.echo(f"\n{result.data}, {result.split}")
        _scores.print_metrics(result.metrics)
        for wrong in result.worst[:5]:
            click.echo(f"\n{wrong.id}: said {wrong.prediction}, right is {wrong.target}, loss {wrong.loss:.2f}")
            click.echo(click.wrap_text(wrong.input[:400], width=96, initial_indent="  ", subsequent_indent="  "))
