"""Log a run while it works: metrics.jsonl, TensorBoard, and one line on stderr.

metrics.jsonl holds the loss of single steps, never a mean over a window, so that a run which was killed and resumed
writes the same numbers as one that was not. The speed has its own line, at most once in `SELDOM` seconds, for the steps
since the last such line, with the devices that did them: {"step": 4520, "tokens_per_second": 181234.5,
"waiting_for_input": 0.02, "device": "8 × TPU v5 lite"}.
"""

import json
import sys
import time
from collections.abc import Mapping
from typing import TextIO

import tensorflow as tf

from t5prep.train.checkpoint import write_text
from t5prep.train.runtime import hosts

SELDOM = 10.0  # seconds between two lines
INPUT_BOUND = 0.2  # share of the time spent waiting for a batch, above which faster devices would not help much


class RunLog:
    """Write the log of one run in its directory, from the step where it starts or resumes. One of the hosts writes."""

    def __init__(
        self, run: str, *, step: int, steps: int, tokens_per_step: float, tensorboard: bool, device: str = ""
    ) -> None:
        self._writing = hosts.writes()
        tensorboard = tensorboard and self._writing
        self._path = f"{run.rstrip('/')}/metrics.jsonl"
        self._remote, self._written = "://" in run, False
        self._lines = _lines_until(self._path, step=step)
        self._steps = steps
        self._tokens_per_step, self._device = tokens_per_step, device
        self._writer = tf.summary.create_file_writer(f"{run.rstrip('/')}/tensorboard") if tensorboard else None
        self._since, self._at = time.monotonic(), step
        self._seconds, self._made, self._waited = 0.0, 0, 0.0
        self.flush()

    def record(self, step: int, values: Mapping[str, float], *, prefix: str, device: str = "") -> None:
        """Write the values of one step: a line in metrics.jsonl, a point in each TensorBoard curve."""
        if not self._writing:
            return
        named = {f"{prefix}{name}": value for name, value in values.items()}
        line = json.dumps({"step": step, **named, **({"device": device} if device else {})}, ensure_ascii=False)
        self._lines.append(line)
        if not self._remote:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        if self._writer:
            with self._writer.as_default():
                for name, value in values.items():
                    tf.summary.scalar(f"{prefix}{name}", value, step=step)

    def line(self, step: int, *, loss: float, learning_rate: float, waited: float) -> None:
        """Print the step and the speed since the last such line, at most once in `SELDOM` seconds.

        `waited`: seconds since the last call in which the devices had no batch to work on.
        """
        seconds, steps = time.monotonic() - self._since, step - self._at
        self.restart(step)
        self._seconds, self._made, self._waited = self._seconds + seconds, self._made + steps, self._waited + waited
        if self._seconds < SELDOM and step < self._steps:
            return
        head = f"step {step:,}/{self._steps:,}  loss {loss:.4f}  lr {learning_rate:.2e}"
        rate = self._made / max(self._seconds, 1e-9)
        share = min(self._waited / max(self._seconds, 1e-9), 1.0)
        speed = {"tokens_per_second": rate * self._tokens_per_step, "waiting_for_input": share}
        self.record(step, speed, prefix="", device=self._device)
        bound = "input-bound" if share > INPUT_BOUND else "compute-bound"
        say(
            f"{head}  {rate * self._tokens_per_step:,.0f} tokens/s  {bound} ({share:.0%} waiting for input)  "
            f"{duration((self._steps - step) / rate)} left"
        )
        self._seconds, self._made, self._waited = 0.0, 0, 0.0

    def restart(self, step: int) -> None:
        """Restart the clock, so that time not spent on training (evaluating, saving) is not counted."""
        self._since, self._at = time.monotonic(), step

    def flush(self) -> None:
        """Make all that was recorded so far readable, in complete lines."""
        if self._writer:
            self._writer.flush()
        if self._writing and (self._remote or not self._written):
            write_text(self._path, "".join(line + "\n" for line in self._lines))
            self._written = True


def say(text: str, *, to: TextIO | None = None) -> None:
    """Print one line for people, on stderr; only one of several hosts prints."""
    if hosts.writes():
        print(text, file=to or sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return a duration as text for people.

    >>> duration(42), duration(250), duration(7300)
    ('42 s', '4 min 10 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _lines_until(path: str, *, step: int) -> list[str]:
    """Return the lines of an earlier start up to the restored step, without later ones or an incomplete last one."""
    if not tf.io.gfile.exists(path):
        return []
    with tf.io.gfile.GFile(path, "rb") as file:
        lines = file.read().decode(errors="replace").splitlines()
    kept = []
    for line in lines:
        try:
            if json.loads(line)["step"] > step:
                break
        except (ValueError, TypeError, KeyError):
            break
        kept.append(line)
    return kept
