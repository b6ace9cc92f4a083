"""Push checkpoints of a run to the Hub: the best one when asked, or each one while the run trains."""

import concurrent.futures
import itertools
import types
from collections.abc import Collection
from pathlib import Path
from typing import Self

import tensorflow as tf

from t5prep.errors import OutputError, T5prepError, UsageError
from t5prep.io import atomic_files, gcs, paths, uploads
from t5prep.options.models import ExportOptions
from t5prep.training.log import CURVES, say
from t5prep.training.publish.export import export_hf
from t5prep.training.publish.push import push
from t5prep.training.run import checkpoint as checkpoints
from t5prep.training.run import run


def push_best(name: str, *, repo: str, private: bool = False, logs: bool = False) -> str:
    """Export and push a run's best checkpoint, and return the page's address. No device is opened.

    logs: push the run's TensorBoard logs too, as `runs/`, where the Hub shows them.
    Raises UsageError, OutputError.
    """
    if gcs.is_gs(name):
        gcs.check_tensorflow_reaches(name)
        gcs.objects(checkpoints.folder(name))  # of a bucket that cannot be read, TensorFlow would wait for minutes
    elif not (Path(name) / run.SETTINGS).is_file():
        raise UsageError(f"{name} has no {run.SETTINGS}, so it is not a run.{paths.mistyped(name)}")
    if checkpoints.last(name) is None:
        raise UsageError(f"{name} has no checkpoint yet: wait for its first one.")
    return _push(name, checkpoints.best(name)[1].step, repo=repo, private=private, logs=logs)


class CheckpointPushes:
    """Push each checkpoint of a run, with its logs, as one commit, in the background and in order.

    Used as a context: its end waits for the last push. Neither a slow network nor a failure stops the training: a push that
    fails is a sentence, and the next one has the newer weights. Making one raises UsageError or OutputError if the
    repository cannot be written, before any step is trained.
    """

    def __init__(self, name: str, *, repo: str) -> None:
        import huggingface_hub

        self._name, self._repo = name, uploads.create_repository(repo, kind="model").repo_id
        self._api = huggingface_hub.HfApi()
        self._pending: dict[int, concurrent.futures.Future[bool]] = {}
        self._last: tuple[int, bool] | None = None  # step of the newest push, and whether it arrived

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: types.TracebackType | None
    ) -> None:
        """Wait for the pushes, or if training failed, for the one under way."""
        for future in self._pending.values():
            if error is None or not future.cancel():
                future.result()

    def begin(self, step: int, written: concurrent.futures.Future[str] | None) -> None:
        """Begin to push the checkpoint of a step, once it is `written` (None: it is)."""
        self._pending[step] = self._api.run_as_future(self._run, step, written)

    def finish(self, step: int) -> None:
        """Push the last checkpoint, unless it has arrived, and wait for it; say the command if it cannot be pushed."""
        for future in self._pending.values():
            future.result()
        if self._last != (step, True) and not self._run(step, None):
            say(f"Push the run later: t5prep push --model {self._name} --repo {self._repo} --logs")

    def waiting(self) -> Collection[int]:
        """Return the steps whose checkpoints must stay, because their push has not ended."""
        return [step for step, future in list(self._pending.items()) if not future.done()]

    def _run(self, step: int, written: concurrent.futures.Future[str] | None) -> bool:
        """Push one checkpoint; return whether it arrived."""
        arrived = False
        try:
            if written is None or written.exception() is None:
                address = _push(self._name, step, repo=self._repo, private=False, logs=True)
                say(f"Step {step:,} is at {address}")
                arrived = True
        except Exception as error:  # neither a network nor the Hub's library is a reason to end a training
            words = str(error).strip().partition("\n")[0][:300]
            say(
                f"Step {step:,} is not pushed: {words if isinstance(error, T5prepError) else f'{type(error).__name__}: {words}'}"
            )
        self._last = step, arrived
        return arrived


def _push(name: str, step: int, *, repo: str, private: bool, logs: bool) -> str:
    """Export the checkpoint of a step into a folder that is pushed, and return the page's address."""
    with atomic_files.temporary_folder() as folder:
        out = Path(folder) / repo.rpartition("/")[2]
        export_hf(name, out=str(out), options=ExportOptions(checkpoint=str(step)))
        if logs:
            _copy_logs(name, out / "runs")
        return push(str(out), repo=repo, private=private, message=f"Step {step}, exported by t5prep")


def _copy_logs(name: str, out: Path) -> None:
    """Copy what a run has logged for TensorBoard so far. Raises OutputError."""
    try:
        events = sorted(tf.io.gfile.glob(f"{name.rstrip('/')}/{CURVES}/events.out.tfevents.*"))
        out.mkdir()
        for path in filter(_has_points, events):  # a run that had ended and is started again begins an empty file
            tf.io.gfile.copy(path, str(out / Path(path).name))
    except (OSError, tf.errors.OpError) as error:
        raise OutputError(f"The TensorBoard logs of {name} cannot be read ({error}).") from error
    if not events:
        say(f"{name} has no TensorBoard logs, so none are pushed.")


def _has_points(path: str) -> bool:
    """Check whether a file of TensorBoard holds more than its version."""
    records = tf.data.TFRecordDataset(path).as_numpy_iterator()
    return len(list(itertools.islice(records, 2))) > 1
