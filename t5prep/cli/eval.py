"""`t5prep eval`."""

import dataclasses
import json
from pathlib import Path

import click

from t5prep.cli import _device, _output, _scores

WORST = 20


@click.command("eval")
@click.option("--model", required=True, help="A run, a Hugging Face directory, or a Hub name.")
@click.option("--data", default="", help="A prepared dataset; for a run, the one it was trained on.")
@click.option(
    "--split", default="validation", show_default=True, help="Which split: every record of it is scored, once."
)
@_device.which
@click.option("--batch", default=32, show_default=True, type=click.IntRange(min=1), help="Rows at a time.")
@click.option("--beams", default=1, show_default=True, type=click.IntRange(min=1), help="When generating; 1 is greedy.")
@click.option("--bootstrap", is_flag=True, help="Add 95 % intervals to ROUGE.")
@click.option("--dtype", default="auto", type=click.Choice(["auto", "float32", "bfloat16"]), help="Of matrix products.")
@click.option("--predictions", "file", help="Write the JSON, predictions and worst examples to this file.")
@_device.tokenizer
@_device.options
@_output.as_json
def command(
    model: str,
    data: str,
    split: str,
    which: str,
    batch: int,
    beams: int,
    bootstrap: bool,
    dtype: str,
    file: str | None,
    tokenizer: str,
    tpu: str | None,
    gpus: bool,
    as_json: bool,
) -> None:
    """Score a model on a split: accuracy and confusion matrix of classes, or the task's metrics of generated answers.

    \b
    Example:
      t5prep eval --model runs/sample --data data/sample --split validation
    """
    _device.need_tensorflow()
    from t5prep.io import atomic_files
    from t5prep.train.evaluate import evaluate

    checkpoint, scored = evaluate(
        model,
        data=data,
        split=split,
        which=which,
        batch=batch,
        beams=beams,
        tokenizer=tokenizer,
        bootstrap=bootstrap,
        worst=WORST,
        dtype=dtype,
        tpu=tpu,
        gpus=gpus,
    )
    whole = {
        "checkpoint": checkpoint,
        "metrics": scored.metrics,
        "predictions": scored.predictions,
        "worst": [dataclasses.asdict(one) for one in scored.worst],
    }
    if file:
        atomic_files.write_whole(
            Path(file), (json.dumps(whole, ensure_ascii=False, indent=2) + "\n").encode(), option="--predictions"
        )
    if as_json:
        _output.print_json(whole)
        return
    _scores.print_metrics(scored.metrics)
    for one in scored.worst[:5]:
        click.echo(f"\n{one.id}: {one.prediction} and not {one.target}, loss {one.loss:.2f}")
        click.echo(click.wrap_text(one.input[:400], width=96, initial_indent="  ", subsequent_indent="  "))
