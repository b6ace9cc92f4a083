"""Check this machine for `t5prep doctor`: one finding for each part, with the command that repairs it."""

import concurrent.futures
import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pipelines import engines
from t5prep.errors import NotBuiltError, OutputError, UsageError
from t5prep.io import gcs, store
from t5prep.io.installation import TENSORFLOW_FITS, install_command
from t5prep.io.progress import list_names


@dataclasses.dataclass(frozen=True)
class Finding:
    """Hold the result of one check.

    * what: the part, such as "TensorFlow".
    * state: "ok", "absent" (an optional part is missing) or "wrong".
    * seen: the version, or the problem.
    * fix: the command that repairs the part, or "".
    """

    what: str
    state: str
    seen: str
    fix: str = ""


def healthy(findings: list[Finding]) -> bool:
    """Check that no finding is wrong. Absent parts are allowed."""
    return all(finding.state != "wrong" for finding in findings)


# Extra of setup.py → its purpose, for the findings.
EXTRAS = {
    "train": "training, evaluating and predicting",
    "tpu": "training on a TPU VM",
    "gpu": "training on NVIDIA GPUs",
    "plan": "planning with the TPU compiler",
    "report": "pages with charts",
    "dataflow": "preparing on Dataflow",
}


def packages() -> Iterator[Finding]:
    """Check Python and the required packages against the version bounds in t5prep's installed metadata."""
    python_version = platform.python_version()
    try:
        about = importlib.metadata.metadata("t5prep")
    except importlib.metadata.PackageNotFoundError:
        yield Finding("Python", "ok", python_version)
        details = "runs from its folder, so which packages it wants is not known"
        yield Finding("t5prep", "absent", details, install_command())
        return
    required_python = str(about.json.get("requires_python", ">=3.11"))
    fits = SpecifierSet(required_python).contains(python_version, prereleases=True)
    yield Finding(
        "Python",
        "ok" if fits else "wrong",
        f"{python_version} (wanted: {required_python})",
        "" if fits else "uv python install 3.11",
    )
    needs = [Requirement(text) for text in about.get_all("Requires-Dist") or []]
    for extra in ("", *EXTRAS):
        of_extra = [need for need in needs if _of(need, extra)]
        if of_extra:
            yield _fitting(extra, of_extra)


def encoder() -> Finding:
    """Check whether the C extension is built, and whether its encoder gives SentencePiece's ids with the sample tokenizer."""
    try:
        from t5prep.tokens import loading

        slow = loading.load("sample:").slow
    except NotBuiltError:
        reinstall_command = install_command(options="--force-reinstall --no-deps")
        return Finding("encoder in C", "wrong", "it is not built", f"install a C compiler, then: {reinstall_command}")
    if not slow:
        return Finding("encoder in C", "ok", "gives SentencePiece's ids")
    return Finding(
        "encoder in C",
        "absent",
        f"SentencePiece does its work, to the same bytes, more slowly: {slow}",
        install_command(options="--force-reinstall"),
    )


def _of(need: Requirement, extra: str) -> bool:
    """Check whether the requirement `need` belongs to `extra`, or for "" to the base install."""
    always = need.marker is None or need.marker.evaluate({"extra": ""})
    return always if not extra else not always and need.marker is not None and need.marker.evaluate({"extra": extra})


def _fitting(extra: str, needs: list[Requirement]) -> Finding:
    """Return the finding for the packages `needs` of `extra` ("" is the base install): versions, and parts such as CUDA."""
    bad = []
    for need in needs:
        have = version(need.name)
        if have is None and need.name == "tensorflow-cpu":
            have = version("tensorflow")  # the same package with CUDA works, too
        if have is None:
            bad.append(f"{need.name} is missing")
        elif not need.specifier.contains(have, prereleases=True):
            bad.append(f"{need.name} {have} is not {need.specifier}")
        elif "gcp" in need.extras and version("google-apitools") is None:
            bad.append("apache-beam has no Google Cloud in it")
        elif "cuda12" in need.extras and not _cuda():
            bad.append("jax has no CUDA in it")
    name = f"extra {extra}" if extra else "packages"
    if not bad:
        purpose = f", for {EXTRAS[extra]}" if extra else ""
        return Finding(name, "ok", f"{len(needs)} packages, all as tested{purpose}")
    fix = install_command(*filter(None, [extra]))
    purpose = f" (for {EXTRAS[extra]})" if extra else ""
    return Finding(name, "absent" if extra else "wrong", list_names(bad, most=4) + purpose, fix)


