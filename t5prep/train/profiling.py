"""Record a trace of some training steps, for TensorBoard's profiler: RUN/tensorboard/plugins/profile/TIME/."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import tensorflow as tf

from t5prep.errors import OutputError
from t5prep.train.log import say

WARM = 3  # steps before the first one that is recorded: they fill the queues between host and devices


class StepProfile:
    """Record `steps` steps of a run that begins after step `first`, and write them once; 0 records nothing."""

    def __init__(self, run: str, *, steps: int, first: int) -> None:
        self._place = f"{run.rstrip('/')}/tensorboard"
        self._begin, self._end = (first + WARM, first + WARM + steps) if steps else (-1, -1)
        self._folder = ""  # of the trace that is being recorded

    def step(self, number: int, variables: Any) -> None:
        """Begin or end the trace after step `number` was started, whose results are `variables`."""
        if number == self._begin:
            jax.block_until_ready(variables)
            self._folder = tempfile.mkdtemp(prefix="t5prep-profile-")
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # it ends the process where other threads run Python, as the input does
            jax.profiler.start_trace(self._folder, profiler_options=options)
        if number == self._end:
            self.finish(variables)

    def finish(self, variables: Any) -> None:
        """Write the trace, if one is being recorded. Raises OutputError."""
        if not self._folder:
            return
        jax.block_until_ready(variables)
        jax.profiler.stop_trace()
        try:
            _copy(Path(self._folder), self._place)
        except (OSError, tf.errors.OpError) as error:
            raise OutputError(f"The profile cannot be written to {self._place} ({error}).") from error
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""
        say(f"The profile is written. See it: tensorboard --logdir {self._place} (it needs tensorboard-plugin-profile)")


def _copy(folder: Path, place: str) -> None:
    """Copy all files of a folder to a place that may be on gs://."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            target = f"{place}/{path.relative_to(folder).as_posix()}"
            tf.io.gfile.makedirs(target.rpartition("/")[0])
            tf.io.gfile.copy(str(path), target, overwrite=True)
