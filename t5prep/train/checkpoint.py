"""Checkpoints of a run, local or gs://: whole or not there, the last few and the best, and never another run's.

RUN/checkpoints/00001200/
  state.index, state.data-...   TensorFlow's own checkpoint: weights, optimizer, step
  checkpoint.json               written last, so a directory without it is not a checkpoint: what a restart must know

The position in the data is the step: the reader's order is a pure function of (seed, step), so nothing else is kept.
"""

import dataclasses
import json
import os
import platform
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep import __version__
from t5prep.errors import DatasetError, OutputError, UsageError
from t5prep.io import byte_sizes
from t5prep.train import config as configs

SCHEMA = 1
MARKER = "checkpoint.json"
LOWER_IS_BETTER = frozenset({"loss", "perplexity"})


@dataclasses.dataclass(frozen=True)
class State:
    """What a checkpoint says beside its tensors. `metric` and `value` are those that choose the best."""

    step: int
    config: dict[str, Any]
    data: list[dict[str, Any]]  # {"uri", "task", "digest"} of every dataset
    tokenizer: str  # SHA-256 of the SentencePiece model
    metric: str
    value: float | None = None  # None: saved between evaluations
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    best: float | None = None  # the best value so far
    stale: int = 0  # evaluations since then
    versions: dict[str, str] = dataclasses.field(default_factory=lambda: versions())
    files: dict[str, int] = dataclasses.field(default_factory=dict)  # name → bytes
    schema: int = SCHEMA

    def judge(self, value: float) -> tuple[bool, int]:
        """Whether `value` is the best so far (an equal one is: it is trained longer), and evaluations since a better one."""
        if value != value:
            return False, self.stale + 1
        if self.best is None or value == self.best:
            return True, 0 if self.best is None else self.stale + 1
        better = value < self.best if self.metric in LOWER_IS_BETTER else value > self.best
        return better, 0 if better else self.stale + 1


def versions() -> dict[str, str]:
    """What decides the arithmetic besides the configuration."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"t5prep": __version__, "tensorflow": tf.__version__, "python": python}


def folder(run: str) -> str:
    """Where a run keeps its checkpoints."""
    return f"{run.rstrip('/')}/checkpoints"


def found(run: str) -> list[tuple[str, State]]:
    """Every whole checkpoint of a run, `(path, state)`, oldest first.

    Raises OutputError for one that was cut short or comes from a newer version.
    """
    if not tf.io.gfile.isdir(folder(run)):
        return []
    names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(folder(run)))
    paths = [f"{folder(run)}/{name}" for name in names if name.isdigit()]
    return [(path, _state(path)) for path in paths if tf.io.gfile.exists(f"{path}/{MARKER}")]


def last(run: str) -> tuple[str, State] | None:
    """The newest whole checkpoint, or None."""
    every = found(run)
    return every[-1] if every else None


def best(run: str) -> tuple[str, State]:
    """The checkpoint with the best metric (the latest of equals); the newest where none was evaluated.

    Raises UsageError where the run has no checkpoint.
    """
    every = found(run)
    if not every:
        raise UsageError(
            f"{run} has no checkpoint, so it is not a run, or stopped before its first. Start it again: t5prep train --out {run} ..."
        )
    scored = [(path, state) for path, state in every if state.value is not None and state.value == state.value]
    if not scored:
        return every[-1]
    sign = 1 if scored[0][1].metric in LOWER_IS_BETTER else -1
    return min(scored, key=lambda item: (sign * (item[1].value or 0.0), -item[1].step))


def choose(run: str, *, which: str = "best") -> tuple[str, State]:
    """`best`, `last`, or a step's number. Raises UsageError naming the steps there are."""
    if which == "best":
        return best(run)
    every = found(run)
    if which == "last" and every:
        return every[-1]
    for path, state in every:
        if which.isdigit() and state.step == int(which):
            return path, state
    there = ", ".join(str(state.step) for _, state in every) or "none"
    raise UsageError(f'{run} has no checkpoint "{which}". There are: {there}; also "best" and "last".')


