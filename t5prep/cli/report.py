"""Define `t5prep report`, which writes a dataset or a run as an HTML page."""

from pathlib import Path

import click

from t5prep.cli import _output
from t5prep.io import byte_sizes


@click.command("report")
@click.argument("data")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write [default: DATA/report.html].")
@click.option("--tokenizer", help="The tokenizer, if the one that the manifest names cannot be found.")
@click.option("--answers", help="Of a run: what `t5prep eval --predictions` wrote [default: RUN/eval.json].")
@_output.as_json
def command(data: str, out: Path | None, tokenizer: str | None, answers: str | None, as_json: bool) -> None:
    """Write DATA, a prepared dataset or a training run, as one HTML page: lengths, cuts, labels, padding; curves, answers.

    The page needs no network and follows the reader's light or dark.

    \b
    Example:
      t5prep report data/sample --out report.html
    """
    from t5prep import report

    path = report.write(data, out=out or report.default_out(data), tokenizer=tokenizer, answers=answers)
    if as_json:
        _output.print_json({"out": str(path), "bytes": path.stat().st_size})
    else:
        click.echo(f"{path}: {byte_sizes.text(path.stat().st_size)}, open it in any browser")
