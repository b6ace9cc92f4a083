"""Check whether a bucket works for training: who may list, read and write there, and whether it is near the TPU."""

import dataclasses
import uuid
from collections.abc import Callable

from t5prep.errors import OutputError
from t5prep.io import gcs

# This role allows all that a training host does with its data and its checkpoints: list, read, write, remove.
_ROLE = "roles/storage.objectUser"
# The location of a multi-regional bucket, and how regions in it begin.
_MULTI = {"US": "us", "EU": "europe", "ASIA": "asia"}


@dataclasses.dataclass(frozen=True)
class AccessCheck:
    """Hold one check's name, whether it passed, what was seen, and the command that fixes it ("" for none)."""

    what: str
    ok: bool
    seen: str
    mend: str = ""


def check_bucket(uri: str, *, zone: str = "", service_account: str = "") -> list[AccessCheck]:
    """Check what this identity may do under `gs://bucket[/prefix]`, and return the findings in the order of the checks.

    `zone` is the TPU's (`us-central2-b`), `service_account` the address that its VM runs as; "" skips their checks. An
    object of a random name is written under the prefix and removed again. Raises UsageError for what is not a place in
    a bucket.
    """
    bucket, _ = gcs.split(uri)
    uri = uri.rstrip("/")
    probe = f"{uri}/.unfinished-t5prep-doctor-{uuid.uuid4().hex[:12]}"
    grant = (
        f"gcloud storage buckets add-iam-policy-binding gs://{bucket} --member={_member(gcs.identity())} --role={_ROLE}"
    )
    findings = [_listed(uri, bucket, grant)]
    if not findings[0].ok:
        return findings
    written = _tried("write", lambda: gcs.write(probe, b"t5prep"), grant)
    findings.append(written)
    if written.ok:
        findings += [
            _tried("read", lambda: gcs.read(probe), grant),
            _tried("delete", lambda: gcs.delete(probe), grant),
        ]
    if zone:
        findings += _region(uri, bucket, zone)
    if service_account:
        findings += _granted(uri, bucket, service_account)
    return findings


def _member(identity: str) -> str:
    if "@" not in identity:
        return "ACCOUNT"
    return f"serviceAccount:{identity}" if identity.endswith(".gserviceaccount.com") else f"user:{identity}"


def _listed(uri: str, bucket: str, grant: str) -> AccessCheck:
    try:
        count = len(gcs.objects(uri))
    except OutputError as error:
        create = f"gcloud storage buckets create gs://{bucket} --location=REGION"
        return AccessCheck("list", False, str(error), create if "There is no bucket" in str(error) else grant)
    return AccessCheck("list", True, f"{gcs.identity()} sees {count:,} objects under {uri}")


def _tried(what: str, act: Callable[[], object], grant: str) -> AccessCheck:
    try:
        act()
    except (OutputError, OSError) as error:
        return AccessCheck(what, False, str(error), grant)
    return AccessCheck(what, True, f"an object can be {_DONE[what]}")


_DONE = {"write": "written", "read": "read back", "delete": "removed"}


def _region(uri: str, bucket: str, zone: str) -> list[AccessCheck]:
    """Check that bucket and TPU share a region: reading across regions is slow and billed by the gigabyte."""
    region = zone.rpartition("-")[0] if zone.count("-") == 2 else zone
    try:
        with gcs.speaking(uri, need="storage.buckets.get"):
            location = str(gcs.client().get_bucket(bucket, timeout=gcs.TIMEOUT_SECONDS).location)
    except (OutputError, OSError) as error:
        look = f"gcloud storage buckets describe gs://{bucket} --format='value(location)'"
        return [AccessCheck("region", False, f"the bucket's region cannot be seen: {error}", look)]
    near = location.lower() == region or region.startswith(_MULTI.get(location, "\0"))
    seen = f"the bucket is in {location}, the TPU in {region}"
    move = f"gcloud storage buckets create gs://{bucket}-{region} --location={region}"
    return [
        AccessCheck(
            "region", near, seen, "" if near else f"{move} && gcloud storage cp -r {uri} gs://{bucket}-{region}"
        )
    ]


def _granted(uri: str, bucket: str, account: str) -> list[AccessCheck]:
    """Check whether the bucket's own policy names the account; a policy of the project cannot be seen from here."""
    mend = (
        f"gcloud storage buckets add-iam-policy-binding gs://{bucket} --member=serviceAccount:{account} --role={_ROLE}"
    )
    try:
        with gcs.speaking(uri, need="storage.buckets.getIamPolicy"):
            policy = gcs.client().bucket(bucket).get_iam_policy(requested_policy_version=3, timeout=gcs.TIMEOUT_SECONDS)
    except (OutputError, OSError) as error:
        return [AccessCheck("service account", False, f"who may use the bucket cannot be seen: {error}", mend)]
    roles = sorted(
        binding["role"]
        for binding in policy.bindings
        if {f"serviceAccount:{account}", "allUsers"} & set(binding["members"])
    )
    enough = [role for role in roles if role in (_ROLE, "roles/storage.objectAdmin", "roles/storage.admin")]
    seen = (
        f"the bucket grants {account} {', '.join(roles) if roles else 'nothing (a role on the project would not show)'}"
    )
    return [AccessCheck("service account", bool(enough), seen, "" if enough else mend)]
