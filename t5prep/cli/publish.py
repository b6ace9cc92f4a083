"""Define `t5prep export` and `push`, which give a model or a dataset to others."""

import os
import shlex

import click

from t5prep.cli import _model_options, _output


@click.command("export")
@click.option("--model", required=True, help="A run.")
@click.option("--out", required=True, help="The directory to make.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["hf", "savedmodel", "step", "orbax"]),
    default="hf",
    show_default=True,
    help="For PyTorch, for TensorFlow, the training step for jax, or the weights for programs of Flax.",
)
@_model_options.which
@click.option("--beams", default=1, show_default=True, type=click.IntRange(min=1), help="Of a SavedModel's search.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Of a Hugging Face directory's weights (float32), which are rounded to it, or a step's products (as the run's).",
)
@click.option(
    "--platform", type=click.Choice(["cpu", "cuda", "tpu"]), default="cpu", show_default=True, help="Of a step."
)
@click.option("--devices", default=1, show_default=True, type=click.IntRange(min=1), help="Of a step.")
@click.option("--merge", is_flag=True, help="Of a run with adapters (LoRA): a whole model instead of peft's adapters.")
@click.option("--license", "licence", default="", help="The model's licence as the Hub names it, such as apache-2.0.")
@click.option("--text", is_flag=True, help="Of a SavedModel: texts in and out, by tensorflow_text's SentencePiece.")
@_output.as_json
def export_command(
    model: str,
    out: str,
    form: str,
    which: str,
    beams: int,
    dtype: str | None,
    platform: str,
    devices: int,
    merge: bool,
    licence: str,
    text: bool,
    as_json: bool,
) -> None:
    """Write a run's best checkpoint for others: a Hugging Face directory for PyTorch, a SavedModel for TensorFlow, or a
    checkpoint of Orbax with the names of transformers' Flax models.

    A SavedModel takes ids and gives ids. With --text it takes whole inputs, prefix and all, and gives answers; programs
    that load it import tensorflow_text first, and TensorFlow Serving has it built in.

    A step is the run's training step and its forward pass as programs that jax runs without TensorFlow, with the state to
    go on from. Neither a GPU nor a TPU need be here.

    \b
    Example:
      t5prep export --model runs/sample --out models/sample
    """
    _model_options.need_tensorflow()
    from t5prep.errors import UsageError
    from t5prep.train.publish import export

    if text and form != "savedmodel":
        raise UsageError("--text is for a SavedModel: add --format savedmodel, or leave --text out.")
    if form in ("hf", "orbax"):
        checkpoint = export.export_hf(
            model, out=out, which=which, dtype=dtype or "float32", licence=licence, merge=merge, orbax=form == "orbax"
        )
    elif form == "step":
        from t5prep.train.publish.export_step import export_step

        checkpoint = export_step(model, out=out, which=which, platform=platform, devices=devices, dtype=dtype or "")
    else:
        checkpoint = export.export_saved_model(model, out=out, which=which, beams=beams, text=text)
    if as_json:
        _output.print_json({"checkpoint": checkpoint, "out": out, "format": form})
        return
    click.echo(f"{out}: {checkpoint}")
    if form == "hf":
        click.echo(f"next: t5prep push --model {shlex.quote(out)} --repo USER/NAME")


@click.command("push")
@click.option(
    "--model",
    help="A directory that `t5prep export` made, a run, whose best is exported, or a tokenizer with config.json.",
)
@click.option("--data", help="A prepared dataset, to publish instead of a model.")
@click.option("--repo", required=True, metavar="USER/NAME", help="The repository on the Hub; made where it is missing.")
@click.option("--private", is_flag=True, help="Make it private.")
@click.option(
    "--follow",
    is_flag=True,
    help="Of a run that trains, or is to begin: push each better checkpoint too, until its end.",
)
@click.option("--logs", is_flag=True, help="Of a run: push its TensorBoard logs too.")
@click.option("--tokenizer", help="Of a dataset: its tokenizer, if the one that the manifest names cannot be found.")
@_output.as_json
def push_command(
    model: str | None,
    data: str | None,
    repo: str,
    private: bool,
    follow: bool,
    logs: bool,
    tokenizer: str | None,
    as_json: bool,
) -> None:
    """Upload an exported model, or a prepared dataset, to the Hugging Face Hub, with your own login (`hf auth login`).

    A dataset goes with a table of its texts, which the Hub's viewer shows.

    No device is opened, so a run can be followed beside its training on the same TPU.

    \b
    Example:
      t5prep push --model models/sample --repo me/question-quality
    """
    if bool(model) == bool(data) or (data and (follow or logs)) or (model and tokenizer):
        raise click.UsageError(
            "Name what is published: --model FOLDER (with --follow and --logs for a run), or --data FOLDER (with --tokenizer)."
        )
    address = (
        _push_data(data, repo, private, tokenizer) if data else _push_model(model or "", repo, private, follow, logs)
    )
    if as_json:
        _output.print_json({"address": address})
    else:
        click.echo(address)


def _push_data(data: str, repo: str, private: bool, tokenizer: str | None) -> str:
    from t5prep.dataset.upload import push

    return push(data, repo=repo, private=private, tokenizer=tokenizer)


def _push_model(model: str, repo: str, private: bool, follow: bool, logs: bool) -> str:
    if follow or os.path.isfile(os.path.join(model, "train.json")) or "://" in model:
        _model_options.need_tensorflow()
        from t5prep.train.publish.best import push_best

        return push_best(model, repo=repo, private=private, follow=follow, logs=logs)
    if logs:
        raise click.UsageError(f"{model} is not a run, and --logs are those of a run: leave --logs out.")
    from t5prep.train.publish.push import push

    return push(model, repo=repo, private=private)
