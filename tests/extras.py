"""What tests need beyond the installation of `make test`, each by the name in its marker: `@pytest.mark.extra("pandas")`."""

import functools
import importlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import browser
from servers import gcs_emulator

from pipelines import engines
from pipelines.run_options import RUNNERS

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
# The Pythons of environments with other versions of transformers, as `.ci/run` makes them.
TRANSFORMERS = {
    name: ROOT / ".cache" / name / "bin" / "python" for name in ("transformers4.57.6", "transformers5.23.0")
}
# A fixture that needs an extra: each test that asks for it has the marker.
FIXTURES = {
    "emulator": "fake-gcs-server",
    "googleapis": "root",
    "shared_data": "seeds",
    "torch_t5": "torch",
}


def _mounts() -> bool:
    """Whether a process of this user may have a private mount namespace."""
    return os.geteuid() == 0 and not subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode


def _uv() -> bool:
    return bool(shutil.which("uv") or importlib.util.find_spec("uv"))


# Name → whether it is there, and how it comes.
_OTHER_EXTRAS = {
    "chromium": (lambda: browser.program() is not None, "apt-get install chromium"),
    "fake-gcs-server": (lambda: bool(gcs_emulator.installed() or shutil.which("go")), gcs_emulator.INSTALL),
    "libtpu": (lambda: bool(importlib.util.find_spec("libtpu")), "pip install -e '.[plan]'"),
    "root": (_mounts, "a private mount namespace needs root"),
    "seeds": (DATA.is_dir, f"the data of the seeds belongs in {DATA}"),
    **{name: (python.exists, "see .ci/run") for name, python in TRANSFORMERS.items()},
    "uv": (_uv, "pip install uv"),
}


@functools.cache
def what_lacks(name: str) -> str:
    """Return how an extra comes onto this machine, empty where it is there."""
    if name in RUNNERS:
        return next((lacking.command for lacking in engines.missing() if lacking.engine == name), "")
    is_there, advice = _OTHER_EXTRAS.get(name) or (
        lambda: bool(importlib.util.find_spec(name)),
        "pip install -r .ci/extras.txt",
    )
    return "" if is_there() else advice


def optional(name: str) -> ModuleType | None:
    """Return a module whose package is an extra, None where it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name.partition(".")[0]) else None
