"""Define `t5prep explore`: a dataset in the browser."""

import os
from typing import Any

import click

from t5prep.cli import _model_options, _output


@click.command("explore")
@click.argument("data")
@click.option("--run", default="", help="A run on it, whose answers (RUN/eval.json) are shown beside the records.")
@click.option("--predictions", metavar="FILE", help="What `t5prep eval --predictions` wrote, if it is elsewhere.")
@click.option(
    "--map",
    "vectors",
    metavar="VECTORS",
    help="What `t5prep embed ... --pooling mean` wrote: a map of the texts, by Embedding Atlas, for a browser with WebGPU.",
)
@click.option("--port", default=8001, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option("--source", default="", help="Where its source lies now, if it was moved.")
@click.option("--tokenizer", help="The tokenizer, if the one that the manifest names cannot be found.")
@_model_options.trust_code
def explore_command(data: str, run: str, predictions: str | None, vectors: str | None, port: int, **given: Any) -> None:
    """Look at DATA in a browser: search, filter and sort its records and rejected rows; a row's tokens, and its life.

    The page is served on this machine, to this machine. The table behind it is made once and kept in the cache.

    \b
    Example:
      t5prep explore data/sample
      t5prep explore data/sample --map vectors/sample
    """
    if vectors is not None:
        from t5prep.report import text_map
        from t5prep.report.explore import answers_of

        answers = answers_of(run, predictions)
        command = text_map.command(data, vectors, port=port, predictions=answers, tokenizer=given["tokenizer"])
        os.execv(command[0], command)  # what this process holds of the table is not needed any more
    from t5prep.io.progress import Progress
    from t5prep.report.explore import Explorer, Server, answers_of

    with Progress("making the table") as line:
        explorer = Explorer(
            data, predictions=answers_of(run, predictions), made=lambda rows: line.add(bytes=0, rows=rows), **given
        )
    server = Server(explorer, port=port, run=run)
    _output.say(f"{data} is shown at {server.url}. Ctrl-C stops it.")
    server.until_stopped()
