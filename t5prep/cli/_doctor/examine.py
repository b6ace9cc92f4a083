"""Make all checks in their order."""

from collections.abc import Iterator

from t5prep.cli._doctor import devices, packages, places
from t5prep.cli._doctor.finding import Finding


def examine(
    *, tpu: str | None = None, bucket: str | None = None, zone: str = "", service_account: str = ""
) -> Iterator[Finding]:
    """Yield the finding of each check. A requested part that does not work is wrong; an optional part may be absent.

    `tpu` is "local" to require a working TPU of this machine. `bucket` is gs://NAME[/prefix], checked for a TPU in
    `zone` and for `service_account`.
    """
    yield from packages.packages()
    yield packages.encoder()
    yield from packages.runners()
    yield from devices.tensorflow()
    yield from devices.tpus(tpu)
    yield from places.credentials()
    yield from places.disk()
    if bucket:
        yield from places.bucket(bucket, zone=zone, service_account=service_account)
