"""Check TensorFlow and the TPU in a separate process: importing them may take seconds, or end the process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from t5prep.cli._doctor.finding import Finding
from t5prep.cli._doctor.packages import version
from t5prep.io.installation import install_command

# TensorFlow takes 15 seconds to load from a cold disk; a check of a TPU that hangs is ended after this time.
_TIMEOUT_SECONDS = 180
_TENSORFLOW_CODE = """
import json
import tensorflow as tf
kinds = [device.device_type for device in tf.config.list_physical_devices()]
print(json.dumps({"version": tf.__version__, "devices": {kind: kinds.count(kind) for kind in sorted(set(kinds))}}))
"""
TPU_CODE = """
import json
from t5prep.errors import T5prepError
from t5prep.train.runtime import devices, probe
try:
    print(json.dumps(probe.look(devices.open_layout(tpu="local"))))
except T5prepError as error:
    print(json.dumps({"error": str(error)}))
"""


def tensorflow() -> Iterator[Finding]:
    """Check whether TensorFlow loads, and which devices it sees."""
    if version("tensorflow") is None:
        yield Finding("TensorFlow", "absent", "not installed; preparing does not need it", install_command("train"))
        return
    answer = asked(_TENSORFLOW_CODE)
    if "error" in answer:
        yield Finding(
            "TensorFlow", "wrong", str(answer["error"]), install_command("train", options="--force-reinstall")
        )
        return
    devices = ", ".join(f"{count} {kind}" for kind, count in answer["devices"].items())
    yield Finding("TensorFlow", "ok", f"{answer['version']} sees {devices}")


def tpus(name: str | None) -> Iterator[Finding]:
    """Check for chips, then the runtime: without a chip, libtpu would ask the network about this machine, and wait."""
    chips = [path for pattern in ("accel*", "vfio/[0-9]*") for path in Path("/dev").glob(pattern)]
    runtime = f"libtpu {version('libtpu')}" if version("libtpu") else "no libtpu"
    if name not in (None, "auto", "local"):
        mend = f"gcloud compute tpus tpu-vm ssh {name} --worker=all --command='t5prep doctor --tpu local'"
        yield Finding(f"TPU {name}", "wrong", "a TPU is looked at from its own VM", mend)
        return
    if not chips:
        state = "absent" if name is None else "wrong"
        yield Finding("TPU", state, f"no TPU chip on this machine ({runtime})", "gcloud compute tpus tpu-vm ssh NAME")
        return
    yield Finding("TPU chips", "ok", f"{len(chips)} on this machine")
    if not version("libtpu"):
        yield Finding("libtpu", "wrong", "not installed", install_command("tpu"))
        return
    answer = asked(TPU_CODE)
    if "error" in answer:
        yield Finding("TPU", "wrong", str(answer["error"]), "sudo lsof /dev/accel* /dev/vfio/*")
        return
    yield Finding("TPU runtime", "ok", ", ".join(f"{what} {version}" for what, version in answer["versions"].items()))
    memory = f", {answer['memory'] / 2**30:.1f} GiB each" if answer["memory"] else ""
    yield Finding("TPU", "ok", f"{answer['devices']} devices ({answer['kind']}{memory}); a tiny step ran on them")


def asked(code: str, *arguments: str) -> dict:
    """Run Python code in a separate process; return the JSON object that it prints, or {"error": the reason}."""
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
