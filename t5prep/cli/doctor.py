"""Define `t5prep doctor`, which checks what works on this machine."""

import dataclasses
import sys

import click

from t5prep.cli import _output

_SIGNS = {"ok": ("ok", "green"), "absent": ("–", "yellow"), "wrong": ("wrong", "red")}


@click.command("doctor")
@click.option("--tpu", metavar="local", help="The TPU of this machine must work: one tiny step is trained on it.")
@click.option("--bucket", metavar="gs://...", help="Also list, write, read and remove an object there.")
@click.option("--zone", default="", help="The TPU's zone, to see whether --bucket lies beside it.")
@click.option(
    "--service-account", default="", help="The address that the TPU VM runs as, to see what --bucket grants it."
)
@_output.as_json
def command(tpu: str | None, bucket: str | None, zone: str, service_account: str, as_json: bool) -> None:
    """Check this machine. Each line is ok, absent (–: optional, not installed) or wrong, with the command that mends it.

    Exit code 1 when something is wrong.

    \b
    Example:
      t5prep doctor --bucket gs://my-bucket
    """
    from t5prep.cli._doctor.examine import examine
    from t5prep.cli._doctor.finding import healthy

    findings = []
    for finding in examine(tpu=tpu, bucket=bucket, zone=zone, service_account=service_account):
        findings.append(finding)
        if as_json:
            continue
        sign, colour = _SIGNS[finding.state]
        click.echo(
            _output.colour(f"{sign:<6}", fg=colour, bold=finding.state == "wrong")
            + f"{finding.what:<18} {finding.seen}"
        )
        if finding.mend:
            click.echo(f"{'':<25}→ {finding.mend}")
    well = healthy(findings)
    if as_json:
        _output.print_json({"ok": well, "findings": [dataclasses.asdict(finding) for finding in findings]})
    sys.exit(0 if well else 1)
