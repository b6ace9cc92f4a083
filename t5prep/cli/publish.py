"""Define `t5prep export` and `push`, which give a model or a dataset to others."""

import os
import shlex
from typing import Any

import click

from t5prep.cli import _model_options, _output
from t5prep.cli._addresses import ADDRESS


@click.command("export")
@click.option("--model", type=ADDRESS, required=True, help="A run.")
@click.option("--out", type=ADDRESS, required=True, help="The directory to make.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["hf", "savedmodel"]),
    default="hf",
    show_default=True,
    help="For PyTorch, or for TensorFlow.",
)
@_model_options.which
@click.option("--beams", default=1, show_default=True, type=click.IntRange(min=1), help="Of a SavedModel's search.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="float32",
    show_default=True,
    help="Of a Hugging Face directory's weights, which are rounded to it.",
)
@click.option("--merge", is_flag=True, help="Of a run with adapters (LoRA): a whole model instead of peft's adapters.")
@click.option("--license", "licence", default="", help="The model's licence as the Hub names it, such as apache-2.0.")
@click.option("--text", is_flag=True, help="Of a SavedModel: texts in and out, by tensorflow_text's SentencePiece.")
@_output.as_json
def export_command(
    model: str, out: str, form: str, which: str, dtype: str, text: bool, as_json: bool, **given: Any
) -> None:
    """Write a run's best checkpoint for others: a Hugging Face directory for PyTorch, or a SavedModel for TensorFlow.

    A SavedModel takes ids and gives ids. With --text it takes whole inputs, prefix and all, and gives answers; programs
    that load it import tensorflow_text first, and TensorFlow Serving has it built in.

    \b
    Example:
      t5prep export --model runs/sample --out models/sample
    """
    _model_options.need_tensorflow()
    from t5prep.errors import UsageError
    from t5prep.training.publish import export

    if text and form != "savedmodel":
        raise UsageError("--text is for a SavedModel: add --format savedmodel, or leave --text out.")
    if form == "hf":
        options = {name: given[name] for name in ("licence", "merge")}
        checkpoint = export.export_hf(model, out=out, which=which, dtype=dtype, **options)
    else:
        checkpoint = export.export_saved_model(model, out=out, which=which, beams=given["beams"], text=text)
    _output.show({"checkpoint": checkpoint, "out": out, "format": form}, f"{out}: {checkpoint}", as_json=as_json)
    if form == "hf" and not as_json:
        click.echo(f"next: t5prep push --model {shlex.quote(out)} --repo USER/NAME")


@click.command("push")
@click.option(
    "--model",
    type=ADDRESS,
    help="A directory that `t5prep export` made, a run, whose best is exported, or a tokenizer with config.json.",
)
@click.option("--data", type=ADDRESS, help="A prepared dataset, to publish instead of a model.")
@click.option("--repo", required=True, metavar="USER/NAME", help="The repository on the Hub; made where it is missing.")
@click.option("--private", is_flag=True, help="Make it private.")
@click.option("--logs", is_flag=True, help="Of a run: push its TensorBoard logs too.")
@click.option(
    "--tokenizer", type=ADDRESS, help="Of a dataset: its tokenizer, if the one that the manifest names cannot be found."
)
@_output.as_json
def push_command(model: str | None, data: str | None, as_json: bool, **given: Any) -> None:
    """Upload an exported model, or a prepared dataset, to the Hugging Face Hub, with your own login (`hf auth login`).

    A dataset goes with a table of its texts, which the Hub's viewer shows.

    No device is opened, so a run can be pushed beside its training on the same TPU.

    \b
    Example:
      t5prep push --model models/sample --repo me/question-quality
    """
    logs, tokenizer = given.pop("logs"), given.pop("tokenizer")
    if bool(model) == bool(data) or (data and logs) or (model and tokenizer):
        raise click.UsageError(
            "Name what is published: --model FOLDER (with --logs for a run), or --data FOLDER (with --tokenizer)."
        )
    if data:
        from t5prep.dataset import upload

        address = upload.push(data, **given, tokenizer=tokenizer)
    elif os.path.isfile(os.path.join(model or "", "train.json")) or "://" in (model or ""):
        _model_options.need_tensorflow()
        from t5prep.training.publish.pushes import push_best

        address = push_best(model or "", **given, logs=logs)
    elif logs:
        raise click.UsageError(f"{model} is not a run, and --logs are those of a run: leave --logs out.")
    else:
        from t5prep.training.publish.push import push

        address = push(model or "", **given)
    _output.show({"address": address}, address, as_json=as_json)
