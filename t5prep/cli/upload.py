"""Define `t5prep upload`, which uploads a prepared dataset to a bucket."""

import dataclasses
import shlex

import click

from t5prep.cli import _output, _progress
from t5prep.io import byte_sizes


@click.command("upload")
@click.argument("data")
@click.argument("to", metavar="gs://BUCKET/PREFIX")
@click.option("--workers", type=click.IntRange(1, 64), default=8, show_default=True, help="Files sent side by side.")
@click.option("--delete-stale", is_flag=True, help="Remove shards under the prefix that the manifest does not name.")
@click.option("--overwrite", is_flag=True, help="Replace another dataset that is there.")
@_output.as_json
def command(data: str, to: str, workers: int, delete_stale: bool, overwrite: bool, as_json: bool) -> None:
    """Upload DATA to a bucket: verified first, checked end to end, the manifest last.

    Run it again after an interruption: it goes on where it stood, and what is there already is not sent twice.

    \b
    Example:
      t5prep upload data/sample gs://my-bucket/sample
    """
    from t5prep.dataset.upload import upload

    with _progress.Line("uploading") as line:
        done = upload(
            data,
            to,
            workers=workers,
            delete_stale=delete_stale,
            overwrite=overwrite,
            started=line.started,
            progress=line.progress,
        )
    if as_json:
        _output.print_json(dataclasses.asdict(done))
        return
    click.echo(
        f"{done.uri}: {len(done.sent)} objects sent ({byte_sizes.text(done.bytes)}), {len(done.skipped)} there already, "
        f"digest {done.digest[:12]}…"
    )
    if done.deleted:
        click.echo(f"  removed       {len(done.deleted)} shards that the manifest does not name")
    if done.stale:
        _output.say(
            f"  warning       {len(done.stale)} shards there are not this dataset's ({done.stale[0]}). "
            "Remove them: --delete-stale"
        )
    click.echo(f"next: t5prep verify {shlex.quote(done.uri)}")
