"""Check whether the engines besides this machine's own processes are here, and name the commands that get them."""

import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from t5prep.errors import UsageError, did_you_mean
from t5prep.io import cache_folder, gcs
from t5prep.io.installation import install_command

RUNNERS = ("local", "prism", "flink", "dataflow")
BEAM = "2.77.0"
FLINK = "1.19"
# In a clone; who has installed the package has none, and Beam fetches its own release of Flink's job server.
_SCRIPT = Path(__file__).parents[1] / ".ci" / "engines"
_JAVA = "sudo apt-get install -y default-jre-headless   (or any Java 11 or 17: https://adoptium.net)"


class Missing(NamedTuple):
    """Describe something that an engine needs and that is not here: what it is, what for, and the command that gets it."""

    what: str
    engine: str
    command: str


def folder() -> Path:
    """Return where `.ci/engines` installs: $T5PREP_ENGINES, else `engines` in t5prep's cache folder."""
    return Path(os.environ.get("T5PREP_ENGINES") or cache_folder.root() / "engines")


def prism() -> Path | None:
    """Return the Prism binary, where it is installed; without one Beam fetches its own release."""
    path = folder() / "bin" / "prism"
    return path if path.exists() else None


def flink_job_server() -> Path | None:
    """Return Flink's job server for pipelines, where it is installed; without one Beam fetches its own release."""
    path = folder() / "flink" / "job-server.jar"
    return path if path.exists() else None


def require(name: str, *, arguments: Sequence[str] = (), out: str = "") -> None:
    """Raise UsageError for no engine's name, and where an engine cannot run here or does not take Beam's options."""
    if name not in RUNNERS:
        raise UsageError(f'--runner "{name}": it is one of {", ".join(RUNNERS)}.{did_you_mean(name, RUNNERS)}')
    if name == "local" and arguments:
        raise UsageError(f"{arguments[0]}: what stands after -- is for Beam's runners; --runner local has --workers.")
    if name == "flink" and not shutil.which("java"):
        raise UsageError(f"--runner flink needs Java, and there is none on PATH. Get it: {_JAVA}")
    if name == "dataflow" and not _installed("google.cloud.dataflow"):
        raise UsageError(
            f"--runner dataflow needs the Dataflow client, which is not installed: {install_command('dataflow')}"
        )
    if name == "dataflow" and not gcs.is_gs(out):
        raise UsageError(
            f"--runner dataflow cannot write to {out}, which is on this machine. Give --out gs://BUCKET/NAME"
        )


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def missing() -> list[Missing]:
    """Return what the engines lack on this machine; nothing when all of them can run."""
    lacks = []
    if not prism():
        command = f"GOBIN={folder()}/bin go install github.com/apache/beam/sdks/v2/go/cmd/prism@v{BEAM}"
        go = "" if shutil.which("go") else "sudo apt-get install -y golang-go && "
        lacks.append(Missing("Prism", "prism", go + command))
    if not shutil.which("java"):
        lacks.append(Missing("Java", "flink", _JAVA))
    if not flink_job_server() and _SCRIPT.exists():
        lacks.append(Missing("Flink's job server", "flink", f"bash {_SCRIPT}"))
    if not _installed("google.cloud.dataflow"):
        lacks.append(Missing("the Dataflow client", "dataflow", install_command("dataflow")))
    return lacks
