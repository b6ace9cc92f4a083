"""Define `t5prep push`, which uploads a model to the Hugging Face Hub."""

import os

import click

from t5prep.cli import _device, _output


@click.command("push")
@click.option("--model", help="A directory that `t5prep export` made, or a run, whose best is exported.")
@click.option("--data", help="A prepared dataset, to publish instead of a model.")
@click.option("--repo", required=True, metavar="USER/NAME", help="The repository on the Hub; made where it is missing.")
@click.option("--private", is_flag=True, help="Make it private.")
@click.option("--follow", is_flag=True, help="Of a run that trains: push each better checkpoint too, until its end.")
@_output.as_json
def command(model: str | None, data: str | None, repo: str, private: bool, follow: bool, as_json: bool) -> None:
    """Upload an exported model, or a prepared dataset, to the Hugging Face Hub, with your own login (`hf auth login`).

    \b
    Example:
      t5prep push --model models/sample --repo me/question-quality
    """
    if bool(model) == bool(data) or (data and follow):
        raise click.UsageError("Name what is published: --model FOLDER (with --follow for a run), or --data FOLDER.")
    address = _push_data(data, repo, private) if data else _push_model(model or "", repo, private, follow)
    if as_json:
        _output.print_json({"address": address})
    else:
        click.echo(address)


def _push_data(data: str, repo: str, private: bool) -> str:
    from t5prep.dataset.upload import push

    return push(data, repo=repo, private=private)


def _push_model(model: str, repo: str, private: bool, follow: bool) -> str:
    if follow or os.path.isdir(os.path.join(model, "checkpoints")) or "://" in model:
        _device.need_tensorflow()
        from t5prep.train.publish.push import push_best

        return push_best(model, repo=repo, private=private, follow=follow)
    from t5prep.train.publish.push import push

    return push(model, repo=repo, private=private)
