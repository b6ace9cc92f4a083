"""`t5prep verify`."""

import threading

import click

from t5prep.cli import _output


@click.command("verify")
@click.argument("data")
@_output.as_json
def command(data: str, as_json: bool) -> None:
    """Hold every shard of DATA against its manifest: sizes, checksums, none missing, none too many.

    Exit code 0 when all is as the manifest says, 1 with the first difference.

    \b
    Example:
      t5prep verify data/sample
    """
    from t5prep.progress import Progress
    from t5prep.verify import verify

    shown: list[Progress] = []
    lock = threading.Lock()

    def progress(read: int) -> None:
        with lock:
            shown[0].add(bytes=read)

    try:
        made = verify(data, started=lambda total: shown.append(Progress("verifying", total=total)), progress=progress)
    finally:
        for line in shown:
            line.close()
    shards = sum(len(split.shards) for split in made.splits.values())
    records = sum(split.records for split in made.splits.values())
    if as_json:
        _output.print_json({"ok": True, "digest": made.digest, "shards": shards, "records": records})
    else:
        click.echo(
            f"{data}: {shards} shards, {records:,} records, all as the manifest says (digest {made.digest[:12]}…)"
        )
