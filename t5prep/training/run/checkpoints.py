"""Write and find the checkpoints of a run, local or gs://. The last few and the best are kept, the others deleted.

RUN/checkpoints/00001200/
  state.index, state.data-...   TensorFlow's checkpoint: trained weights, optimizer, step (`checkpoint_tensors`)
  checkpoint.json               the fields of `State`; written last, so a directory without it is not a checkpoint

The step is also the position in the data, because the order of records is a pure function of (seed, step). A checkpoint of
another run is never overwritten or resumed.
"""

import contextlib
import dataclasses
import errno
import importlib.metadata
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import cattrs
import tensorflow as tf

from t5prep.dataset import manifest_checks
from t5prep.errors import DatasetError, OutputError, UsageError
from t5prep.io import atomic_files, byte_sizes, paths
from t5prep.json_values import JSON, JSONObject, whole_number
from t5prep.training.objectives import lower_is_better
from t5prep.training.runtime import hosts
from t5prep.training.settings import train_config
from t5prep.version import __version__

SCHEMA = 1
MARKER = "checkpoint.json"
TENSORS = "state"  # the prefix of the tensors' file names


@dataclasses.dataclass(frozen=True)
class State:
    """The content of a checkpoint's `checkpoint.json`. `metric` and `value` decide which checkpoint is the best."""

    step: int
    config: dict[str, Any]
    data: list[dict[str, str]]  # {"uri", "task", "digest"} of every dataset
    tokenizer: str  # SHA-256 of the tokenizer
    metric: str
    value: float | None = None  # None: saved between evaluations, or not evaluated yet
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    best: float | None = None  # the best value so far
    stale: int = 0  # evaluations since the best value
    versions: dict[str, str] = dataclasses.field(default_factory=lambda: versions())
    processors: int = (
        0  # usable processors in a run on a CPU, which decide its last bits; 0: unknown, or another device
    )
    files: dict[str, int] = dataclasses.field(default_factory=dict)  # name → size in bytes
    schema: int = SCHEMA
    base: str = ""  # digest of the base of adapters (`adapters.digest`); "": a run without adapters

    def judge(self, value: float) -> tuple[bool, int]:
        """Return whether `value` is better than all before, and the number of evaluations since the best one.

        An equal value is not better, and neither is NaN.
        """
        if value != value:
            return False, self.stale + 1
        if self.best is None:
            return True, 0
        better = value < self.best if lower_is_better(self.metric) else value > self.best
        return better, 0 if better else self.stale + 1


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide the arithmetic of a run. A run resumes only with the same versions."""
    python = ".".join(platform.python_version_tuple()[:2])
    jax = importlib.metadata.version("jax")
    return {"t5prep": __version__, "tensorflow": tf.__version__, "jax": jax, "python": python}


def usable_processors() -> int:
    """Return the number of processors that this process may use. XLA divides sums on a CPU by it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def other_processors(state: State, processors: int) -> str:
    """Return a warning if a run on a CPU began with another number of processors than `processors`, else ""."""
    if 0 in (state.processors, processors) or state.processors == processors:
        return ""
    return (
        f"The run began with {state.processors} processors, but may now use {processors}. Its losses may differ in the last"
        f" bits from those of an uninterrupted run. For identical bits, use {state.processors} processors."
    )


def folder(run: str) -> str:
    """Return the folder of a run's checkpoints."""
    return f"{run.rstrip('/')}/checkpoints"


def list_checkpoints(run: str) -> list[tuple[str, State]]:
    """Return `(path, state)` of every complete checkpoint of a run, oldest first, without damaged ones."""
    return [(path, state) for path, state in _all(run) if isinstance(state, State)]


def _all(run: str) -> list[tuple[str, State | OutputError]]:
    """Return `(path, state)` of every checkpoint of a run, oldest first.

    If a checkpoint is damaged, or was written by a newer version, an OutputError replaces its state.
    """
    every: list[tuple[str, State | OutputError]] = []
    for path in _places(run):
        if not tf.io.gfile.exists(f"{path}/{MARKER}"):
            continue
        try:
            every.append((path, _state(path)))
        except OutputError as error:
            every.append((path, error))
    return every


def _places(run: str) -> list[str]:
    """Return the paths of a run's checkpoint folders, oldest first, complete or not. Other files of the user are ignored."""
    if not tf.io.gfile.isdir(folder(run)):
        return []
    names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(folder(run)))
    return [f"{folder(run)}/{name}" for name in names if whole_number(name) is not None]


