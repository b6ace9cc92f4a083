"""Define the commands on a prepared dataset: `verify`, `inspect`, `table`, `report`, `why`, `explore`, `diff`, `upload`."""

import dataclasses
import functools
import hashlib
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from t5prep.cli import _options, _output
from t5prep.cli._addresses import ADDRESS
from t5prep.io import address_space, byte_sizes
from t5prep.io.progress import Progress, number_of
from t5prep.options.fields import build
from t5prep.options.models import ModelOptions, SourceOptions

if TYPE_CHECKING:
    from t5prep.dataset.diff import Difference


@click.command("verify")
@click.argument("data", type=ADDRESS)
@_output.as_json
def verify_command(data: str, as_json: bool) -> None:
    """Check every shard of DATA against its manifest.

    The check covers sizes, checksums, token ids, and missing or extra files.

    Exit code 0 if all files agree with the manifest, 1 at the first difference.

    \b
    Example:
      t5prep verify data/sample
    """
    from t5prep.dataset.verify import verify

    with Progress("verifying") as line:
        manifest = verify(data, started=line.expect, progress=line.read)
    shards, records = len(manifest.shards), manifest.records
    value = {"ok": True, "digest": manifest.digest, "shards": shards, "records": records}
    counts = f"{number_of(shards, 'shard')}, {number_of(records, 'record')}"
    text = f"{data}: {counts}, all as the manifest says (digest {manifest.digest[:12]}…)"
    _output.show(value, text, as_json=as_json)


_NARROWEST = 20  # columns of `inspect`'s lines, even on a narrower terminal


@click.command("inspect")
@click.argument("data", type=ADDRESS)
@click.option("--split", default="train", show_default=True, help="Split to show.")
@click.option("-n", "count", default=3, show_default=True, type=click.IntRange(min=1), help="Number of records.")
@_options.options(ModelOptions, only=("tokenizer",))
@_output.as_json
def inspect_command(data: str, split: str, count: int, tokenizer: str, as_json: bool) -> None:
    """Show records of DATA: text, tokens, ids and padding.

    \b
    Example:
      t5prep inspect data/sample --split validation -n 1
    """
    from t5prep.dataset import inspect_records
    from t5prep.dataset.prepared import Dataset

    opened = Dataset(data, tokenizer=tokenizer)
    records, target = inspect_records.records(opened, split=split, count=count), opened.manifest.target
    if as_json:
        _output.print_json({"records": [dataclasses.asdict(record) for record in records]})
        return
    width = max(_NARROWEST, shutil.get_terminal_size((100, 24)).columns)
    wrapped = functools.partial(click.wrap_text, width=width - 2, initial_indent="  ", subsequent_indent="  ")
    for record in records:
        title = f"── {record.id} ".ljust(width, "─")  # may be long: a packed record has the ids of all of its examples
        click.echo(_output.colour(title if len(title) <= width else f"{title[: width - 1]}…", bold=True))
        for side, text, ids in (("input", record.inputs, record.input_ids), ("target", record.targets, record.labels)):
            click.echo(_output.colour(f"{side}  {len(ids)} tokens", fg="cyan"))
            for line in text.split("\n"):
                click.echo(wrapped(line))
            if side == "target" and not target.has_tokens:
                if note := target.note(ids):
                    click.echo("    " + _output.colour(note, dim=True))
                continue
            for tokens, numbers in inspect_records.aligned(ids, opened.tokenizer, width=width - 4):
                click.echo("    " + tokens)
                click.echo("    " + _output.colour(numbers, dim=True))
        for answer in record.references:
            click.echo(wrapped(f"reference: {answer}"))


