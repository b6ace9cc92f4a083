"""`t5prep push`."""

import click

from t5prep.cli import _output


@click.command("push")
@click.option("--model", required=True, help="A directory that `t5prep export` made.")
@click.option("--repo", required=True, metavar="USER/NAME", help="The repository on the Hub; made where it is missing.")
@click.option("--private", is_flag=True, help="Make it private.")
@_output.as_json
def command(model: str, repo: str, private: bool, as_json: bool) -> None:
    """Upload an exported model to the Hugging Face Hub, with your own login (`hf auth login`).

    \b
    Example:
      t5prep push --model models/sample --repo me/question-quality
    """
    from t5prep.train.push import push

    address = push(model, repo=repo, private=private)
    if as_json:
        _output.print_json({"address": address})
    else:
        click.echo(address)
