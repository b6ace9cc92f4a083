"""Compile programs, and cache them; compile the step of a run for the first layout that fits.

A cached program is named by the digest of the program, and by the digest of its environment (compiler, options, devices):

FOLDER/DIGEST-ENVIRONMENT.executable   signed (`io.store`): one line of JSON with versions, options and devices,
                                       then the compiled program in jax's format

FOLDER is the folder `programs` of the cache, or RUN/programs for a run on gs://. Loading a compiled program executes it, and
jax unpickles a part of it. Therefore only files that this user has signed are loaded; anything else is compiled again.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import jax
from jax.experimental import serialize_executable

from t5prep.errors import OutputError, T5prepError, UsageError
from t5prep.io import signed_files, store
from t5prep.io.progress import duration
from t5prep.training.log import say
from t5prep.training.model.architecture import Config
from t5prep.training.runtime import hosts
from t5prep.training.runtime.layout import Layout, arrange
from t5prep.training.runtime.programs import Program, step_program
from t5prep.training.runtime.state import Arrays, Step, StepResult, Variables
from t5prep.training.settings.padding import Padding
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step import memory_advice

MOST_KEPT = 64  # cached programs in a folder; the oldest are deleted first
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
# Options of the compiler by platform; the names are those of XLA's flags.
OPTIONS: dict[str, dict[str, bool | int | str]] = {
    # No fusions of YNNPACK, which jaxlib 0.10.2 makes by default: with them a step of T5 takes twice the processor time
    # (docs/decisions/012-disable-ynnpack-fusions.md), and some programs hang (github.com/jax-ml/jax/issues/39257).
    "cpu": {"xla_cpu_experimental_ynn_fusion_type": ""},
    "cuda": {
        # Triton's products: 2 + 2 layers of T5-base compiled in 56 s and took 32.7 ms a step; without them the whole run of 60
        # steps took 19 s, at 19.4 ms a step (H200, docs/gpus.md).
        "xla_gpu_enable_triton_gemm": False,
        # XLA joins the products of queries, keys and values, and slow transposes follow (6.1 of 75.8 ms). Tuning the kernels of
        # every fusion takes long to compile. Without both, a step of T5-base (32 × (512 + 114), H200) compiles in 29.7 s instead
        # of 65.2 s, and takes 59.9 ms instead of 75.8 ms. Each option alone was not measured.
        "xla_gpu_dot_merger_threshold_mb": 0,
        "xla_gpu_experimental_enable_fusion_autotuner": False,
    },
}

Say = Callable[[str], None]


def place_of(out: str = "") -> str:
    """Return the folder for the compiled programs of the run `out`: inside the run on gs://, otherwise in the cache."""
    return f"{out.rstrip('/')}/programs" if "://" in out else str(store.root() / "programs")


def compile_program(program: Program, *, cache_path: str = "", say: Say | None = None) -> jax.stages.Compiled:
    """Return the compiled program for the devices of its layout: from the folder `cache_path`, or compiled and cached there.

    `say` gets a message if a cached program cannot be used. Raises T5prepError if the program does not compile, and
    DoesNotFitError if it needs too much memory.
    """
    cache_path = cache_path or place_of()
    programs, name = _programs(cache_path), _name(program)
    if (content := programs.get(name)) is not None and (loaded := _loaded(_parted(content)[1], program)) is not None:
        return loaded
    earlier = (
        sorted(program_name for program_name in programs.names() if program_name.startswith(program.digest[:32]))
        if say
        else []
    )
    if say and name in earlier:
        say(
            f"The cached {program.name} at {programs.path(name)} is damaged or was not signed with this user's key "
            f"({signed_files.key_path()}). Compiling it again."
        )
    elif say and (content := next(filter(None, map(programs.get, earlier)), None)):
        old_environment, now = _words(_parted(content)[0]), _words(environment(program))
        say(f"The cached {program.name} was compiled by {old_environment}. Compiling it again by {now}.")
    compiled = compile_now(program, cache_path=cache_path)
    if hosts.writes():
        save(compiled, program, cache_path)
    return compiled


