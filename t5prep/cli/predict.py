"""`t5prep predict`."""

import sys

import click

from t5prep.cli import _device, _output
from t5prep.errors import SourceError
from t5prep.io import suggestions


@click.command("predict")
@click.argument("file", default="-")
@click.option("--model", required=True, help="A run, a Hugging Face directory, or a Hub name.")
@click.option("--jsonl", is_flag=True, help='Lines are {"id", "input"}; known by a name that ends in .jsonl.')
@_device.which
@click.option("--batch", default=16, show_default=True, type=click.IntRange(min=1), help="Rows at a time.")
@click.option("--beams", default=1, show_default=True, type=click.IntRange(min=1), help="1 is greedy.")
@click.option("--max-length", default=0, type=click.IntRange(min=0), help="Target tokens; as the run's by default.")
@_device.tokenizer
@_device.options
@_output.as_json
def command(
    file: str,
    model: str,
    jsonl: bool,
    which: str,
    batch: int,
    beams: int,
    max_length: int,
    tokenizer: str,
    tpu: str | None,
    gpus: bool,
    as_json: bool,
) -> None:
    """Answer the texts of FILE, one a line ("-" is standard input), as the task's inputs are written.

    An answer is a line: newlines in it (data prepared with --keep-newlines) are spaces here, and whole with --json.
    In JSON lines an input may be a list of fields, which are joined by the EOS token as the task joins its own.

    \b
    Example:
      echo "quality: How do I sort a list?" | t5prep predict --model runs/sample
    """
    _device.need_tensorflow()
    from t5prep.train.predict import predict, read_items

    jsonl = jsonl or file.endswith(".jsonl")
    if file == "-":
        if sys.stdin.isatty():
            _output.say("Type the inputs, one a line, and end with Ctrl-D; or name a file of them.")
        try:
            items = read_items(sys.stdin, jsonl=jsonl)
        except UnicodeDecodeError as error:
            raise SourceError(f"Standard input cannot be read ({error}). Inputs are UTF-8 text, one a line.") from error
    else:
        try:
            with open(file, encoding="utf-8") as lines:
                items = read_items(lines, jsonl=jsonl)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", "") or error
            meant = suggestions.mistyped(file)
            raise SourceError(f"{file} cannot be read ({why}).{meant} Inputs are UTF-8 text, one a line.") from error
    predictions = predict(
        model,
        items=items,
        which=which,
        batch=batch,
        beams=beams,
        max_length=max_length,
        tokenizer=tokenizer,
        tpu=tpu,
        gpus=gpus,
    )
    if as_json:
        _output.print_json({"predictions": predictions})
        return
    for one in predictions:
        click.echo(one["prediction"].replace("\n", " "))