@click.command("table")
@click.argument("data", type=ADDRESS)
@click.argument("out", type=ADDRESS, metavar="OUT.parquet|.csv|.jsonl")
@click.option("--split", "splits", multiple=True, help="Split to write; repeat for several [default: all].")
@click.option("--rejected", is_flag=True, help="Write the rejected rows instead, with reasons and texts.")
@click.option(
    "--predictions",
    type=ADDRESS,
    metavar="FILE",
    help="Add the answers and scores that `t5prep eval --predictions` wrote.",
)
@_options.options(SourceOptions)
@_output.as_json
def table_command(
    data: str,
    out: str,
    splits: tuple[str, ...],
    rejected: bool,
    predictions: str | None,
    as_json: bool,
    **option_values: Any,
) -> None:
    """Write DATA as one table of texts.

    Each record is a row, for DuckDB, pandas, polars, the Hub's viewer or a spreadsheet.

    \b
    Example:
      t5prep table data/sample sample.parquet
    """
    import t5prep
    from t5prep.dataset import manifest, record_table
    from t5prep.errors import UsageError

    made_of, out_path = manifest.load(data).source, Path(out)
    # `t5prep table data/mine mine.csv` must not replace the user's own mine.csv: compare names and contents first.
    if out_path.is_file():
        size, source_path = out_path.stat().st_size, Path(made_of.uri)
        candidate_hashes = {file.sha256 for file in made_of.files if file.bytes == size}
        with out_path.open("rb") as existing_file:
            is_source_copy = (
                candidate_hashes and hashlib.file_digest(existing_file, "sha256").hexdigest() in candidate_hashes
            )
        if is_source_copy or (source_path.exists() and out_path.samefile(source_path)):
            raise UsageError(
                f"{out} is a source file of {data}, so the table must not overwrite it. Name another file.",
                code="output.source-overwrite",
            )
    texts = t5prep.table(
        data,
        splits=splits,
        rejected=rejected,
        predictions=predictions,
        **option_values,
    )
    rows = record_table.write(texts, out)
    _output.show({"out": out, "rows": rows}, f"{out}: {number_of(rows, 'row')}", as_json=as_json)


@click.command("report")
@click.argument("data", type=ADDRESS)
@click.option("--out", type=click.Path(path_type=Path), help="Output file [default: DATA/report.html].")
@_options.options(ModelOptions, only=("tokenizer",))
@click.option(
    "--answers", type=ADDRESS, help="Output of `t5prep eval --predictions` for a run [default: RUN/eval.json]."
)
@_output.as_json
def report_command(data: str, out: Path | None, tokenizer: str, answers: str | None, as_json: bool) -> None:
    """Write an HTML report on DATA, a dataset or a run.

    A dataset's page has lengths, cuts, labels and padding. A run's page has curves and answers. Pages need no network.

    \b
    Example:
      t5prep report data/sample --out report.html
    """
    address_space.check(address_space.CHARTS_BYTES)
    from t5prep import report

    path = report.write(data, out=out or report.default_out(data), tokenizer=tokenizer, answers=answers)
    size = path.stat().st_size
    text = f"{path}: {byte_sizes.text(size)}, open it in any browser"
    _output.show({"out": str(path), "bytes": size}, text, as_json=as_json)


_WIDTH = 100  # of a terminal line
_LONGEST = 2_000  # characters of one text; --json has all


@click.command("why")
@click.argument("id")
@click.option("--data", type=ADDRESS, required=True, help="Prepared dataset.")
@click.option(
    "--run", type=ADDRESS, default="", help="Run trained on the dataset: show the record's steps, loss and answer."
)
@_options.options(SourceOptions)
@_output.as_json
def why_command(id: str, data: str, run: str, as_json: bool, **option_values: object) -> None:
    """Trace one row from the source to its record.

    ID is the id of a record or of a rejected row, or FILE:ROW of the source.

    The trace follows the data flow: source, task, filters, tokens and cut tokens, split, shard, duplicates. For a
    rejected row, it ends at the step that rejected it, with the reason.

    \b
    Example:
      t5prep why 12 --data data/sample
      t5prep why mine.csv:12 --data data/sample --run runs/sample
    """
    from t5prep.report import why

    trace, run_facts = why.trace_row(id, data, build(SourceOptions, option_values), run=run)
    if as_json:
        _output.print_json(vars(trace) | ({"run": run_facts} if run else {}))
        return
    for title, lines in why.format_trace(trace, run_facts):
        for number, line in enumerate(lines):
            label = _output.colour(f"{title:<10}" if not number else " " * 10, bold=True)
            click.echo(label + _wrapped(line))
    for note in trace.notes:
        _output.say(note)


def _wrapped(line: str) -> str:
    """Return a line of a trace, wrapped at _WIDTH and indented below its label; a very long one is cut."""
    line = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}… ({len(line):,} characters; all: --json)"
    if len(line) <= _WIDTH - 10:
        return line
    return click.wrap_text(line, width=_WIDTH - 10, subsequent_indent="  ").replace("\n", "\n" + " " * 10)