def compile_now(program: Program, *, cache_path: str = "") -> jax.stages.Compiled:
    """Compile and return a program. Raises T5prepError or DoesNotFitError.

    On a GPU, XLA's measurements for the choice of kernels are cached in `cache_path` too, for other programs.
    """
    platform = program.layout.platform
    options = dict(OPTIONS.get(platform, {}))
    if platform == "cuda" and cache_path and "://" not in cache_path:
        with contextlib.suppress(OSError):
            Path(cache_path, "autotuning").mkdir(parents=True, exist_ok=True)
            options["xla_gpu_per_fusion_autotune_cache_dir"] = str(Path(cache_path, "autotuning"))
    try:
        return program.lowered.compile(compiler_options=options)
    except jax.errors.JaxRuntimeError as error:
        reason = " ".join(str(error).split("\n")[0].split())[:300]
        if "RESOURCE_EXHAUSTED" in reason:
            raise DoesNotFitError(reason) from error
        raise T5prepError(
            f"{program.name} does not compile for {program.layout.platform}: {reason}.", code="step.compilation-failure"
        ) from error


class DoesNotFitError(T5prepError):
    """A program needs more memory than a device has."""

    def __init__(self, reason: str) -> None:
        self.reason = reason  # the compiler's message
        super().__init__(
            f"The program does not fit into the memory of a device ({reason}). Split the model over several devices "
            "with --set shard=auto, or find settings that fit: t5prep plan",
            code="device.insufficient-memory",
        )


def save(compiled: jax.stages.Compiled, program: Program, cache_path: str) -> str:
    """Write a compiled program to the folder `cache_path` and return its path; "" if it cannot be cached."""
    try:
        content, _, _ = serialize_executable.serialize(compiled)
    except (ValueError, NotImplementedError, jax.errors.JaxRuntimeError):
        return ""
    facts = {"program": program.name, "digest": program.digest, **environment(program)}
    programs, name = _programs(cache_path), _name(program)
    try:
        stored = programs.put(name, json.dumps(facts).encode() + b"\n" + content)
    except OutputError:
        return ""  # a full disk or a read-only bucket does no harm: the next start compiles again
    programs.trim(MOST_KEPT, weigh=lambda _: 1)
    return programs.path(name) if stored else ""


def _programs(cache_path: str) -> store.Store:
    return store.Store(cache_path, ".executable")


def _name(program: Program) -> str:
    facts = hashlib.sha256(json.dumps(environment(program), sort_keys=True).encode()).hexdigest()
    return f"{program.digest[:32]}-{facts[:16]}"


class Environment(TypedDict, total=False):
    """Everything that decides a compiled program besides its source: versions, options, and devices."""

    jax: str
    jaxlib: str
    libtpu: str
    platform: str
    processor: str
    devices: list[str]
    order: list[list[int]]
    options: dict[str, bool | int | str]


