"""Programs lowered once for all tests of a run: of a toy's run, TensorFlow's lowering takes most of the time.

The fixture `lowered_once` replaces functions of `t5prep.training.runtime.programs` by those of this module. Processes that tests
fork do the same where VARIABLE is set (`forked_commands`, `faults`).
"""

import dataclasses
import functools
import hashlib
import inspect
import os
import pickle
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t5prep.io import atomic_files
from t5prep.training.runtime import lowering, programs
from t5prep.training.step.step import TrainStep

VARIABLE = "TESTS_LOWERED_PROGRAMS"  # of the environment: the folder of lowered programs
# The settings that the programs of a step read; all others reach them by the model's config and the optimizer.
SETTINGS_READ = {
    "gradients": ("accumulate", "dropout", "label_smoothing", "remat", "seed", "z_loss"),
    "update": ("clip_norm",),
}


def functions(folder: Path) -> dict[str, Callable[..., Any]]:
    """Return what replaces `lower` and `embed`: no function is lowered twice into a folder, nor embedded twice in a process."""

    def lower(function: Callable[..., Any], *inputs: Any, **options: Any) -> lowering.Lowered:
        key = repr((_meaning(function), inputs, options, os.environ.get("T5PREP_WITHOUT")))
        if "0x" in key:  # it would say an address, which is no meaning
            return lowering.lower(function, *inputs, **options)
        path = folder / hashlib.sha256(key.encode()).hexdigest()
        if not path.exists():
            if isinstance(step := getattr(function, "__self__", None), TrainStep):
                function = getattr(dataclasses.replace(step, settings=_settings_read(function)), function.__name__)
            atomic_files.write_scratch(path, pickle.dumps(lowering.lower(function, *inputs, **options)))
        return pickle.loads(path.read_bytes())

    return {"lower": lower, "embed": functools.cache(lowering.embed)}


def use_those_of_the_tests() -> None:
    """Replace the functions in this process, if the environment says so."""
    if folder := os.environ.get(VARIABLE):
        for name, function in functions(Path(folder)).items():
            setattr(programs, name, function)


def _meaning(function: Any) -> Any:
    """Return what decides the program of a function, to be compared by its repr."""
    if isinstance(function, functools.partial):
        return _meaning(function.func), function.args, sorted(function.keywords.items())
    if not inspect.isroutine(function):
        return function
    if isinstance(step := getattr(function, "__self__", None), TrainStep):
        step = dataclasses.replace(step, settings=_settings_read(function))
    cells = [_meaning(cell.cell_contents) for cell in getattr(function, "__closure__", None) or ()]
    # Several functions inside of one have the same name.
    code = function.__code__ if "<locals>" in function.__qualname__ else None
    body = code and (hashlib.sha256(code.co_code).hexdigest(), code.co_consts, code.co_names)
    return function.__module__, function.__qualname__, step, cells, body


def _settings_read(function: Any) -> types.SimpleNamespace:
    """Return the settings that a function of a step reads, and no others: it fails where it reads another one."""
    settings = function.__self__.settings
    read = {name: getattr(settings, name) for name in SETTINGS_READ[function.__name__]}
    if "seed" in read and not settings.dropout:
        del read["seed"]
    return types.SimpleNamespace(**read)
