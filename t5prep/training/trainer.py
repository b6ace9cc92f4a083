"""Train a model, from prepared shards to a best checkpoint, in one function that reads from top to bottom."""

import contextlib
import dataclasses
import functools
import itertools
import operator
import time
from collections.abc import Callable, Sequence

from t5prep.dataset.manifest import Manifest
from t5prep.dataset.prepared import DatasetSplit
from t5prep.errors import T5prepError, TokenizerError, UsageError
from t5prep.io import gcs, signals
from t5prep.io.progress import duration
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.data import device_feed, open_datasets
from t5prep.training.evaluate.evaluator import Evaluation
from t5prep.training.evaluate.validation import Validation
from t5prep.training.log import RunLog, say
from t5prep.training.loop import Due, Signals, Stepper, StepProfile, TrainingLoop
from t5prep.training.model.architecture import Config, ModelConfig, training_flops
from t5prep.training.model.lora import adapter_layouts, parameters
from t5prep.training.model.weights import draw
from t5prep.training.published.stored import Array
from t5prep.training.run import adapters, checkpoint_tensors, checkpoints, run
from t5prep.training.run.checkpoint_tensors import CheckpointWriter
from t5prep.training.run.checkpoints import State
from t5prep.training.runtime import compiling, hosts, matrix_peak
from t5prep.training.runtime.compiling import place_of
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.state import begin, put_weights, with_copies
from t5prep.training.settings import checks
from t5prep.training.settings.padding import Padding
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step import memory_advice
from t5prep.training.step.step import checkpoint_bytes, dtype_of, schedule_of, shape_of


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run. `evaluation` scores the restored best checkpoint; None without an evaluation split."""

    run: str
    steps: int
    best: str
    evaluation: Evaluation | None
    stopped_early: bool


def train(
    config: TrainConfig, *, tpu: str | None = None, gpus: bool = False, replicas: int = 1, profile: int = 0
) -> Result:
    """Train, or resume the run in `config.out`. The same data and settings give the same losses.

    Every host of a run calls this. `tpu`, `gpus`, `replicas`: see `devices.open_layout`. `profile`: record a trace of this
    many steps (`loop.StepProfile`). Raises T5prepError, also when SIGTERM or SIGINT stopped the run after saving; the same
    call then resumes it.
    """
    gcs.check_tensorflow_reaches(config.out)
    open_devices = functools.partial(open_layout, tpu=tpu, gpus=gpus, replicas=replicas)
    with hosts.end_all_on_failure(), contextlib.ExitStack() as until_the_end:
        return _train(config, open_devices, until_the_end, profile=profile)


def _train(
    config: TrainConfig, open_devices: Callable[..., Layout], until_the_end: contextlib.ExitStack, *, profile: int
) -> Result:
    """Train on the devices that `open_devices` opens. `until_the_end` holds the lock of the run's directory."""
    began = time.monotonic()
    # Until the first step nothing needs to be saved, so a signal ends the process at once.
    beginning = until_the_end.enter_context(contextlib.ExitStack())
    beginning.enter_context(signals.end_at_once("Stopped before the first step. Run the same command again."))
    for key, example in (("data", "--data data/sample"), ("model", "--model google-t5/t5-base"), ("out", "--out RUN")):
        if not getattr(config, key):
            raise UsageError(f"The run has no {key}. Set it, for example {example}", code="option.missing")

    # ────────────────────────────────────────────────────────────────────────────────────────────── Devices, input ──
    layouts = compiling.layouts(config, open_devices)
    layout = next(layouts)
    hosts.check_places(config.out, *config.data)
    opened = open_datasets.open_training_splits(config)
    manifests = [dataset_split.manifest for dataset_split in opened]
    checks.check_data(config, manifests)
    lengths = device_feed.shapes(opened, config)
    tokenizer = opened[0].dataset.tokenizer
    in_epoch = -(-sum(dataset_split.records for dataset_split in opened) // config.batch)
    steps = checks.steps_of(config, in_epoch=in_epoch)
    rate = schedule_of(config, steps=steps)
    if config.warmup > steps:
        say(f"The warmup of {config.warmup:,g} steps is longer than the training of {steps:,}. Using --set warmup=0.1")

    # ──────────────────────────────────────────────────────────────────────────────────────────────────────── Model ──
    config = dataclasses.replace(config, dtype=dtype_of(config.dtype, platform=layout.platform).name)
    shape, initial = first_weights(config, tokenizer, manifests)
    base = adapters.digest(initial) if config.lora else ""
    initial |= draw(adapter_layouts(shape), seed=config.seed)
    run.check_begin(config.out)
    until_the_end.enter_context(run.lock_run(config.out))
    newest = checkpoints.last(config.out)
    processors = checkpoints.usable_processors() if layout.platform == "cpu" else 0
    state = _state(
        config, opened, newest, tokenizer=tokenizer.sha256, base=base, processors=processors, in_epoch=in_epoch
    )

    pushes = None
    if config.push and hosts.writes():
        # Imported here, so that a run that pushes nothing starts without it.
        from t5prep.training.publish.pushes import CheckpointPushes

        # This fails before any step if the Hub refuses the token.
        pushes = CheckpointPushes(config.out, repo=config.push)
    say(checkpoints.check_space(config.out, size=checkpoint_bytes(config, shape), keep=config.keep))

    # ───────────────────────────────────────────────────────────────────────────────────────────────────────── Step ──
    cache_path = place_of(config.out)
    packed, masking = manifests[0].settings.is_packed, Padding.of_dataset(manifests[0])
    every = itertools.chain([layout], layouts)
    step, layout = compiling.compile_step(
        shape, config, every, lengths, packed=packed, padding=masking, cache_path=cache_path
    )
    peak_per_step = _peak_per_step(config, shape, layout, lengths, cache_path=cache_path)
    # A checkpoint holds every trained variable. In a run with adapters, all other weights still come from the model.
    if newest:
        specs = step.variables
        untrained = {name: array for name, array in initial.items() if name not in specs.slots}
        placed = put_weights(untrained, specs.weights)
        variables = checkpoint_tensors.restore(newest[0], specs._replace(weights=specs.weights | placed))
        variables = with_copies(variables, specs)
        del placed
    else:
        variables = begin(initial, step.variables)
    del initial
    datasets = [dataset_split.dataset for dataset_split in opened]
    run.begin(config.out, config=config, shape=shape, tokenizer=tokenizer, datasets=datasets, resumes=bool(newest))

    # ──────────────────────────────────────────────────────────────────────────────────────────────── What is said ──
    evaluations = Validation(opened, config, shape=shape, layout=layout, tokenizer=tokenizer, cache_path=cache_path)
    due = Due.by(config, steps=steps, in_epoch=in_epoch, evaluates=bool(evaluations))
    shares = device_feed.rates_of(opened, config)
    of_record = [dataset_split.facts.tokens_of_record for dataset_split in opened]  # mean tokens of a record
    tokens = config.batch * sum(map(operator.mul, of_record, shares))
    if padding := device_feed.cost_of_padding(opened, shares):
        say(padding)
    log = RunLog(
        config.out,
        step=state.step,
        steps=steps,
        tokens_per_step=tokens,
        peak_per_step=peak_per_step,
        tensorboard=config.tensorboard,
        device=layout.device_words,
        evaluated=f"{config.eval_split}_" if not state.metrics else "",
    )
    say(
        f"{parameters(shape)}; {steps:,} steps of {config.batch} rows, {in_epoch:,} per epoch; "
        f"{layout.words}, {config.dtype}."
    )

    # ───────────────────────────────────────────────────────────────────────────────────────────────────────── Loop ──
    device_memory = memory_advice.DeviceMemory.by(layout, step.variables, batch=config.batch)
    writing = CheckpointWriter(config.out, keep=config.keep, in_use=pushes.waiting if pushes else tuple)
    beginning.close()
    pushing = pushes or contextlib.nullcontext()
    with Signals() as stop_signals, pushing, writing as writer, memory_advice.explained(config, device_memory):
        batches = device_feed.device_batches(opened, config, layout=layout, start_step=state.step)
        stepper = Stepper(step.run, variables, batches, rate=rate, needs_metrics=due.log, number=state.step)
        del variables  # only the stepper may hold them: a step reuses their memory
        traced = StepProfile(config.out, steps=profile, first=state.step)
        loop = TrainingLoop(state, due, stepper, evaluations, writer, log, traced, stop_signals, pushes)
        loop.run()
    now = stepper.number
    if not loop.complete:
        raise T5prepError(
            f"Training was stopped by {stop_signals.received} at step {now:,}, and its checkpoint is saved. "
            "Run the same command again to resume.",
            code="run.interrupted",
        )

    # ──────────────────────────────────────────────────────────────────────────────────────────────────────── Finish ──
    log.flush()
    if pushes and (last := checkpoints.last(config.out)):
        pushes.finish(last[1].step)
        checkpoints.prune(config.out, keep=config.keep)
    best, best_state = checkpoints.best(config.out)
    say(
        f"{now:,} steps{' (stopped early: the metric did not improve)' if loop.stopped_early else ''} "
        f"in {duration(time.monotonic() - began)}."
    )
    evaluation = evaluations.of_best(
        best_state.step, lambda: checkpoint_tensors.restore_weights(best, stepper.variables)
    )
    return Result(config.out, now, best, evaluation, loop.stopped_early)


def _peak_per_step(
    config: TrainConfig, shape: Config, layout: Layout, lengths: Sequence[tuple[int, int]], *, cache_path: str
) -> float:
    """Measure and print the devices' matrix peak; return the seconds that the products of a step take at that peak.

    Return 0 where the share of the peak would mean nothing: on a CPU, in float32, with adapters (fewer gradients are
    computed), and with buckets (steps differ in size).
    """
    if layout.platform == "cpu" or config.dtype != "bfloat16" or config.lora or len(lengths) > 1:
        return 0.0
    peak = matrix_peak.measure(layout, cache_path=cache_path)
    say(f"Matrix peak: {peak / 1e12:,.0f} TFLOP/s of a {layout.devices[0].device_kind} in bfloat16, measured now.")
    ((inputs, targets),) = lengths
    flops = config.batch * training_flops(shape, input_length=inputs, target_length=targets)
    return flops / (len(layout.devices) * peak)


def first_weights(
    config: TrainConfig, tokenizer: Tokenizer, manifests: Sequence[Manifest]
) -> tuple[Config, dict[str, Array]]:
    """Return the model's shape and its initial weights. Raises TokenizerError if the data has another tokenizer."""
    if config.weights == "random" and run.is_run(config.model):
        say(
            f"Using only the architecture of {config.model}, because weights=random. "
            "To start from its weights: --set weights=pretrained"
        )
    # Madlad-400 has no embeddings for sentinels: its data fits only if no record contains one.
    marked = any(
        manifest.settings.marked or manifest.settings.keep_newlines or manifest.task.hides_spans
        for manifest in manifests
    )
    shape, initial, own_tokenizer = run.start_from(
        config,
        ids=tokenizer.size,
        needed=tokenizer.size if marked else tokenizer.vocab_size,
        target=manifests[0].target,
    )
    if own_tokenizer and own_tokenizer.sha256 != tokenizer.sha256:
        raise TokenizerError(
            f"{config.data[0]} was tokenized with {tokenizer.name}, but {config.model} has another "
            "tokenizer. Prepare the data with the model's tokenizer: t5prep prepare TASK --tokenizer "
            f"{config.model} ...",
            code="dataset.tokenizer-mismatch",
        )
    if tokenizer.is_encoders and isinstance(shape, ModelConfig):
        task = f"{manifests[0].settings.task} --target {manifests[0].target.name}"
        raise TokenizerError(
            f"{config.data[0]} was tokenized with {tokenizer.name}, an encoder's tokenizer, but "
            f"{config.model} is a T5. Prepare the data with a T5 tokenizer: t5prep prepare {task} --tokenizer {config.model} ...",
            code="dataset.tokenizer-mismatch",
        )
    return shape_of(config, shape), initial


def _state(
    config: TrainConfig,
    opened: Sequence[DatasetSplit],
    newest: tuple[str, State] | None,
    *,
    tokenizer: str,
    base: str,
    processors: int,
    in_epoch: int,
) -> State:
    """Return the state to resume from: the state of the `newest` checkpoint, or a new one at step 0.

    `tokenizer` is the tokenizer's digest, and `base` the digest of the weights under adapters. `processors` is the number
    of usable processors on a CPU, and 0 elsewhere. Raises UsageError if the checkpoint was trained on other data, with
    another tokenizer, or with other settings that cannot be changed.
    """
    data = [
        {
            "uri": dataset_split.folder,
            "task": dataset_split.manifest.settings.task,
            "digest": dataset_split.manifest.digest,
        }
        for dataset_split in opened
    ]
    state = State(
        step=0,
        config=dataclasses.asdict(config),
        data=data,
        tokenizer=tokenizer,
        metric=config.metric,
        processors=processors,
        base=base,
    )
    if not newest:
        return state
    path, saved = newest
    checkpoints.check(path, saved, config=config, data=data, tokenizer=tokenizer, base=base)
    new_length = checks.describe_new_length(
        config, saved.config, checkpoint_step=saved.step, in_epoch=in_epoch, checkpoint_path=path
    )
    say(f"Resuming {config.out} at step {saved.step:,}. {new_length}".rstrip())
    if warning := checkpoints.other_processors(saved, processors):
        say(warning)
    if reset_message := checkpoints.judged_anew(saved, config):
        say(reset_message)
        saved = dataclasses.replace(saved, metric=config.metric, best=None, value=None, stale=0, metrics={})
    return dataclasses.replace(saved, config=state.config, data=data)