def last(run: str) -> tuple[str, State] | None:
    """Return path and state of the newest checkpoint, or None. Raises OutputError if it is damaged."""
    every = _all(run)
    if not every:
        return None
    path, state = every[-1]
    if isinstance(state, OutputError):
        raise state
    return path, state


def best(run: str) -> tuple[str, State]:
    """Return path and state of the checkpoint with the best metric; the newest if none was evaluated.

    Of equal values the earliest wins, as in `State.judge`. Only checkpoints with the evaluation settings of the newest one are
    compared. Raises UsageError if the run has no checkpoint, and OutputError if the best one or all are damaged; other damaged
    checkpoints are ignored.
    """
    every = list_checkpoints(run)
    damaged = [state for _, state in _all(run) if isinstance(state, OutputError)]
    if damaged and not every:
        raise damaged[-1]
    if not every:
        raise UsageError(
            f"{run} has no checkpoint: it is not a run, or it stopped before its first checkpoint. Start "
            f"the run again: t5prep train --out {run} ...",
            code="run.no-checkpoint",
        )
    score_settings = _of_scores(every[-1][1].config)
    scored = [
        (path, state)
        for path, state in every
        if state.value is not None and state.value == state.value and _of_scores(state.config) == score_settings
    ]
    if not scored:
        return every[-1]
    sign = 1 if lower_is_better(scored[0][1].metric) else -1
    path, state = min(scored, key=lambda item: (sign * (item[1].value or 0.0), item[1].step))
    newest = scored[-1][1].best  # the run's best value when the newest evaluated checkpoint was written
    if damaged and newest is not None and sign * newest < sign * (state.value or 0.0):
        raise damaged[-1]
    return path, state


def _of_scores(config: JSONObject) -> list[JSON]:
    """Return the values of the settings that decide the numbers of an evaluation. Only equal ones can be compared."""
    return [config.get(key) for key in train_config.OF_SCORES]


def judged_anew(state: State, config: train_config.TrainConfig) -> str:
    """Return a message if a resumed run has other evaluation settings than its checkpoint `state`, else "".

    The scores cannot be compared then, so the caller resets the best value and the patience.
    """
    now = dataclasses.asdict(config)
    changed = [key for key in train_config.OF_SCORES if state.config.get(key) != now[key]]
    if not changed or (state.best is None and not state.metrics):
        return ""
    changes = ", ".join(f"{key}: {state.config.get(key)} → {now[key]}" for key in changed)
    return f"Evaluation settings changed ({changes}). Resetting the best checkpoint and the patience counter."


def choose(run: str, *, checkpoint: str = "best") -> tuple[str, State]:
    """Return path and state of a checkpoint: "best", "last", or a step's number. Raises a UsageError that lists the steps."""
    if checkpoint == "best":
        return best(run)
    if checkpoint == "last" and (newest := last(run)):
        return newest
    every, step = list_checkpoints(run), whole_number(checkpoint)
    for path, candidate in _all(run):
        if step is not None and int(path.rpartition("/")[2]) == step:
            if isinstance(candidate, OutputError):
                raise candidate
            return path, candidate
    steps = ", ".join(str(state.step) for _, state in every) or "none"
    raise UsageError(
        f'{run} has no checkpoint "{checkpoint:.60}". Choose "best", "last" or one of these steps: {steps}.',
        code="checkpoint.unknown",
    )


def save(
    run: str, write: Callable[[str], None], *, state: State, keep: int, in_use: Callable[[], Collection[int]] = tuple
) -> str:
    """Write one checkpoint atomically, delete old ones (`prune`), and return its path.

    Every host calls this function. `write(prefix)` writes the tensors of this host to files with the prefix. The first host
    makes the directory before, and writes `checkpoint.json` at the end. `in_use` returns the steps of checkpoints that must not
    be deleted. Raises OutputError if it cannot be written; earlier checkpoints are then untouched.
    """
    path = f"{folder(run)}/{state.step:08d}"
    try:
        if hosts.writes():
            if tf.io.gfile.exists(path):  # an incomplete checkpoint of a killed run
                remove(path)
            tf.io.gfile.makedirs(path)
        hosts.wait(f"{path} begun")
        write(f"{path}/{TENSORS}")
        if hosts.writes():
            files = {name: tf.io.gfile.stat(f"{path}/{name}").length for name in sorted(tf.io.gfile.listdir(path))}
            for name in files:
                _to_disk(f"{path}/{name}")
            _mark(path, dataclasses.replace(state, files=files))
            prune(run, keep=keep, in_use=in_use)
        hosts.wait(f"{path} written")
    except (tf.errors.OpError, OSError) as error:
        with contextlib.suppress(tf.errors.OpError, OSError):  # an incomplete checkpoint would only fill the disk
            if hosts.writes() and tf.io.gfile.isdir(path):
                remove(path)
        raise OutputError(
            f"The checkpoint {path} cannot be written: {reason(error)}", code="output.unwritable"
        ) from error
    return path


