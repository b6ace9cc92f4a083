"""Log a run while it works: metrics.jsonl, TensorBoard, and lines on stderr.

metrics.jsonl holds the loss of single steps, never a mean over a window. A run that was killed and resumed therefore
writes the same numbers as an uninterrupted one. The speed has its own line, at most once in `SELDOM` seconds:

    {"step": 4520, "tokens_per_second": 181234.5, "waiting_for_input": 0.02, "share_of_peak": 0.41, "device": "8 × TPU v5 lite"}

The line covers the steps since the previous line of speed. `share_of_peak` is the FLOPs of the model's matrix products
(`architecture.training_flops`, padding included), divided by the FLOPs that the devices reach with large matrices
(`matrix_peak.measure`). It is absent where no peak was measured.
"""

import json
import sys
import time
from collections.abc import Mapping

import tensorflow as tf

from t5prep.errors import OutputError
from t5prep.io import paths
from t5prep.io.progress import duration
from t5prep.training.run.checkpoints import reason, write_text
from t5prep.training.runtime import hosts

SELDOM = 10.0  # seconds between two lines
CURVES = "tensorboard"  # the folder of a run with the logs for TensorBoard
INPUT_BOUND = 0.2  # share of the time spent waiting for a batch, above which faster devices would not help much


class RunLog:
    """Write the log of one run to the run's directory, from the step where it starts or resumes. Only one host writes."""

    def __init__(
        self,
        run: str,
        *,
        step: int,
        steps: int,
        tokens_per_step: float,
        peak_per_step: float = 0.0,
        tensorboard: bool,
        device: str = "",
        evaluated: str = "",
    ) -> None:
        """Open the log in `run`, and remove the entries that an earlier start of the run logged after `step`.

        Args:
            run: The run's directory, local or gs://.
            step: The step to resume from, or 0.
            steps: The last step of the run.
            tokens_per_step: Mean tokens of a step, without padding.
            peak_per_step: Seconds that the products of a step take at the devices' matrix peak; 0 if that is unknown.
            tensorboard: Whether to write curves for TensorBoard too.
            device: The devices' name in the lines of speed.
            evaluated: Also remove the numbers of `step` itself whose names begin with this prefix. The evaluation of a
                checkpoint that does not contain its result is repeated, so its log would appear twice.
        """
        self._writing = hosts.writes()
        tensorboard = tensorboard and self._writing
        self._path = f"{run.rstrip('/')}/metrics.jsonl"
        self._is_remote, self._is_complete = "://" in run, False
        self._lines = _lines_until(self._path, step=step, evaluated=evaluated)
        self._steps = steps
        self._tokens_per_step, self._peak_per_step, self._device = tokens_per_step, peak_per_step, device
        self._curves = f"{run.rstrip('/')}/{CURVES}"
        self._writer = None
        if tensorboard:
            try:
                keep_points(self._curves, step=step, evaluated=evaluated)
                self._writer = tf.summary.create_file_writer(self._curves)
            except tf.errors.OpError as error:
                self._without_curves(error)
        self._since, self._at = time.monotonic(), step
        self._seconds, self._timed_steps, self._waited = 0.0, 0, 0.0
        self.flush()

    def record(self, step: int, values: Mapping[str, float], *, prefix: str, device: str = "") -> None:
        """Write the values of one step: a line in metrics.jsonl, and a point in each TensorBoard curve.

        `prefix` is put before each name, such as "validation_". On gs:// the line appears at the next `flush`.
        """
        if not self._writing:
            return
        prefixed_values = {f"{prefix}{name}": value for name, value in values.items()}
        line = json.dumps(
            {"step": step, **prefixed_values, **({"device": device} if device else {})}, ensure_ascii=False
        )
        self._lines.append(line)
        if not self._is_remote:
            try:
                with open(self._path, "a", encoding="utf-8") as file:
                    file.write(line + "\n")
            except OSError as error:
                raise OutputError(
                    f"{self._path} cannot be written: {reason(error)}", code="output.unwritable"
                ) from error
        if self._writer:
            try:
                with self._writer.as_default():
                    for name, value in values.items():
                        tf.summary.scalar(f"{prefix}{name}", value, step=step)
            except tf.errors.OpError as error:
                self._without_curves(error)

    def line(self, step: int, *, loss: float, learning_rate: float, waited: float) -> None:
        """Print the step and the speed since the last such line, at most once in `SELDOM` seconds.

        `waited`: the seconds since the previous call in which the devices had no batch to work on.
        """
        seconds, steps = time.monotonic() - self._since, step - self._at
        self.restart(step)
        self._seconds, self._timed_steps, self._waited = (
            self._seconds + seconds,
            self._timed_steps + steps,
            self._waited + waited,
        )
        rate = self._timed_steps / max(self._seconds, 1e-9)
        share = min(self._waited / max(self._seconds, 1e-9), 1.0)
        remaining_time = duration((self._steps - step) / rate) if rate else ""
        if self._seconds < SELDOM and step < self._steps:
            return
        head = f"step {step:,}/{self._steps:,}  loss {loss:.4f}  lr {learning_rate:.2e}"
        speed = {"tokens_per_second": rate * self._tokens_per_step, "waiting_for_input": share}
        of_peak = ""
        if self._peak_per_step:
            speed["share_of_peak"] = rate * self._peak_per_step
            of_peak = f"  {speed['share_of_peak']:.0%} of the matrix peak"
        self.record(step, speed, prefix="", device=self._device)
        bound = "input-bound" if share > INPUT_BOUND else "compute-bound"
        say(
            f"{head}  {rate * self._tokens_per_step:,.0f} tokens/s{of_peak}  {bound} ({share:.0%} waiting for input)  "
            f"{remaining_time} left"
        )
        self._seconds, self._timed_steps, self._waited = 0.0, 0, 0.0

    def restart(self, step: int) -> None:
        """Restart the clock, so that time not spent on training (evaluating, saving) is not counted."""
        self._since, self._at = time.monotonic(), step

    def flush(self) -> None:
        """Write out all buffered entries, in complete lines.

        On a disk, the first call writes the complete metrics.jsonl, and `record` appends each later line at once. An object on
        gs:// cannot be appended to, so there every call writes the complete file.
        """
        if self._writer:
            try:
                self._writer.flush()
            except tf.errors.OpError as error:
                self._without_curves(error)
        if self._writing and (self._is_remote or not self._is_complete):
            write_text(self._path, "".join(line + "\n" for line in self._lines))
            self._is_complete = True

    def _without_curves(self, error: tf.errors.OpError) -> None:
        """Continue without TensorBoard after `error`. metrics.jsonl has the same numbers, so the run need not end."""
        self._writer = None
        say(f"Stopping TensorBoard's curves, because {self._curves} cannot be written: {reason(error)}")


