"""Check which parts of this machine work for t5prep: one finding each, with the command that fixes what does not work.

Beam, TensorFlow and libtpu are checked by their metadata, or in a separate process: importing them may take seconds, or
end the process.
"""

import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pipelines import engines
from t5prep.errors import UsageError
from t5prep.io import bucket_access as buckets
from t5prep.io import cache_folder
from t5prep.io.installation import install_command

# Enough for a tokenizer, a corpus of some gigabytes, and their tokenized blocks.
ENOUGH_BYTES = 10 << 30
# TensorFlow takes 15 seconds to load from a cold disk; a check of a TPU that hangs is ended after this time.
_TIMEOUT_SECONDS = 180
EXTRAS = {
    "train": "training, evaluating and predicting",
    "tpu": "training on a TPU VM",
    "plan": "planning with the TPU compiler",
    "report": "pages with charts",
    "dataflow": "preparing on Dataflow",
}
_DEVICES = """
import json
import tensorflow as tf
kinds = [device.device_type for device in tf.config.list_physical_devices()]
print(json.dumps({"version": tf.__version__, "devices": {kind: kinds.count(kind) for kind in sorted(set(kinds))}}))
"""
_TPU = """
import json
from t5prep.errors import T5prepError
from t5prep.train.runtime import devices, probe
try:
    print(json.dumps(probe.look(devices.open_layout(tpu="local"))))
except T5prepError as error:
    print(json.dumps({"error": str(error)}))
"""


@dataclasses.dataclass(frozen=True)
class Finding:
    """Hold the result of one check.

    `state` is ok, absent (an optional part is missing) or wrong; `mend` is the command that fixes it, or "".
    """

    what: str
    state: str
    seen: str
    mend: str = ""


def examine(
    *, tpu: str | None = None, bucket: str | None = None, zone: str = "", service_account: str = ""
) -> Iterator[Finding]:
    """Yield the finding of each check. A requested part that does not work is wrong; an optional part may be absent.

    `tpu` is "local" to require a working TPU of this machine. `bucket` is gs://NAME[/prefix], checked for a TPU in
    `zone` and for `service_account`.
    """
    yield from _packages()
    yield _encoder()
    yield from _runners()
    yield from _tensorflow()
    yield from _tpus(tpu)
    yield from _credentials()
    yield from _disk()
    if bucket:
        yield from _bucket(bucket, zone=zone, service_account=service_account)


def healthy(findings: list[Finding]) -> bool:
    """Check whether no finding is wrong; absent parts are allowed."""
    return all(finding.state != "wrong" for finding in findings)


def _packages() -> Iterator[Finding]:
    """Check Python and the required packages against the version bounds in the installed package's metadata."""
    here = platform.python_version()
    try:
        about = importlib.metadata.metadata("t5prep")
    except importlib.metadata.PackageNotFoundError:
        yield Finding("Python", "ok", here)
        seen = "runs from its folder, so which packages it wants is not known"
        yield Finding("t5prep", "absent", seen, install_command())
        return
    wanted = str(about.json.get("requires_python", ">=3.11"))
    fits = SpecifierSet(wanted).contains(here, prereleases=True)
    yield Finding(
        "Python", "ok" if fits else "wrong", f"{here} (wanted: {wanted})", "" if fits else "uv python install 3.11"
    )
    needs = [Requirement(text) for text in about.get_all("Requires-Dist") or []]
    for extra in ("", *EXTRAS):
        own = [need for need in needs if _of(need, extra)]
        if own:
            yield _fitting(extra, own)


def _encoder() -> Finding:
    """Check whether the encoder in C is installed, and gives SentencePiece's ids with the sample's tokenizer."""
    from t5prep.tokens import loading

    slow = loading.load("sample:").slow
    if not slow:
        return Finding("encoder in C", "ok", "gives SentencePiece's ids")
    seen = f"SentencePiece does its work, to the same bytes, more slowly: {slow}"
    return Finding(
        "encoder in C",
        "absent",
        seen,
        f"install a C compiler, then: {install_command(options='--force-reinstall --no-deps')}",
    )


def _of(need: Requirement, extra: str) -> bool:
    """Check whether a requirement belongs to an extra ("": to the base install)."""
    always = need.marker is None or need.marker.evaluate({"extra": ""})
    return always if not extra else not always and need.marker is not None and need.marker.evaluate({"extra": extra})


