"""Export and upload the best checkpoint of a run."""

import tempfile
from pathlib import Path

import tensorflow as tf

from t5prep.errors import OutputError, UsageError
from t5prep.io import gcs, paths
from t5prep.train.log import CURVES, say
from t5prep.train.publish.export import export_hf
from t5prep.train.publish.push import push
from t5prep.train.run import checkpoint as checkpoints
from t5prep.train.run import run


def push_best(name: str, *, repo: str, private: bool = False, logs: bool = False) -> str:
    """Export and upload a run's best checkpoint, and return the page's address. No device is opened.

    logs: upload the run's TensorBoard logs too, as `runs/`, where the Hub shows them.
    Raises UsageError, OutputError.
    """
    if gcs.is_gs(name):
        gcs.objects(checkpoints.folder(name))  # of a bucket that cannot be read, TensorFlow would wait for minutes
    elif not (Path(name) / run.SETTINGS).is_file():
        raise UsageError(f"{name} has no {run.SETTINGS}, so it is not a run.{paths.mistyped(name)}")
    if checkpoints.last(name) is None:
        raise UsageError(f"{name} has no checkpoint yet: wait for its first one.")
    step = Path(checkpoints.best(name)[0]).name.lstrip("0") or "0"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / repo.rpartition("/")[2]
        export_hf(name, out=str(out), which=step)
        if logs:
            _copy_logs(name, out / "runs")
        return push(str(out), repo=repo, private=private, message=f"Step {step}, exported by t5prep")


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
