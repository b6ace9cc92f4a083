"""Export and upload the best checkpoint of a run, once, or each better one while it trains."""

import math
import tempfile
import time
from pathlib import Path

import tensorflow as tf

from t5prep.errors import OutputError, UsageError
from t5prep.io import gcs, paths
from t5prep.train.log import CURVES, say
from t5prep.train.publish.export import export_hf
from t5prep.train.publish.push import WEIGHTS, push
from t5prep.train.run import checkpoint as checkpoints
from t5prep.train.run import run
from t5prep.train.run.checkpoint import State

# Seconds between two checks of a run that is followed.
INTERVAL = 30.0


def push_best(
    name: str, *, repo: str, private: bool = False, follow: bool = False, logs: bool = False, interval: float = INTERVAL
) -> str:
    """Export and upload a run's best checkpoint, and return the page's address.

    follow: wait for the run to begin, and upload each better checkpoint too, until it has made its last step. The run is
    only read, so neither a slow network nor a failure stops training; a failed upload is tried again at the next check.
    logs: upload the run's TensorBoard logs too, as `runs/`, where the Hub shows them. No device is opened.
    Raises UsageError, OutputError.
    """
    _find(name, interval=interval if follow else 0.0)
    pushed = address = ""
    while True:
        newest = checkpoints.last(name)
        if newest is None and not follow:
            raise UsageError(f"{name} has no checkpoint yet: wait for its first, or add --follow.")
        ended = newest is not None and finished(name, newest[1])  # checked first: the upload below is then the last one
        try:
            best = checkpoints.best(name)[0] if newest else pushed
            if best != pushed:
                address, pushed = _push(name, best, repo=repo, private=private, logs=logs), best
        except OutputError as error:
            if not follow:
                raise
            say(f"{error} It is tried again in {interval:.0f} s.")
            ended = False
        if not follow or ended:
            return address
        time.sleep(interval)


def _find(name: str, *, interval: float) -> None:
    """Return when the run is there, which is looked for every `interval` seconds; with 0, once.

    Raises UsageError if there is none, or OutputError if its bucket cannot be read: TensorFlow would wait for minutes
    without a word.
    """
    if gcs.is_gs(name):
        gcs.objects(checkpoints.folder(name))
        return  # a run in a bucket is followed from before its first checkpoint
    waiting = False
    while not (Path(name) / run.SETTINGS).is_file():
        if not interval:
            raise UsageError(f"{name} has no {run.SETTINGS}, so it is not a run.{paths.mistyped(name)}")
        if any((Path(name) / file).is_file() for file in WEIGHTS):
            raise UsageError(f"{name} is an exported model, and --follow is for a run: leave --follow out.")
        if not waiting:
            say(f"{name} is not there yet: waiting for the run to begin.")
        waiting = True
        time.sleep(interval)


def finished(name: str, state: State) -> bool:
    """Check whether a run has made its last step, or was stopped early because its metric did not improve."""
    settings = state.config
    steps = int(settings["steps"])
    if not steps:
        records = sum(made.splits[settings["split"]].records for made in run.manifests_of_run(name))
        steps = math.ceil(float(settings["epochs"]) * -(-records // int(settings["batch"])))
    return state.step >= steps or 0 < int(settings["patience"]) <= state.stale


def _push(name: str, best: str, *, repo: str, private: bool, logs: bool) -> str:
    step = Path(best).name.lstrip("0") or "0"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / repo.rpartition("/")[2]
        export_hf(name, out=str(out), which=step)
        if logs:
            _copy_logs(name, out / "runs")
        address = push(str(out), repo=repo, private=private, message=f"Step {step}, exported by t5prep")
    say(f"Step {step} of {name} is at {address}")
    return address


def _copy_logs(name: str, out: Path) -> None:
    """Copy what a run has logged for TensorBoard so far. Raises OutputError."""
    try:
        events = sorted(tf.io.gfile.glob(f"{name.rstrip('/')}/{CURVES}/events.out.tfevents.*"))
        out.mkdir()
        for path in events:
            tf.io.gfile.copy(path, str(out / Path(path).name))
    except (OSError, tf.errors.OpError) as error:
        raise OutputError(f"The TensorBoard logs of {name} cannot be read ({error}).") from error
    if not events:
        say(f"{name} has no TensorBoard logs, so none are pushed.")
