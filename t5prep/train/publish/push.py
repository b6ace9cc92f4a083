"""Upload an exported model, or the best checkpoint of a run as it grows, to the Hugging Face Hub, with the user's own login."""

import math
import tempfile
import time
from pathlib import Path

from t5prep.errors import OutputError, UsageError
from t5prep.io import gcs, paths, uploads
from t5prep.train.log import say
from t5prep.train.publish.export import export_hf
from t5prep.train.run import checkpoint as checkpoints
from t5prep.train.run import run
from t5prep.train.run.checkpoint import State


def push(directory: str, *, repo: str, private: bool = False, message: str = "Model exported by t5prep") -> str:
    """Upload an exported directory to the Hugging Face Hub, and return the page's address.

    Raises UsageError, OutputError.
    """
    if not any((Path(directory) / name).is_file() for name in ("model.safetensors", "adapter_model.safetensors")):
        raise UsageError(
            f"{directory} is not an exported model (it has no model.safetensors). Export a run into a folder of its own, and push "
            "that: t5prep export --model RUN --out FOLDER"
        )
    return uploads.upload_to_hub(directory, repo=repo, kind="model", private=private, message=message)


# Seconds between two checks of a run that is followed.
INTERVAL = 30.0


def push_best(name: str, *, repo: str, private: bool = False, follow: bool = False, interval: float = INTERVAL) -> str:
    """Export and upload a run's best checkpoint, and return the page's address.

    follow: upload each better checkpoint too, until the run has made its last step. The run is only read, so neither a
    slow network nor a failure stops training; a failed upload is tried again at the next check.
    Raises UsageError, OutputError.
    """
    _check_place(name)
    pushed = address = ""
    while True:
        newest = checkpoints.last(name)
        if newest is None and not follow:
            raise UsageError(f"{name} has no checkpoint yet: wait for its first, or add --follow.")
        ended = newest is not None and finished(name, newest[1])  # checked first: the upload below is then the last one
        try:
            best = checkpoints.best(name)[0] if newest else pushed
            if best != pushed:
                address, pushed = _push(name, best, repo=repo, private=private), best
        except OutputError as error:
            if not follow:
                raise
            say(f"{error} It is tried again in {interval:.0f} s.")
            ended = False
        if not follow or ended:
            return address
        time.sleep(interval)


def _check_place(name: str) -> None:
    """Raise UsageError or OutputError where a run cannot be: TensorFlow would wait for minutes without a word."""
    if gcs.is_gs(name):
        gcs.objects(checkpoints.folder(name))
    elif not (Path(name) / run.SETTINGS).is_file():
        raise UsageError(f"{name} has no {run.SETTINGS}, so it is not a run.{paths.mistyped(name)}")


def finished(name: str, state: State) -> bool:
    """Check whether a run has made its last step, or was stopped early because its metric did not improve."""
    settings = state.config
    steps = int(settings["steps"])
    if not steps:
        records = sum(made.splits[settings["split"]].records for made in run.manifests_of_run(name))
        steps = math.ceil(float(settings["epochs"]) * -(-records // int(settings["batch"])))
    return state.step >= steps or 0 < int(settings["patience"]) <= state.stale


def _push(name: str, best: str, *, repo: str, private: bool) -> str:
    step = Path(best).name.lstrip("0") or "0"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / repo.rpartition("/")[2]
        export_hf(name, out=str(out), which=step)
        address = push(str(out), repo=repo, private=private, message=f"Step {step}, exported by t5prep")
    say(f"Step {step} of {name} is at {address}")
    return address