def describe(run: str, *, state: State, keep: int, in_use: Callable[[], Collection[int]] = tuple) -> None:
    """Write the `checkpoint.json` of an evaluated checkpoint again, with `state`, and delete old checkpoints as `save` does.

    Raises OutputError if it cannot be written.
    """
    path = f"{folder(run)}/{state.step:08d}"
    try:
        if hosts.writes():
            _mark(path, dataclasses.replace(state, files=_state(path).files))
            prune(run, keep=keep, in_use=in_use)
        hosts.wait(f"{path} described")
    except (tf.errors.OpError, OSError) as error:
        raise OutputError(
            f"The checkpoint {path} cannot be written: {reason(error)}", code="output.unwritable"
        ) from error


def check(
    path: str,
    state: State,
    *,
    config: train_config.TrainConfig,
    data: list[dict[str, str]],
    tokenizer: str,
    base: str = "",
) -> None:
    """Raise UsageError or DatasetError unless the checkpoint `state` at `path` can be resumed.

    Settings (except those that may change), data, tokenizer, base of adapters, and versions must be equal.
    """
    advice = start_anew(config)
    different = train_config.differing(config, state.config)
    if different:
        differences = "; ".join(
            f"{key} was {was!r} and is now {now!r}" for key, (was, now) in sorted(different.items())
        )
        raise UsageError(
            f"{path} was trained with another configuration: {differences}. Restore the earlier values, or {advice}.",
            code="checkpoint.settings-mismatch",
        )
    if [item["digest"] for item in state.data] != [item["digest"] for item in data]:
        was, now = (
            ", ".join(f"{item['uri']} ({item['digest'][:12]}…)" for item in items) for items in (state.data, data)
        )
        raise DatasetError(
            f"{path} was trained on {was}, but the data is now {now}. Use the earlier data, or {advice}.",
            code="checkpoint.dataset-mismatch",
        )
    if state.tokenizer != tokenizer:
        raise DatasetError(
            f"{path} was trained with the tokenizer {state.tokenizer[:12]}…, but the data was prepared "
            f"with {tokenizer[:12]}…. Use data with the tokenizer of the run.",
            code="checkpoint.tokenizer-mismatch",
        )
    if state.base != base:
        raise UsageError(
            f"The adapters in {path} were trained with other weights than {config.model} has now. Restore "
            f"those weights, or {advice}.",
            code="checkpoint.base-mismatch",
        )
    if state.versions != versions():
        was, now = (
            ", ".join(f"{name} {number}" for name, number in packages.items())
            for packages in (state.versions, versions())
        )
        raise UsageError(
            f"{path} was written by {was}, but {now} is installed. Install the earlier versions, or {advice}.",
            code="checkpoint.version-mismatch",
        )


def start_anew(config: train_config.TrainConfig) -> str:
    """Return advice, as a part of a sentence, on training a run's weights further with other settings."""
    weights = " --set weights=pretrained" if config.weights == "random" else ""
    return f"start another run from its weights with --model RUN{weights} --out NEW"