def say(text: str) -> None:
    """Print one line on stderr. In a run of several hosts only the one that writes files prints."""
    if hosts.writes():
        print(text, file=sys.stderr, flush=True)


def keep_points(folder: str, *, step: int, evaluated: str = "") -> None:
    """Remove the points after `step` from the TensorBoard files in `folder`; at step 0 remove the files.

    Points of `step` itself are removed too if their names begin with `evaluated`. A profiler's trace is not touched.
    """
    for path in sorted(tf.io.gfile.glob(f"{folder}/events.out.tfevents.*")):
        records = []
        try:
            for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
                event = tf.compat.v1.Event.FromString(record)
                names = [value.tag for value in event.summary.value]
                is_repeated = evaluated and event.step == step and any(name.startswith(evaluated) for name in names)
                if event.step <= step and not is_repeated:
                    records.append(record)
        except tf.errors.DataLossError:
            pass  # the run was killed while it wrote this file, so the file's last record is incomplete
        if step:
            with tf.io.TFRecordWriter(f"{folder}/unfinished") as writer:
                for record in records:
                    writer.write(record)
            tf.io.gfile.rename(f"{folder}/unfinished", path, overwrite=True)
        else:
            tf.io.gfile.remove(path)


def _lines_until(path: str, *, step: int, evaluated: str) -> list[str]:
    """Return the lines of the metrics.jsonl at `path` up to `step`, without an incomplete last line.

    Lines of `step` itself are left out if one of their names begins with `evaluated` (if it is not ""): see `evaluated` of the
    constructor that calls this.
    """
    if not tf.io.gfile.exists(path):
        return []
    lines = paths.read(path).decode(errors="replace").splitlines()
    earlier_lines = []
    for line in lines:
        try:
            entry = json.loads(line)
            if entry["step"] > step:
                break
            if evaluated and entry["step"] == step and any(name.startswith(evaluated) for name in entry):
                continue
        except (ValueError, TypeError, KeyError, RecursionError):
            break
        earlier_lines.append(line)
    return earlier_lines
