"""Define `t5prep verify`, which checks a prepared dataset against its manifest."""

import click

from t5prep.cli import _output, _progress


@click.command("verify")
@click.argument("data")
@_output.as_json
def command(data: str, as_json: bool) -> None:
    """Check every shard of DATA against its manifest: sizes, checksums, none missing, none too many.

    Exit code 0 when all is as the manifest says, 1 with the first difference.

    \b
    Example:
      t5prep verify data/sample
    """
    from t5prep.dataset.verify import verify

    with _progress.Line("verifying") as line:
        manifest = verify(data, started=line.started, progress=line.progress)
    shards = sum(len(split.shards) for split in manifest.splits.values())
    records = sum(split.records for split in manifest.splits.values())
    if as_json:
        _output.print_json({"ok": True, "digest": manifest.digest, "shards": shards, "records": records})
    else:
        click.echo(
            f"{data}: {shards} shards, {records:,} records, all as the manifest says (digest {manifest.digest[:12]}…)"
        )