def check_space(run: str, *, size: int, keep: int) -> str:
    """Return a message about the bytes that checkpoints will need. Raises OutputError if the disk is too small.

    `size` is the size of one checkpoint. The last `keep`, the best, and the one being written exist at the same time. Incomplete
    checkpoints of a killed run are removed first.
    """
    need = (keep + 2) * size
    message = f"Checkpoints take {byte_sizes.text(size)} each, {byte_sizes.text(need)} at most "
    message += f"(the last {keep}, the best, one being written)"
    if "://" in run:
        return f"{message}, in {run}."
    if hosts.writes():
        remove_incomplete(run)
    existing_path = Path(run).absolute()
    existing_path = next(parent for parent in (existing_path, *existing_path.parents) if parent.exists())
    free = shutil.disk_usage(existing_path).free
    checkpoint_bytes = sum(sum(state.files.values()) for _, state in list_checkpoints(run))
    if need > free + checkpoint_bytes:
        fewer = ", or keep fewer checkpoints: --set keep=1" if keep > 1 else ""
        raise OutputError(
            f"{message}, but {existing_path} has only {byte_sizes.text(free)} free. Free some space, or "
            f"choose another --out{fewer}",
            code="output.no-space",
        )
    return f"{message}; {byte_sizes.text(free)} are free."


def write_text(path: str, text: str) -> None:
    """Write a small file atomically, local or on gs://, where every object is written atomically."""
    if "://" in path:
        with tf.io.gfile.GFile(path, "w") as file:
            file.write(text)
        return
    atomic_files.write_whole(Path(path), text.encode())
    _to_disk(os.path.dirname(path))


def remove(path: str) -> None:
    """Delete a checkpoint. `checkpoint.json` is deleted first, so that a half-deleted folder does not count as a checkpoint."""
    if tf.io.gfile.exists(f"{path}/{MARKER}"):
        tf.io.gfile.remove(f"{path}/{MARKER}")
    tf.io.gfile.rmtree(path)


def _mark(path: str, state: State) -> None:
    write_text(f"{path}/{MARKER}", json.dumps(dataclasses.asdict(state), indent=2))


def remove_incomplete(run: str) -> None:
    """Delete the checkpoint folders without `checkpoint.json`, which were being written when the run was killed."""
    for path in _places(run):
        if not tf.io.gfile.exists(f"{path}/{MARKER}"):
            remove(path)


def prune(run: str, *, keep: int, in_use: Callable[[], Collection[int]] = tuple) -> None:
    """Delete the checkpoints that are neither the best, nor among the last `keep`, nor in use."""
    steps = set(in_use())
    kept_paths = {path for path, _ in list_checkpoints(run)[-keep:]}
    kept_paths |= {path for path in _places(run) if int(path.rpartition("/")[2]) in steps}
    try:
        kept_paths.add(best(run)[0])
    except OutputError:  # the best checkpoint is damaged, and may be repaired: delete none that is readable
        kept_paths |= {path for path, _ in _all(run)}
    for old in _places(run):
        if old not in kept_paths:
            remove(old)


_CONVERTER = cattrs.Converter(forbid_extra_keys=True)


def _state(path: str) -> State:
    try:
        content = paths.read(f"{path}/{MARKER}")
    except OutputError as error:  # unreachable is not damaged, so the error must not look like a damaged checkpoint
        raise OSError(errno.EIO, str(error), f"{path}/{MARKER}") from error
    try:
        fields = dict(json.loads(content))
        schema = fields.get("schema")
        state = _CONVERTER.structure(fields, State) if schema == SCHEMA else None
    except cattrs.BaseValidationError as error:
        problem = manifest_checks.reasons(error)
        raise OutputError(
            f"{path}/{MARKER} is damaged ({problem}). Delete {path} and start again.", code="checkpoint.damaged"
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise OutputError(
            f"{path}/{MARKER} is damaged ({error}). Delete {path} and start again.", code="checkpoint.damaged"
        ) from error
    if state is None:
        raise OutputError(
            f"{path} has schema {schema!r}, but this t5prep reads {SCHEMA}. Update t5prep (git pull).",
            code="checkpoint.unsupported-schema",
        )
    for name, size in state.files.items():
        actual_size = tf.io.gfile.stat(f"{path}/{name}").length if tf.io.gfile.exists(f"{path}/{name}") else 0
        if actual_size != size:
            raise OutputError(
                f"{path}/{name} has {actual_size} bytes and should have {size}. Delete {path} and start again.",
                code="checkpoint.damaged",
            )
    return state


def _to_disk(path: str) -> None:
    if "://" in path:
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reason(error: Exception) -> str:
    """Return an error of TensorFlow or the system as the end of a sentence: its first line, without names of operations."""
    message = str(getattr(error, "message", None) or error).splitlines()[0]
    if "No space left on device" in message or getattr(error, "errno", None) == errno.ENOSPC:
        return "the disk is full. Free some of it, and start the same command again."
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*?\]", "", message)[:300]
