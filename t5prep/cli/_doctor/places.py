"""Check where credentials are, free disk space, and a bucket."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from t5prep.cli._doctor.finding import Finding
from t5prep.errors import UsageError
from t5prep.io import bucket_access, cache_folder

# Enough for a tokenizer, a corpus of some gigabytes, and their tokenized blocks.
ENOUGH_BYTES = 10 << 30


def credentials() -> Iterator[Finding]:
    """Check where credentials are, without reading them."""
    home = Path.home()
    cloud = Path(os.environ.get("CLOUDSDK_CONFIG") or home / ".config" / "gcloud")
    hub = Path(os.environ.get("HF_HOME") or home / ".cache" / "huggingface")
    kaggle = Path(os.environ.get("KAGGLE_CONFIG_DIR") or home / ".kaggle")
    for what, variables, files, mend in (
        (
            "Google Cloud",
            ("GOOGLE_APPLICATION_CREDENTIALS",),
            (cloud / "application_default_credentials.json",),
            "gcloud auth application-default login",
        ),
        ("Hugging Face", ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"), (hub / "token",), "hf auth login"),
        (
            "Kaggle",
            ("KAGGLE_API_TOKEN", "KAGGLE_KEY"),
            (kaggle / "kaggle.json", kaggle / "access_token"),
            "mv ~/Downloads/kaggle.json ~/.kaggle/",
        ),
    ):
        named = next((name for name in variables if os.environ.get(name)), "")
        if named == "GOOGLE_APPLICATION_CREDENTIALS" and not Path(os.environ[named]).is_file():
            yield Finding(what, "wrong", f"{named} names a file that does not exist", f"unset {named}")
        elif named:
            yield Finding(what, "ok", f"credentials in ${named}")
        elif file := next((path for path in files if path.is_file()), None):
            yield Finding(what, "ok", f"credentials in {file}")
        else:
            yield Finding(what, "absent", "no credentials; only what is public can be read", mend)


def disk() -> Iterator[Finding]:
    """Check for free space here and in the cache."""
    for what, place, mend in (
        ("disk here", Path.cwd(), "du -sh * | sort -h"),
        ("disk of the cache", cache_folder.root(), "t5prep cache clear tokenized"),
    ):
        there = next(path for path in (place, *place.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free
        seen = f"{free / 1e9:,.0f} GB free at {there}"
        yield Finding(what, "ok", seen) if free >= ENOUGH_BYTES else Finding(what, "absent", f"only {seen}", mend)


def bucket(uri: str, *, zone: str, service_account: str) -> Iterator[Finding]:
    """Check whether a TPU in `zone` could read and write a bucket as `service_account`."""
    try:
        findings = bucket_access.check_bucket(uri, zone=zone, service_account=service_account)
    except UsageError as error:
        findings = [bucket_access.AccessCheck("name", False, str(error))]
    for finding in findings:
        yield Finding(f"bucket: {finding.what}", "ok" if finding.ok else "wrong", finding.seen, finding.mend)