def save(run: str, checkpoint: tf.train.Checkpoint, *, state: State, keep: int) -> str:
    """Write one checkpoint, whole or not at all, then delete those that are neither best nor among the last `keep`.

    Raises OutputError when it cannot be written; what was there before is untouched.
    """
    path = f"{folder(run)}/{state.step:08d}"
    try:
        if tf.io.gfile.exists(path):  # a half of it, from a run that was killed
            remove(path)
        tf.io.gfile.makedirs(path)
        checkpoint.write(f"{path}/state")
        files = {name: tf.io.gfile.stat(f"{path}/{name}").length for name in sorted(tf.io.gfile.listdir(path))}
        for name in files:
            _to_disk(f"{path}/{name}")
        _mark(path, dataclasses.replace(state, files=files))
    except (tf.errors.OpError, OSError) as error:
        raise OutputError(f"The checkpoint {path} cannot be written: {_reason(error)}") from error
    _prune(run, keep=keep)
    return path


def describe(run: str, *, state: State, keep: int) -> None:
    """What a checkpoint that is there says of itself, anew: it has been evaluated. Then delete as `save` does.

    Raises OutputError when it cannot be written.
    """
    path = f"{folder(run)}/{state.step:08d}"
    try:
        _mark(path, dataclasses.replace(state, files=_state(path).files))
    except (tf.errors.OpError, OSError) as error:
        raise OutputError(f"The checkpoint {path} cannot be written: {_reason(error)}") from error
    _prune(run, keep=keep)


def restore(path: str, checkpoint: tf.train.Checkpoint) -> None:
    """Read a checkpoint's tensors into live variables, every one of them. Raises OutputError when they do not fit."""
    try:
        checkpoint.read(f"{path}/state").assert_consumed()
    except (tf.errors.OpError, AssertionError, ValueError) as error:
        raise OutputError(f"The checkpoint {path} does not fit this model: {_reason(error)}") from error