def version(name: str) -> str | None:
    """Return the installed version of the package `name`, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def runners() -> Iterator[Finding]:
    """Check for the programs that each runner of `prepare` needs besides Python packages."""
    yield Finding("runner local", "ok", f"{os.cpu_count()} cores")
    lacks = engines.missing()
    for engine in ("prism", "flink"):
        missing = [lack for lack in lacks if lack.engine == engine]
        name = f"runner {engine}"
        if missing:
            missing_names = " and ".join(lack.name for lack in missing)
            yield Finding(name, "absent", f"{missing_names} not found", missing[0].command)
        else:
            yield Finding(name, "ok", "all it needs is here")


# Importing TensorFlow from a cold disk takes 15 seconds. A check of a TPU that hangs ends after this time.
_TIMEOUT_SECONDS = 180
# These run in processes of their own (`run_python`), because importing TensorFlow or opening a device may crash or hang.
_TENSORFLOW_CODE = """
import json
import tensorflow as tf
from t5prep.errors import T5prepError
kinds = [device.device_type for device in tf.config.list_physical_devices()]
try:
    from t5prep.training.runtime import lowering  # says what a jax lacks
    print(json.dumps({"version": tf.__version__, "devices": {kind: kinds.count(kind) for kind in sorted(set(kinds))}}))
except T5prepError as error:
    print(json.dumps({"error": str(error)}))
"""
TPU_CODE = """
import json
from t5prep.errors import T5prepError
from t5prep.training.runtime import devices, probe
try:
    print(json.dumps(probe.look(devices.open_layout(tpu="local"))))
except T5prepError as error:
    print(json.dumps({"error": str(error)}))
"""


GPU_CODE = TPU_CODE.replace('tpu="local"', "gpus=True")


def tensorflow() -> Iterator[Finding]:
    """Check whether TensorFlow can be imported, which devices it sees, and whether jax has the functions that t5prep calls."""
    versions = {
        name: package_version for name in ("tensorflow", "tensorflow-cpu") if (package_version := version(name))
    }
    if not versions:
        reason, fix = "not installed", install_command("train")
        if not TENSORFLOW_FITS:
            reason, fix = "none exists for this Python", "make train"
        yield Finding("TensorFlow", "absent", f"{reason}; preparing does not need it", fix)
        return
    if len(set(versions.values())) > 1:
        both = " and ".join(f"{name} {package_version}" for name, package_version in versions.items())
        reinstall_command = install_command("train", options="--force-reinstall")
        yield Finding(
            "TensorFlow",
            "wrong",
            f"{both} share their files",
            f"pip uninstall -y {' '.join(versions)}; {reinstall_command}",
        )
        return
    answer = run_python(_TENSORFLOW_CODE)
    if "error" in answer:
        yield Finding(
            "TensorFlow", "wrong", str(answer["error"]), install_command("train", options="--force-reinstall")
        )
        return
    devices = ", ".join(f"{count} {kind}" for kind, count in answer["devices"].items())
    yield Finding("TensorFlow", "ok", f"{answer['version']} sees {devices}")


def tpus(name: str | None) -> Iterator[Finding]:
    """Check for TPU chips, then for a runtime that runs a step on them. `name` is the value of `--tpu`.

    The runtime is tried only if there is a chip: without one, libtpu queries the network about this machine, and waits.
    """
    chips = [path for pattern in ("accel*", "vfio/[0-9]*") for path in Path("/dev").glob(pattern)]
    runtime = f"libtpu {version('libtpu')}" if version("libtpu") else "no libtpu"
    if name not in (None, "auto", "local"):
        fix = f"gcloud compute tpus tpu-vm ssh {name} --worker=all --command='t5prep doctor --tpu local'"
        yield Finding(f"TPU {name}", "wrong", "a TPU is looked at from its own VM", fix)
        return
    if not chips:
        state = "absent" if name is None else "wrong"
        yield Finding("TPU", state, f"no TPU chip on this machine ({runtime})", "gcloud compute tpus tpu-vm ssh NAME")
        return
    yield Finding("TPU chips", "ok", f"{len(chips)} on this machine")
    if not version("libtpu"):
        yield Finding("libtpu", "wrong", "not installed", install_command("tpu"))
        return
    answer = run_python(TPU_CODE)
    if "error" in answer:
        yield Finding("TPU", "wrong", str(answer["error"]), "sudo lsof /dev/accel* /dev/vfio/*")
        return
    yield Finding(
        "TPU runtime", "ok", ", ".join(f"{package} {version}" for package, version in answer["versions"].items())
    )
    memory = f", {answer['memory'] / 2**30:.1f} GiB each" if answer["memory"] else ""
    yield Finding("TPU", "ok", f"{answer['devices']} devices ({answer['kind']}{memory}); a tiny step ran on them")


def gpus() -> Iterator[Finding]:
    """Check for NVIDIA's driver and for a jax with CUDA, then whether a tiny step runs on the GPUs."""
    if not DRIVER.exists():
        yield Finding("GPU", "absent", "no driver of NVIDIA on this machine", "nvidia-smi")
    elif not _cuda():
        yield Finding("GPU", "absent", "NVIDIA's driver is here, and jax is without CUDA", install_command("gpu"))
    elif "error" in (answer := run_python(GPU_CODE)):
        reason = str(answer["error"])
        if "does not compile" in reason:  # the driver works
            yield Finding("GPU", "wrong", f"{reason} Please report it, with what this prints", "t5prep --version")
        else:
            yield Finding("GPU", "wrong", reason, "nvidia-smi")
    else:
        yield Finding("GPU", "ok", f"{answer['devices']} devices ({answer['kind']}); a tiny step ran on them")