def _fitting(extra: str, needs: list[Requirement]) -> Finding:
    bad = []
    for need in needs:
        have = _version(need.name)
        if have is None:
            bad.append(f"{need.name} is missing")
        elif not need.specifier.contains(have, prereleases=True):
            bad.append(f"{need.name} {have} is not {need.specifier}")
        elif "gcp" in need.extras and _version("google-apitools") is None:
            bad.append("apache-beam has no Google Cloud in it")
    name = f"extra {extra}" if extra else "packages"
    if not bad:
        purpose = f", for {EXTRAS[extra]}" if extra else ""
        return Finding(name, "ok", f"{len(needs)} packages, all as tested{purpose}")
    mend = install_command(*filter(None, [extra]))
    some = ", ".join(bad[:4]) + (f" and {len(bad) - 4} more" if len(bad) > 4 else "")
    purpose = f" (for {EXTRAS[extra]})" if extra else ""
    return Finding(name, "absent" if extra else "wrong", some + purpose, mend)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _runners() -> Iterator[Finding]:
    yield Finding("runner local", "ok", f"{os.cpu_count()} cores")
    lacks = engines.missing()
    for engine in ("prism", "flink"):
        missing = [lack for lack in lacks if lack.engine == engine]
        name = f"runner {engine}"
        if missing:
            what = " and ".join(lack.what for lack in missing)
            yield Finding(name, "absent", f"{what} not found", missing[0].command)
        else:
            yield Finding(name, "ok", "all it needs is here")


def _tensorflow() -> Iterator[Finding]:
    if _version("tensorflow") is None:
        yield Finding("TensorFlow", "absent", "not installed; preparing does not need it", install_command("train"))
        return
    answer = _asked(_DEVICES)
    if "error" in answer:
        yield Finding(
            "TensorFlow", "wrong", str(answer["error"]), install_command("train", options="--force-reinstall")
        )
        return
    devices = ", ".join(f"{count} {kind}" for kind, count in answer["devices"].items())
    yield Finding("TensorFlow", "ok", f"{answer['version']} sees {devices}")


def _tpus(name: str | None) -> Iterator[Finding]:
    """Check for chips, then the runtime: without a chip, libtpu would ask the network about this machine, and wait."""
    chips = [path for pattern in ("accel*", "vfio/[0-9]*") for path in Path("/dev").glob(pattern)]
    runtime = f"libtpu {_version('libtpu')}" if _version("libtpu") else "no libtpu"
    if name not in (None, "auto", "local"):
        mend = f"gcloud compute tpus tpu-vm ssh {name} --worker=all --command='t5prep doctor --tpu local'"
        yield Finding(f"TPU {name}", "wrong", "a TPU is looked at from its own VM", mend)
        return
    if not chips:
        state = "absent" if name is None else "wrong"
        yield Finding("TPU", state, f"no TPU chip on this machine ({runtime})", "gcloud compute tpus tpu-vm ssh NAME")
        return
    yield Finding("TPU chips", "ok", f"{len(chips)} on this machine")
    if not _version("libtpu"):
        yield Finding("libtpu", "wrong", "not installed", install_command("tpu"))
        return
    answer = _asked(_TPU)
    if "error" in answer:
        yield Finding("TPU", "wrong", str(answer["error"]), "sudo lsof /dev/accel* /dev/vfio/*")
        return
    yield Finding("TPU runtime", "ok", ", ".join(f"{what} {version}" for what, version in answer["versions"].items()))
    memory = f", {answer['memory'] / 2**30:.1f} GiB each" if answer["memory"] else ""
    yield Finding("TPU", "ok", f"{answer['devices']} devices ({answer['kind']}{memory}); a tiny step ran on them")


def _asked(code: str, *arguments: str) -> dict:
    """Run Python code in a separate process; return the JSON object that it prints, or {"error": the reason}."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        ran = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {_TIMEOUT_SECONDS} s"}
    lines = ran.stdout.splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (ValueError, IndexError):
        messages = ran.stderr.strip().splitlines() or [f"it ended with code {ran.returncode}"]
        return {"error": messages[-1][:200]}


def _credentials() -> Iterator[Finding]:
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


def _disk() -> Iterator[Finding]:
    for what, place, mend in (
        ("disk here", Path.cwd(), "du -sh * | sort -h"),
        ("disk of the cache", cache_folder.root(), "t5prep cache clear tokenized"),
    ):
        there = next(path for path in (place, *place.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free
        seen = f"{free / 1e9:,.0f} GB free at {there}"
        yield Finding(what, "ok", seen) if free >= ENOUGH_BYTES else Finding(what, "absent", f"only {seen}", mend)


def _bucket(uri: str, *, zone: str, service_account: str) -> Iterator[Finding]:
    try:
        findings = buckets.check_bucket(uri, zone=zone, service_account=service_account)
    except UsageError as error:
        findings = [buckets.AccessCheck("name", False, str(error))]
    for finding in findings:
        yield Finding(f"bucket: {finding.what}", "ok" if finding.ok else "wrong", finding.seen, finding.mend)