def read_weights(path: str, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The weights alone, of a checkpoint made of `tf.train.Checkpoint(weights=...)`. Raises OutputError."""
    try:
        reader = tf.train.load_checkpoint(f"{path}/state")
        return {name: reader.get_tensor(_key(name)) for name in names}
    except (tf.errors.OpError, ValueError) as error:
        raise OutputError(f"The weights of {path} cannot be read: {_reason(error)}") from error


def has_weight(path: str, name: str) -> bool:
    """Whether a checkpoint holds the weight of that name. Raises OutputError."""
    try:
        return bool(tf.train.load_checkpoint(f"{path}/state").has_tensor(_key(name)))
    except (tf.errors.OpError, ValueError) as error:
        raise OutputError(f"The weights of {path} cannot be read: {_reason(error)}") from error


def check(path: str, state: State, *, config: configs.TrainConfig, data: list[dict[str, Any]], tokenizer: str) -> None:
    """Raise a sentence unless going on from this checkpoint is the same run: configuration, data, versions."""
    start_anew = "start another run from its weights with --model RUN --out NEW"
    different = configs.differing(config, state.config)
    if different:
        said = "; ".join(f"{key} was {was!r} and is now {now!r}" for key, (was, now) in sorted(different.items()))
        raise UsageError(f"{path} belongs to a run with another configuration: {said}. Set it back, or {start_anew}.")
    if [item["digest"] for item in state.data] != [item["digest"] for item in data]:
        was, now = (
            ", ".join(f"{item['uri']} ({item['digest'][:12]}…)" for item in items) for items in (state.data, data)
        )
        raise DatasetError(f"{path} was trained on {was}, which is not {now}. Give the same data, or {start_anew}.")
    if state.tokenizer != tokenizer:
        raise DatasetError(
            f"{path} was trained with the tokenizer {state.tokenizer[:12]}…, the data is made with {tokenizer[:12]}…."
        )
    if state.versions != versions():
        was, now = (
            ", ".join(f"{name} {number}" for name, number in said.items()) for said in (state.versions, versions())
        )
        raise UsageError(f"{path} was written by {was}; this is {now}. Install those versions, or {start_anew}.")


def check_space(run: str, *, size: int, keep: int) -> str:
    """One sentence about the bytes that checkpoints will need. Raises OutputError when they cannot fit on the disk.

    `size` is one checkpoint's; the last `keep` stay, the best, and the one being written.
    """
    need = (keep + 2) * size
    said = f"Checkpoints take {byte_sizes.text(size)} each, {byte_sizes.text(need)} at most "
    said += f"(the last {keep}, the best, one being written)"
    if "://" in run:
        return f"{said}, in {run}."
    here = Path(run).absolute()
    here = next(parent for parent in (here, *here.parents) if parent.exists())
    free = shutil.disk_usage(here).free
    held = sum(sum(state.files.values()) for _, state in found(run))
    if need > free + held:
        raise OutputError(
            f"{said}, but {here} has {byte_sizes.text(free)} free. Free some, choose another --out, or keep fewer: --set keep=1"
        )
    return f"{said}; {byte_sizes.text(free)} are free."


def size_of(variables: Iterable[tf.Variable]) -> int:
    """Bytes that a checkpoint of these variables takes."""
    return sum(int(variable.shape.num_elements() or 0) * variable.dtype.size for variable in variables)


def write_text(path: str, text: str) -> None:
    """A small file that appears whole or not at all, local or gs:// (where objects do so by themselves)."""
    if "://" in path:
        with tf.io.gfile.GFile(path, "w") as file:
            file.write(text)
        return
    draft = f"{path}.part"
    Path(draft).write_text(text, encoding="utf-8")
    _to_disk(draft)
    os.replace(draft, path)
    _to_disk(os.path.dirname(path))


def remove(path: str) -> None:
    """Delete a checkpoint; its marker goes first, so that a half-deleted one is none."""
    if tf.io.gfile.exists(f"{path}/{MARKER}"):
        tf.io.gfile.remove(f"{path}/{MARKER}")
    tf.io.gfile.rmtree(path)


def _mark(path: str, state: State) -> None:
    write_text(f"{path}/{MARKER}", json.dumps(dataclasses.asdict(state), indent=2))


def _prune(run: str, *, keep: int) -> None:
    kept = {path for path, _ in found(run)[-keep:]} | {best(run)[0]}
    for name in tf.io.gfile.listdir(folder(run)):
        old = f"{folder(run)}/{name.rstrip('/')}"
        if old not in kept:
            remove(old)


def _state(path: str) -> State:
    with tf.io.gfile.GFile(f"{path}/{MARKER}", "rb") as file:
        content = file.read()
    try:
        said = dict(json.loads(content))
        schema = said.get("schema")
        state = State(**said) if schema == SCHEMA else None
    except (ValueError, TypeError) as error:
        raise OutputError(f"{path}/{MARKER} is damaged ({error}). Delete {path} and start again.") from error
    if state is None:
        raise OutputError(f"{path} has schema {schema!r}; this t5prep reads {SCHEMA}: pip install -U t5prep")
    for name, size in state.files.items():
        there = tf.io.gfile.stat(f"{path}/{name}").length if tf.io.gfile.exists(f"{path}/{name}") else 0
        if there != size:
            raise OutputError(f"{path}/{name} has {there} bytes and should have {size}. Delete {path} and start again.")
    return state


def _key(weight: str) -> str:
    """Of a weight in TensorFlow's checkpoint, which writes a dot as two."""
    return f"weights/{weight.replace('.', '..')}/.ATTRIBUTES/VARIABLE_VALUE"


def _to_disk(path: str) -> None:
    if "://" in path:
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: Exception) -> str:
    return str(getattr(error, "message", None) or error).splitlines()[0][:300]