def environment(program: Program) -> Environment:
    """Return the environment in which this process compiles `program`."""
    devices = program.layout.devices
    facts: Environment = {
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


def _parted(content: bytes) -> tuple[Environment, bytes]:
    """Return the environment and the executable from the content of a cached file."""
    facts, _, executable = content.partition(b"\n")
    return json.loads(facts), executable


def _loaded(executable: bytes, program: Program) -> jax.stages.Compiled | None:
    """Return the compiled program in `executable`; None if the runtime cannot read it."""
    in_tree, out_tree = jax.tree.structure((program.arguments, {})), program.lowered.out_tree
    try:
        return serialize_executable.deserialize_and_load(
            executable, in_tree, out_tree, execution_devices=program.layout.devices
        )
    except (ValueError, TypeError, EOFError, pickle.UnpicklingError, jax.errors.JaxRuntimeError):
        return None


def _words(facts: Environment) -> str:
    versions = [f"{name} {version}" for name, version in facts.items() if name in ("jax", "libtpu")]
    return f"{' with '.join(versions)} for {len(facts.get('order', []))} × {', '.join(facts.get('devices', []))}"


def _processor() -> str:
    """Return a digest of this processor's features. A program for another processor may use instructions that it lacks."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(flags.encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """A compiled step (`run`, see `programs.StepProgram`), and the specs of its variables."""

    run: Step
    variables: Variables


def layouts(config: TrainConfig, open_layout: Callable[..., Layout]) -> Iterator[Layout]:
    """Yield the layouts to try: that of `config.shard`, or with "auto" 1, 2, 4, … devices for each replica.

    Raises UsageError if a batch cannot be divided by the replicas of a layout.
    """
    shard = 1 if config.shard == "auto" else int(config.shard)
    layout = open_layout(shard=shard)
    while True:
        check_batch(config, layout.replicas)
        yield layout
        if config.shard != "auto" or len(layout.devices) % (2 * layout.shard):
            return
        layout = arrange(layout.devices, shard=2 * layout.shard)


def check_batch(config: TrainConfig, replicas: int) -> None:
    """Raise UsageError if a batch cannot be divided by `replicas`, or is too large for any program."""
    if config.batch >= 2**31:
        raise UsageError(
            f"A batch of {config.batch:,} rows is too large. Use at most {2**31 - 1:,} rows.",
            code="setting.out-of-range",
        )
    if config.batch % (replicas * config.accumulate):
        raise UsageError(
            f"A batch of {config.batch} cannot be divided into {replicas} replicas × "
            f"accumulate={config.accumulate}. Choose a multiple of their product.",
            code="device.indivisible-batch",
        )
    if config.eval_batch % replicas:
        raise UsageError(
            f"eval_batch is {config.eval_batch}, which cannot be divided among {replicas} replicas. "
            f"Choose a multiple of {replicas}.",
            code="device.indivisible-batch",
        )


# Far more than any chip holds: T5-small fills the memory of a v5e with 136,000 tokens.
MANY_TOKENS = 1 << 20


def large_step(config: TrainConfig, replicas: int, lengths: tuple[int, int]) -> str:
    """Return a warning if a step has more than MANY_TOKENS tokens on a device, else "".

    `lengths` are those of inputs and targets.
    """
    tokens = config.batch // (replicas * config.accumulate) * sum(lengths)
    if tokens <= MANY_TOKENS:
        return ""
    return (
        f"A step of {config.batch:,} rows has {tokens:,} tokens on a device, which may take too much memory and time."
        " Estimate both with t5prep plan, or reduce them with a smaller batch or --set accumulate=N."
    )


def compile_step(
    shape: Config,
    config: TrainConfig,
    layouts: Iterable[Layout],
    lengths: Sequence[tuple[int, int]],
    *,
    packed: bool,
    padding: Padding,
    cache_path: str,
) -> tuple[CompiledStep, Layout]:
    """Return a compiled step, and the first of `layouts` in whose memory it fits. Raises T5prepError if it fits none.

    `lengths` holds the (input, target) lengths of batches, the longest first; each pair gets its own program. The longest needs
    the most memory, so a layout that is too small fails at once.
    """
    refusal, narrower = "", None
    for layout in layouts:
        if narrower:
            say(f"The step does not fit {narrower.words}. Trying {layout.words}.")
        if sentence := large_step(config, layout.replicas, lengths[0]):
            say(sentence)
        programs: dict[tuple[int, int], Step] = {}
        for inputs, targets in lengths:
            since = time.monotonic()
            lowered = step_program(
                shape, config, layout=layout, input_length=inputs, target_length=targets, packed=packed, padding=padding
            )
            say(f"Compiling the step for {layout.device_words}, started at {time.strftime('%H:%M:%S')}.")
            try:
                programs[inputs, targets] = compile_program(lowered.program, cache_path=cache_path, say=say)
            except DoesNotFitError as error:
                device_memory = memory_advice.DeviceMemory.by(layout, lowered.variables, batch=config.batch)
                refusal, narrower = memory_advice.sentence(error.reason, config, device_memory), layout
                break
            say(f"The step is compiled ({duration(time.monotonic() - since)}).")
        else:
            return CompiledStep(_by_length(programs), lowered.variables), layout
    raise T5prepError(refusal, code="device.insufficient-memory")


def _by_length(programs: Mapping[tuple[int, int], Step]) -> Step:
    """Return a step that calls the program for the lengths of its batch. `programs`: by (input, target) length."""
    if len(programs) == 1:
        return next(iter(programs.values()))

    def run(
        weights: Arrays, slots: dict[str, Arrays], step: jax.Array, copies: Arrays, batch: Arrays, rate: jax.Array
    ) -> StepResult:
        program = programs[batch["input_ids"].shape[1], batch["labels"].shape[1]]
        return program(weights, slots, step, copies, batch, rate)

    return run
