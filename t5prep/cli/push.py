"""Define `t5prep push`, which uploads a model to the Hugging Face Hub."""

import os

import click

from t5prep.cli import _device, _output


@click.command("push")
@click.option("--model", required=True, help="A directory that `t5prep export` made, or a run, whose best is exported.")
@click.option("--repo", required=True, metavar="USER/NAME", help="The repository on the Hub; made where it is missing.")
@click.option("--private", is_flag=True, help="Make it private.")
@click.option("--follow", is_flag=True, help="Of a run that trains: push each better checkpoint too, until its end.")
@_output.as_json
def command(model: str, repo: str, private: bool, follow: bool, as_json: bool) -> None:
    """Upload an exported model to the Hugging Face Hub, with your own login (`hf auth login`).

    \b
    Example:
      t5prep push --model models/sample --repo me/question-quality
    """
    if follow or os.path.isdir(os.path.join(model, "checkpoints")) or "://" in model:
        _device.need_tensorflow()
        from t5prep.train.push_run import push_run

        address = push_run(model, repo=repo, private=private, follow=follow)
    else:
        from t5prep.train.push import push

        address = push(model, repo=repo, private=private)
    if as_json:
        _output.print_json({"address": address})
    else:
        click.echo(address)
