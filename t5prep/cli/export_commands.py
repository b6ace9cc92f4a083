"""Define `t5prep export` and `push`, which publish a model or a dataset."""

import os
import shlex

import click

from t5prep.cli import _model_options, _options, _output
from t5prep.cli._addresses import ADDRESS
from t5prep.cli._failing import CodedUsageError
from t5prep.options.fields import build
from t5prep.options.models import ExportOptions


@click.command("export")
@click.option("--model", type=ADDRESS, required=True, help="Training run.")
@click.option("--out", type=ADDRESS, required=True, help="Output directory.")
@_options.options(ExportOptions)
@_output.as_json
def export_command(model: str, out: str, as_json: bool, **option_values: object) -> None:
    """Export a checkpoint of a run: the best, by default.

    The output is a Hugging Face directory for PyTorch, or a SavedModel for TensorFlow.

    A SavedModel takes and returns token ids. With --text, it takes complete inputs, including the prefix, and returns
    answers. Programs that load it must import tensorflow_text first; TensorFlow Serving contains it.

    \b
    Example:
      t5prep export --model runs/sample --out models/sample
    """
    _model_options.need_tensorflow()
    options = build(ExportOptions, option_values)
    from t5prep.training.publish.export import export

    checkpoint = export(model, out=out, options=options)
    _output.show(
        {"checkpoint": checkpoint, "out": out, "format": options.format}, f"{out}: {checkpoint}", as_json=as_json
    )
    if options.format == "hf" and not as_json:
        _output.print_next(f"push --model {shlex.quote(out)} --repo USER/NAME")


@click.command("push")
@click.option(
    "--model",
    type=ADDRESS,
    help=(
        "Directory written by `t5prep export`, a run (its best checkpoint is exported), or a tokenizer with "
        "config.json."
    ),
)
@click.option("--data", type=ADDRESS, help="Prepared dataset to upload instead of a model.")
@click.option("--repo", required=True, metavar="USER/NAME", help="Hub repository; created if missing.")
@click.option("--private", is_flag=True, help="Create a private repository.")
@click.option("--logs", is_flag=True, help="Also upload the TensorBoard logs of a run.")
@click.option(
    "--tokenizer", type=ADDRESS, help="Tokenizer of the dataset, if the one named in the manifest cannot be found."
)
@_output.as_json
def push_command(
    model: str | None, data: str | None, repo: str, private: bool, logs: bool, tokenizer: str | None, as_json: bool
) -> None:
    """Upload a model or a dataset to the Hugging Face Hub.

    Log in first: `hf auth login`. A dataset is uploaded with a table of its texts, which the Hub's viewer shows.

    Uploading uses no device, so a run can be uploaded while its training uses the TPU.

    \b
    Example:
      t5prep push --model models/sample --repo me/question-quality
    """
    if bool(model) == bool(data) or (data and logs) or (model and tokenizer):
        raise CodedUsageError(
            "t5prep push needs either a model or a dataset. Use --model FOLDER (add --logs for a run), or "
            "--data FOLDER (optionally with --tokenizer).",
            code="option.missing",
        )
    if data:
        from t5prep.dataset import upload

        address = upload.push(data, repo=repo, private=private, tokenizer=tokenizer)
    elif os.path.isfile(os.path.join(model or "", "train.json")) or "://" in (model or ""):
        _model_options.need_tensorflow()
        from t5prep.training.publish.pushes import push_best

        address = push_best(model or "", repo=repo, private=private, logs=logs)
    elif logs:
        raise CodedUsageError(
            f"--logs needs a run, but {model} is not a run. Remove --logs.", code="option.inapplicable"
        )
    else:
        from t5prep.training.publish.push import push

        address = push(model or "", repo=repo, private=private)
    _output.show({"address": address}, address, as_json=as_json)
