"""Define `t5prep embed`, which writes an encoder's vectors of texts."""

import dataclasses
import sys

import click

from t5prep.cli import _options, _output
from t5prep.cli._addresses import ADDRESS
from t5prep.io.progress import Progress, number_of
from t5prep.options.models import EmbedOptions


@click.command("embed")
@click.argument("model", type=ADDRESS)
@click.argument("data", type=ADDRESS, default="-")
@click.option(
    "--out", type=ADDRESS, required=True, help="Output directory or gs:// prefix; an interrupted command resumes it."
)
@_options.options(EmbedOptions)
@_output.as_json
def embed_command(model: str, data: str, out: str, as_json: bool, **option_values: object) -> None:
    """Write encoder embeddings of the texts in DATA.

    DATA is a table, lines of text, or any source that `prepare` reads.

    The output is safetensors files of some rows each, and a manifest with their SHA-256. A trainer of images or videos
    reads these files instead of running a T5. The same command, run again, computes only missing or altered files.

    \b
    Example:
      t5prep embed google/t5-v1_1-xxl captions.csv --column caption --length 226 --out vectors/captions --tpu
      t5prep embed runs/sample sample: --pooling mean --normalize --out vectors/sample
    """
    import t5prep
    from t5prep.errors import UsageError

    if data == "-" and sys.stdin is None:
        raise UsageError(
            "Standard input is closed, so no rows can be read. Name a file of rows.", code="source.stdin-closed"
        )
    with Progress("embedded") as progress:

        def watch(rows: int, characters: int) -> None:
            progress.add(bytes=characters, rows=rows)

        rows = sys.stdin.buffer if data == "-" else data
        summary = t5prep.embed(model, rows, out=out, watch=watch, **option_values)
    if as_json:
        _output.print_json(dataclasses.asdict(summary))
        return
    if summary.missing:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in summary.missing.items())
        _output.say(f"No text in {sum(summary.missing.values()):,} of {number_of(summary.rows, 'row')}: {reasons}.")
    if summary.cut:
        _output.say(f"{number_of(summary.cut, 'text')} cut, longer than the maximum length. Raise it with --length.")
    cached_note = f" ({summary.kept:,} reused from an earlier run)" if summary.kept else ""
    _output.say(
        f"{summary.out}: {number_of(summary.texts, 'text')}, {number_of(summary.tokens, 'token')}, "
        f"vectors of {summary.width:,} values, in {number_of(summary.files, 'file')}{cached_note}"
    )
