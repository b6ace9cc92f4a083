"""Keep compiled programs, named by the digest of the program and of the compiler, its options and the devices.

PLACE/DIGEST-ENVIRONMENT.executable   the compiled program, as jax writes it (machine code: keep it in a trusted place)
PLACE/DIGEST-ENVIRONMENT.json         versions, options and devices, in words

PLACE is the folder `programs` of the cache, or RUN/programs of a run on gs://.
"""

import hashlib
import importlib.metadata
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import tensorflow as tf
from jax.experimental import serialize_executable

from t5prep.errors import OutputError, T5prepError
from t5prep.io import atomic_files, cache_folder
from t5prep.train.runtime import hosts
from t5prep.train.runtime.programs import Program

MOST_KEPT = 64  # programs in the cache's folder; the oldest are deleted first
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
# Options of the compiler by platform. On a CPU no fusions of YNNPACK, which jaxlib 0.10.2 makes by default: with them a
# step of T5 takes twice the processor time (`bench_step`), and some programs hang (github.com/jax-ml/jax/issues/39257).
OPTIONS = {"cpu": {"xla_cpu_experimental_ynn_fusion_type": ""}}

Say = Callable[[str], None]


def place_of(out: str = "") -> str:
    """Return the folder for the programs of a run: beside it on gs://, otherwise in the cache."""
    return f"{out.rstrip('/')}/programs" if "://" in out else str(cache_folder.root() / "programs")


def compile_program(program: Program, *, place: str = "", say: Say | None = None) -> Any:
    """Return the program compiled for the devices of its layout: loaded if it is kept, otherwise compiled and kept.

    Raises T5prepError where it does not compile, DoesNotFitError where that is for lack of memory.
    """
    place = place or place_of()
    path = path_of(program, place)
    if (programs := _load(path, program)) is not None:
        return programs
    if say and (others := _made_otherwise(place, program)):
        say(f"{program.name} was compiled before by {others}; compiling it again by {_words(environment(program))}.")
    compiled = compile_now(program)
    if hosts.writes():
        save(compiled, program, path)
    return compiled


def compile_now(program: Program) -> Any:
    """Return the program compiled. Raises T5prepError, or DoesNotFitError."""
    try:
        return program.lowered.compile(compiler_options=OPTIONS.get(program.layout.platform))
    except jax.errors.JaxRuntimeError as error:
        reason = " ".join(str(error).split("\n")[0].split())[:300]
        if "RESOURCE_EXHAUSTED" in reason:
            raise DoesNotFitError(reason) from error
        raise T5prepError(f"{program.name} does not compile for {program.layout.platform}: {reason}.") from error


class DoesNotFitError(T5prepError):
    """Say that a program needs more memory than a device has."""

    def __init__(self, reason: str) -> None:
        self.reason = reason  # the compiler's own words
        super().__init__(
            f"The program does not fit into the memory of a device ({reason}). Split the model over several: "
            "--set shard=auto; or see what else would fit: t5prep plan"
        )


def save(compiled: Any, program: Program, path: str) -> str:
    """Write a compiled program, complete or not at all, and return its path; "" where it cannot be kept."""
    try:
        content, _, _ = serialize_executable.serialize(compiled)
    except (ValueError, NotImplementedError, jax.errors.JaxRuntimeError):
        return ""
    facts = {"program": program.name, "digest": program.digest, **environment(program)}
    try:
        _write(f"{path}.json", json.dumps(facts, indent=2).encode())
        _write(f"{path}.executable", content)
        if "://" not in path:
            _prune(Path(path).parent)
    except (OSError, OutputError, tf.errors.OpError):
        return ""  # with a full disk or a read-only bucket, the next start compiles again: no other harm
    return f"{path}.executable"


def path_of(program: Program, place: str) -> str:
    """Return the path of a kept program, without its ending."""
    return f"{place}/{program.digest[:32]}-{environment_digest(program)[:16]}"


def environment(program: Program) -> dict[str, Any]:
    """Return what decides a compiled program besides the program: versions, options, and the devices it is for."""
    devices = program.layout.devices
    facts: dict[str, Any] = {
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
        "platform": program.layout.platform,
        "devices": sorted({str(device.device_kind) for device in devices}),
        "order": [[int(device.id), int(device.process_index)] for device in devices],
        "options": OPTIONS.get(program.layout.platform, {})
        | {name: os.environ[name] for name in _FLAGS if name in os.environ},
    }
    if program.layout.platform == "tpu":
        facts["libtpu"] = importlib.metadata.version("libtpu")
    if program.layout.platform == "cpu":
        facts["processor"] = _processor()
    return facts


def environment_digest(program: Program) -> str:
    """Return the SHA-256 of `environment`."""
    return hashlib.sha256(json.dumps(environment(program), sort_keys=True).encode()).hexdigest()


def _load(path: str, program: Program) -> Any | None:
    """Return the compiled program that is kept at a path, or None where there is none or it cannot be used."""
    try:
        with tf.io.gfile.GFile(f"{path}.executable", "rb") as file:
            content = file.read()
    except (tf.errors.NotFoundError, tf.errors.PermissionDeniedError):
        return None  # also where another process deletes it now, as one of the oldest
    lowered = program.lowered
    in_tree, out_tree = jax.tree.structure((program.arguments, {})), lowered.out_tree
    try:
        return serialize_executable.deserialize_and_load(
            content, in_tree, out_tree, execution_devices=program.layout.devices
        )
    except (ValueError, TypeError, EOFError, pickle.UnpicklingError, jax.errors.JaxRuntimeError):
        return None  # cut short, or written by a runtime that this one cannot read


def _made_otherwise(place: str, program: Program) -> str:
    """Return in words the versions and devices of an earlier compilation of the same program, or "" without one."""
    for path in sorted(tf.io.gfile.glob(f"{place}/{program.digest[:32]}-*.json")):
        with tf.io.gfile.GFile(path, "rb") as file:
            try:
                return _words(json.loads(file.read()))
            except ValueError:
                continue
    return ""


def _words(facts: dict[str, Any]) -> str:
    versions = [f"{name} {facts[name]}" for name in ("jax", "libtpu") if name in facts]
    return f"{' with '.join(versions)} for {len(facts.get('order', []))} × {', '.join(facts.get('devices', []))}"


def _processor() -> str:
    """Return a digest of this processor's features: a program for another one may use instructions that it lacks."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(flags.encode()).hexdigest()[:16]


def _write(path: str, content: bytes) -> None:
    if "://" in path:
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write_whole(Path(path), content)


def _prune(folder: Path) -> None:
    """Delete the oldest programs of the cache beyond `MOST_KEPT`."""
    programs = sorted(folder.glob("*.executable"), key=lambda path: path.stat().st_mtime)
    for path in programs[:-MOST_KEPT]:
        path.unlink(missing_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)
