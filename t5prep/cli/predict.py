"""Define `t5prep predict`, which answers the rows of a file."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from t5prep.cli import _device, _generation, _output
from t5prep.io.progress import Progress


@click.command("predict")
@click.argument("file", default="-")
@click.option("--model", required=True, help="A run, a Hugging Face directory, or a Hub name.")
@click.option("--out", type=click.Path(path_type=Path), help="A file for the answers; a killed run continues it.")
@click.option(
    "--to", default="", help="What to write: text, jsonl, csv, tsv or json  [default: as --out is named, or text]."
)
@click.option("--as-text", is_flag=True, help="Lines (or a column `input`) are whole inputs, prefix and all.")
@click.option("--task", default="", help="Of a run on several tasks: which one the rows are for.")
@click.option("--format", "kind", default="", help="csv, tsv, jsonl, parquet or text, where the name does not say it.")
@click.option("--jsonl", is_flag=True, help="The same as --format jsonl.")
@click.option("--encoding", default="utf-8", show_default=True, help="Of text files.")
@click.option("--records", default="", help="Where JSON documents have their rows, as in data[].items[].")
@click.option("--limit", type=click.IntRange(min=1), help="Answer only so many rows.")
@_device.trust_code
@_generation.long
@_device.which
@click.option("--batch", default=16, show_default=True, type=click.IntRange(min=1), help="Rows at a time.")
@_generation.options
@click.option("--answers", default=1, show_default=True, type=click.IntRange(min=1), help="How many for each row.")
@click.option("--scores", is_flag=True, help="Give each answer's score.")
@click.option("--fresh", is_flag=True, help="Begin anew where --out was begun already, or replace it.")
@_device.tokenizer
@_device.options
@_output.as_json
def command(file: str, model: str, out: Path | None, to: str, **given: Any) -> None:
    """Answer the rows of FILE: a table, lines of text, any source that `prepare` reads, or "-" for standard input.

    Rows go through the task that the run was trained on, so a table needs the same columns (without the target), and a
    line of text is its text. There is one answer for each row, in order; a row that makes no input has none, and a reason.

    \b
    Example:
      t5prep predict questions.csv --model runs/sample --out answers.csv
      echo "quality: How do I sort a list?" | t5prep predict --model runs/sample --as-text
    """
    import t5prep
    from t5prep.errors import UsageError
    from t5prep.train.predict import files

    if given.pop("as_json"):
        if to not in ("", "json"):
            raise UsageError(f"--json and --to {to}: the answers are written once. Leave one of them out.")
        to = "json"
    files.Writer(to or files.of_name(out.name if out else ""))  # refused before a model is opened
    fresh = given.pop("fresh")
    given["format"] = given.pop("kind") or ("jsonl" if given["jsonl"] else "")
    given["scores"] |= given["answers"] > 1
    given["checkpoint"], given["long"] = given.pop("which"), given["long"] or ""
    del given["jsonl"]
    if file == "-" and sys.stdin is None:
        raise UsageError("Standard input is closed, so no rows can be read from it. Name a file of them.")
    if file == "-" and sys.stdin.isatty():
        _output.say("Type the inputs, one a line, and end with Ctrl-D; or name a file of them.")
    predictions = t5prep.predict(model, sys.stdin.buffer if file == "-" else file, **given)
    if predictions.note:
        _output.say(predictions.note)
    with contextlib.closing(Progress("answered", total=predictions.bytes)) as progress:

        def watch(some: list[Any]) -> None:
            progress.add(bytes=sum(len(one.input) for one in some), rows=len(some))

        if out:
            begun = predictions.write(out, to=to, fresh=fresh, watch=watch)
        else:
            predictions.write_to(sys.stdout, to=to or "text", watch=watch)
    for sentence in predictions.sentences():
        _output.say(sentence)
    if out:
        went_on = f" ({begun:,} of them written before)" if begun else ""
        _output.say(f"{out}: {_output.number_of(predictions.counts.rows, 'answer')}{went_on}")
