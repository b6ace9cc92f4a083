"""Push checkpoints of a run to the Hub: the best one on request, or each one while the run trains."""

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
from t5prep.training.run import checkpoints, run


def push_best(name: str, *, repo: str, private: bool = False, logs: bool = False) -> str:
    """Export and push a run's best checkpoint, and return the address of its page. Raises UsageError, OutputError.

    logs: push the run's TensorBoard logs too, as `runs/`, where the Hub shows them. No device is opened.
    """
    if gcs.is_gs(name):
        gcs.check_tensorflow_reaches(name)
        # This fails at once if the bucket cannot be read, but TensorFlow retries for minutes.
        gcs.objects(checkpoints.folder(name))
    elif not (Path(name) / run.SETTINGS).is_file():
        raise UsageError(
            f"{name} has no {run.SETTINGS}, so it is not a run.{paths.mistyped(name)}", code="run.foreign-folder"
        )
    if checkpoints.last(name) is None:
        raise UsageError(f"{name} has no checkpoint yet. Wait for its first checkpoint.", code="run.no-checkpoint")
    return _push(name, checkpoints.best(name)[1].step, repo=repo, private=private, logs=logs)


class CheckpointPushes:
    """Push each checkpoint of a run, with its logs, as one commit, in the background and in order.

    A context manager, whose end waits for the last push. Neither a slow network nor a failure stops the training: a failed push
    prints a line, and the next one has newer weights. The constructor raises UsageError or OutputError if the repository cannot be
    written, so that no step is trained in vain.
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
        """Wait for all pushes; if training failed, cancel those that have not begun and wait for the current one."""
        for future in self._pending.values():
            if error is None or not future.cancel():
                future.result()

    def begin(self, step: int, written: concurrent.futures.Future[str] | None) -> None:
        """Push the checkpoint of `step` in the background, as soon as the future `written` is done (None: it is written)."""
        self._pending[step] = self._api.run_as_future(self._run, step, written)

    def finish(self, step: int) -> None:
        """Wait for all pushes, and push the checkpoint of the last `step` once more if it failed.

        If that fails too, print the command to push it later.
        """
        for future in self._pending.values():
            future.result()
        if self._last != (step, True) and not self._run(step, None):
            say(f"Push the run later: t5prep push --model {self._name} --repo {self._repo} --logs")

    def waiting(self) -> Collection[int]:
        """Return the steps whose push has not ended, so that their checkpoints must not be removed."""
        return [step for step, future in list(self._pending.items()) if not future.done()]

    def _run(self, step: int, written: concurrent.futures.Future[str] | None) -> bool:
        """Push the checkpoint of `step` after the future `written`; return whether it arrived."""
        arrived = False
        try:
            if written is None or written.exception() is None:
                address = _push(self._name, step, repo=self._repo, private=False, logs=True)
                say(f"Pushed step {step:,}: {address}")
                arrived = True
        except Exception as error:  # neither a network nor the Hub's library is a reason to end a training
            words = str(error).strip().partition("\n")[0][:300]
            say(
                f"Step {step:,} was not pushed: {words if isinstance(error, T5prepError) else f'{type(error).__name__}: {words}'}"
            )
        self._last = step, arrived
        return arrived


def _push(name: str, step: int, *, repo: str, private: bool, logs: bool) -> str:
    """Export the checkpoint of `step` to a temporary folder, push it, and return the address of its page."""
    with atomic_files.temporary_folder() as folder:
        out = Path(folder) / repo.rpartition("/")[2]
        export_hf(name, out=str(out), options=ExportOptions(checkpoint=str(step)))
        if logs:
            _copy_logs(name, out / "runs")
        return push(str(out), repo=repo, private=private, message=f"Step {step}, exported by t5prep")


def _copy_logs(name: str, out: Path) -> None:
    """Copy the TensorBoard files of the run `name` to `out`. Raises OutputError."""
    try:
        events = sorted(tf.io.gfile.glob(f"{name.rstrip('/')}/{CURVES}/events.out.tfevents.*"))
        out.mkdir()
        for path in filter(_has_points, events):  # a finished run that is started again writes an empty file
            tf.io.gfile.copy(path, str(out / Path(path).name))
    except (OSError, tf.errors.OpError) as error:
        raise OutputError(
            f"The TensorBoard logs of {name} cannot be read ({error}).", code="run.unreadable-logs"
        ) from error
    if not events:
        say(f"{name} has no TensorBoard logs, so none are pushed.")


def _has_points(path: str) -> bool:
    """Check whether a TensorBoard file holds more than its first record, the version."""
    records = tf.data.TFRecordDataset(path).as_numpy_iterator()
    return len(list(itertools.islice(records, 2))) > 1