@click.command("explore")
@click.argument("data", type=ADDRESS)
@click.option(
    "--run",
    type=ADDRESS,
    default="",
    help="Run trained on the dataset: show its answers (RUN/eval.json) with the records.",
)
@click.option(
    "--predictions", type=ADDRESS, metavar="FILE", help="Output of `t5prep eval --predictions`, if not RUN/eval.json."
)
@click.option("--port", default=8001, show_default=True, type=click.IntRange(0, 65535), help="Port; 0: any free port.")
@_options.options(SourceOptions)
def explore_command(data: str, run: str, predictions: str | None, port: int, **option_values: object) -> None:
    """Search and filter DATA in a browser.

    Records and rejected rows can be searched, filtered and sorted. Each one has a page with its tokens and its trace.
    Only this machine can open the page. The table behind it is cached.

    \b
    Example:
      t5prep explore data/sample
    """
    from t5prep.report.explore import Explorer, Server, answers_of

    with Progress("making the table") as line:
        explorer = Explorer(
            data,
            build(SourceOptions, option_values),
            predictions=answers_of(run, predictions),
            on_progress=lambda rows: line.add(bytes=0, rows=rows),
        )
    server = Server(explorer, port=port, run=run)
    _output.say(f"Serving {data} at {server.url}. Press Ctrl-C to stop.")
    server.until_stopped()


@click.command("diff")
@click.argument("data_a", type=ADDRESS)
@click.argument("data_b", type=ADDRESS)
@_output.as_json
def diff_command(data_a: str, data_b: str, as_json: bool) -> None:
    """Compare the manifests of DATA_A and DATA_B.

    Exit code 0 if everything that decides the records is equal. Exit code 1 if anything differs, or if a manifest cannot
    be read, with a message on stderr.

    To compare records, write both datasets with `t5prep table`, and join the tables by id.

    \b
    Example:
      t5prep diff data/sample gs://my-bucket/sample
    """
    from t5prep.dataset import diff

    difference = diff.diff(data_a, data_b)
    if as_json:
        changes = [change._asdict() for change in difference.manifest]
        _output.print_json({**dataclasses.asdict(difference), "manifest": changes})
    else:
        _tell(difference)
    sys.exit(0 if difference.equal else 1)


def _tell(difference: "Difference") -> None:
    """Print the changed fields, dim if they do not affect records, and the verdict."""
    from t5prep.dataset import diff

    for change in difference.manifest:
        dim = not diff.decides(change)
        a, b = (_short(value) for value in (change.a, change.b))
        click.echo(f"  {change.field:<36} " + _output.colour(f"{a} → {b}", dim=dim))
    verdict = "equal" if difference.equal else "different"
    click.echo(_output.colour(verdict, bold=True))


def _short(value: object) -> str:
    """Return a value as one line of at most 60 characters: "nothing" for None."""
    return "nothing" if value is None else f"{value:,}" if isinstance(value, int) else _output.cut(str(value), 60)


@click.command("upload")
@click.argument("data", type=ADDRESS)
@click.argument("to", type=ADDRESS, metavar="gs://BUCKET/PREFIX")
@click.option("--workers", type=click.IntRange(1, 64), default=8, show_default=True, help="Number of parallel uploads.")
@click.option("--delete-stale", is_flag=True, help="Delete shards under the prefix that the manifest does not list.")
@click.option("--overwrite", is_flag=True, help="Replace a different dataset at the destination.")
@_output.as_json
def upload_command(data: str, to: str, workers: int, delete_stale: bool, overwrite: bool, as_json: bool) -> None:
    """Verify DATA and upload it to a bucket.

    Checksums are compared after the transfer, and the manifest is written last. After an interruption, the same command
    resumes the upload.

    \b
    Example:
      t5prep upload data/sample gs://my-bucket/sample
    """
    from t5prep.dataset.upload import upload

    with Progress("uploading") as line:
        summary = upload(
            data,
            to,
            workers=workers,
            delete_stale=delete_stale,
            overwrite=overwrite,
            started=line.expect,
            progress=line.read,
        )
    if as_json:
        _output.print_json(dataclasses.asdict(summary))
        return
    click.echo(
        f"{summary.uri}: {number_of(len(summary.sent), 'object')} sent ({byte_sizes.text(summary.bytes)}), "
        f"{len(summary.skipped)} there already, digest {summary.digest[:12]}…"
    )
    if summary.deleted:
        click.echo(f"  removed       {number_of(len(summary.deleted), 'shard')} not in the manifest")
    if summary.stale:
        _output.say(
            f"  warning       {summary.uri} also has {number_of(len(summary.stale), 'shard')} of another dataset "
            f"({summary.stale[0]}). To remove them: --delete-stale"
        )
    _output.print_next(f"verify {shlex.quote(summary.uri)}")