DRIVER = Path("/proc/driver/nvidia/version")  # exists if NVIDIA's kernel driver is loaded


def _cuda() -> str | None:
    """Return the version of jax's CUDA plugin, or None if there is none."""
    return version("jax-cuda12-plugin") or version("jax-cuda13-plugin")


def run_python(code: str, *arguments: str) -> dict:
    """Run Python code in a separate process, and return the JSON object in its last line, or `{"error": reason}`."""
    # `-P` and PYTHONPATH: the child imports from the same folders as this process, and not from the current one.
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        ran = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
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


# Free space for a tokenizer, a corpus of some gigabytes, and its tokenized blocks.
ENOUGH_BYTES = 10 << 30


def credentials() -> Iterator[Finding]:
    """Check where credentials for Google Cloud, the Hub and Kaggle are, without reading them."""
    home = Path(os.path.expanduser("~"))  # unlike Path.home(), this raises nothing for a user without a home
    cloud = Path(os.environ.get("CLOUDSDK_CONFIG") or home / ".config" / "gcloud")
    hub = Path(os.environ.get("HF_HOME") or home / ".cache" / "huggingface")
    kaggle = Path(os.environ.get("KAGGLE_CONFIG_DIR") or home / ".kaggle")
    for subject, variables, files, fix in (
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
        variable = next((name for name in variables if os.environ.get(name)), "")
        if variable == "GOOGLE_APPLICATION_CREDENTIALS" and not Path(os.environ[variable]).is_file():
            yield Finding(subject, "wrong", f"{variable} names a file that does not exist", f"unset {variable}")
        elif variable:
            yield Finding(subject, "ok", f"credentials in ${variable}")
        elif file := next((path for path in files if path.is_file()), None):
            yield Finding(subject, "ok", f"credentials in {file}")
        else:
            yield Finding(subject, "absent", "no credentials; only what is public can be read", fix)


def disk() -> Iterator[Finding]:
    """Check the free space of the current folder and of the cache."""
    places = [("disk here", Path.cwd(), "du -sh * | sort -h")]
    try:
        places.append(("disk of the cache", store.root(), "t5prep cache clear tokenized"))
    except UsageError as error:
        yield Finding("disk of the cache", "wrong", str(error), "export T5PREP_CACHE=FOLDER")
    for subject, folder, fix in places:
        existing_path = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(existing_path).free
        details = f"{free / 1e9:,.0f} GB free at {existing_path}"
        yield (
            Finding(subject, "ok", details)
            if free >= ENOUGH_BYTES
            else Finding(subject, "absent", f"only {details}", fix)
        )


def examine(*, tpu: str | None = None, bucket: str | None = None) -> Iterator[Finding]:
    """Yield the findings of all checks.

    `tpu` is "local" to require a working TPU of this machine. `bucket` is a `gs://NAME[/prefix]` to check. A required part
    that does not work is wrong; an optional part may be absent.
    """
    with concurrent.futures.ThreadPoolExecutor(
        1
    ) as executor:  # importing TensorFlow takes longer than all other checks
        loading = executor.submit(lambda: list(tensorflow()))
        yield from packages()
        yield encoder()
        yield from runners()
        yield from loading.result()
    yield from tpus(tpu)
    yield from gpus()
    yield from credentials()
    yield from disk()
    if bucket:
        yield from bucket_findings(bucket)


def bucket_findings(uri: str) -> Iterator[Finding]:
    """Check that objects under `uri`, gs://bucket[/prefix], can be listed, written, read and deleted.

    An object with a random name is written under the prefix, and removed again.
    """
    try:
        bucket, _ = gcs.split(uri)
    except UsageError as error:
        yield Finding("bucket: name", "wrong", str(error))
        return
    uri = uri.rstrip("/")
    probe = f"{uri}/.unfinished-t5prep-doctor-{uuid.uuid4().hex[:12]}"
    try:
        count = len(gcs.objects(uri))
    except OutputError as error:
        create = f"gcloud storage buckets create gs://{bucket} --location=REGION"
        yield Finding("bucket: list", "wrong", str(error), create if error.code == "bucket.not-found" else "")
        return
    yield Finding("bucket: list", "ok", f"{gcs.identity()} sees {count:,} objects under {uri}")
    for operation, outcome, act in (
        ("write", "written", lambda: gcs.write(probe, b"t5prep")),
        ("read", "read back", lambda: gcs.read(probe)),
        ("delete", "removed", lambda: gcs.delete(probe)),
    ):
        try:
            act()
            yield Finding(f"bucket: {operation}", "ok", f"an object can be {outcome}")
        except (OutputError, OSError) as error:
            yield Finding(f"bucket: {operation}", "wrong", str(error))
            if operation == "write":
                break
