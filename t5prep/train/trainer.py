"""Train a model, from prepared shards to a best checkpoint, in one function that reads from top to bottom."""

import dataclasses
import functools
import operator
import time
from collections.abc import Callable
from typing import Any

from t5prep.errors import T5prepError, TokenizerError, UsageError
from t5prep.train import (
    adapters,
    checkpoint_tensors,
    device_feed,
    ineffective_settings,
    lengthening,
    memory,
    mixture_metrics,
    run,
)
from t5prep.train import checkpoint as checkpoints
from t5prep.train.checkpoint import State
from t5prep.train.checkpoint_writer import CheckpointWriter
from t5prep.train.config import TrainConfig
from t5prep.train.data import opening, steps_per_epoch
from t5prep.train.evaluate import Evaluation, Evaluator
from t5prep.train.loop import Stepper
from t5prep.train.model.generation import Generation
from t5prep.train.model.lora import adapter_layouts, parameters
from t5prep.train.model.weights import draw
from t5prep.train.profiling import StepProfile
from t5prep.train.progress import RunLog, duration, say
from t5prep.train.runtime import compiling, hosts
from t5prep.train.runtime.devices import open_layout
from t5prep.train.runtime.kept_programs import place_of
from t5prep.train.runtime.layout import Layout
from t5prep.train.runtime.state import Variables, put_step, put_weights, variable_specs, zero_slots
from t5prep.train.signals import Signals
from t5prep.train.step_parts import dtype_of, schedule_of, shape_of


@dataclasses.dataclass(frozen=True)
class Result:
    """Hold the result of a run. `evaluation` is of the restored best checkpoint; None without an evaluation split."""

    run: str
    steps: int
    best: str
    evaluation: Evaluation | None
    stopped_early: bool


def train(
    config: TrainConfig, *, tpu: str | None = None, gpus: bool = False, replicas: int = 1, profile: int = 0
) -> Result:
    """Train, or resume the run that is in `config.out`; same data and same settings give the same losses.

    Every host of a run calls this. `tpu`, `gpus`, `replicas`: see `devices.open_layout`. `profile`: record a trace of so
    many steps (`profiling`). Raises T5prepError, also when SIGTERM or SIGINT stopped it, after saving: the same call then
    resumes from there.
    """
    with hosts.together():
        return _train(config, functools.partial(open_layout, tpu=tpu, gpus=gpus, replicas=replicas), profile=profile)


def _train(config: TrainConfig, open_devices: Callable[..., Layout], *, profile: int) -> Result:
    """Train, as `train` does, on the devices that `open_devices` opens."""
    began = time.monotonic()
    for key, example in (("data", "--data data/sample"), ("model", "--model google-t5/t5-base"), ("out", "--out RUN")):
        if not getattr(config, key):
            raise UsageError(f"A run needs {key}: {example}")

    # ────────────────────────────────────────────────────────────────────────────────────────────── Devices, input ──
    layouts = compiling.layouts(config, open_devices)
    layout = next(layouts)
    hosts.check_places(config.out, *config.data)
    opened = opening.open_all(config.data, split=config.split)
    manifests = [one.manifest for one in opened]
    ineffective_settings.check_data(config, manifests)
    lengths = device_feed.shapes(opened, config)
    evaluated = [
        opening.open_split(one, split=config.eval_split) for one in opened if config.eval_split in one.manifest.splits
    ]
    tokenizer = run.open_tokenizer(manifests[0], name=config.tokenizer)
    data = [{"uri": one.data, "task": one.manifest.settings.task, "digest": one.manifest.digest} for one in opened]
    in_epoch = steps_per_epoch(opened, split=config.split, global_batch=config.batch)
    steps = lengthening.steps_of(config, in_epoch=in_epoch)
    rate = schedule_of(config, steps=steps)

    # ──────────────────────────────────────────────────────────────────────────────────────────────────────── Model ──
    config = dataclasses.replace(config, dtype=dtype_of(config.dtype, platform=layout.platform).name)
    shape, initial, own_tokenizer = run.start_from(config, ids=tokenizer.size, classes=manifests[0].class_names)
    shape = shape_of(config, shape)
    if own_tokenizer and own_tokenizer.sha256 != tokenizer.sha256:
        raise TokenizerError(
            f"{config.data[0]} was tokenized by {tokenizer.name}, and {config.model} has another tokenizer. "
            f"Prepare the data with it: t5prep prepare TASK --tokenizer {config.model} ..."
        )
    base = adapters.digest(initial) if config.lora else ""
    initial |= draw(adapter_layouts(shape), seed=config.seed)
    identity: dict[str, Any] = {"data": data, "tokenizer": tokenizer.sha256, "base": base}
    state = State(step=0, config=dataclasses.asdict(config), metric=config.metric, **identity)
    newest = checkpoints.last(config.out)
    if newest:
        checkpoints.check(*newest, config=config, **identity)
        other_length = lengthening.check(
            config, newest[1].config, made=newest[1].step, in_epoch=in_epoch, where=newest[0]
        )
        state = dataclasses.replace(newest[1], config=state.config, data=data)
        say(f"Going on with {config.out} at step {state.step:,}. {other_length}".rstrip())
    run.check_begin(config.out)

    # ───────────────────────────────────────────────────────────────────────────────────────────────────────── Step ──
    place = place_of(config.out)
    packed = manifests[0].settings.layout == "packed"
    step, layout = compiling.compile_shapes(shape, config, layout, layouts, lengths, packed=packed, place=place)
    if newest:  # what is trained comes from the checkpoint alone; beside adapters, the rest from the model
        specs = variable_specs(step.slot_shapes, shape, layout)
        untrained = {name: array for name, array in initial.items() if name not in specs.slots}
        specs = specs._replace(weights=specs.weights | put_weights(untrained, shape, layout))
        variables = checkpoint_tensors.restore(newest[0], specs)
    else:
        variables = Variables(
            put_weights(initial, shape, layout), zero_slots(step.slot_shapes, shape, layout), put_step(0, layout)
        )
    del initial
    say(checkpoints.check_space(config.out, size=checkpoint_tensors.size_of(variables), keep=config.keep))
    run.begin(config.out, config=config, shape=shape, tokenizer=tokenizer, manifests=manifests)

    # ───────────────────────────────────────────────────────────────────────────────────────────────────── Evaluate ──
    evaluators = [
        Evaluator(
            shape,
            layout=layout,
            data=one,
            split=config.eval_split,
            batch=config.eval_batch or config.batch,
            limit=config.eval_rows,
            tokenizer=tokenizer,
            dtype=dtype_of(config.dtype, platform=layout.platform),
            generating=config.generate,
            generation=Generation(beams=config.beams),
            place=place,
        )
        for one in evaluated
    ]
    eval_every = (config.eval_every or min(in_epoch, steps)) if evaluators else 0
    save_every = config.save_every or eval_every or min(in_epoch, steps)

    # ───────────────────────────────────────────────────────────────────────────────────────────────────────── Loop ──
    shares = device_feed.rates(opened, config)
    of_record = [sum(one.split.tokens.values()) / one.split.records for one in opened]  # mean tokens of a record
    tokens = config.batch * sum(map(operator.mul, of_record, shares))
    if padding := device_feed.cost_of_padding(opened, shares):
        say(padding)
    log = RunLog(config.out, step=state.step, steps=steps, tokens_per_step=tokens, tensorboard=config.tensorboard)
    held = memory.Held.by(layout, shape, step.slot_shapes, batch=config.batch)
    say(
        f"{parameters(shape)}; {steps:,} steps of {config.batch} rows, {in_epoch:,} to an epoch; "
        f"{layout.words}, {config.dtype}."
    )

    def due(step: int, every: int) -> bool:
        return bool(every) and (step % every == 0 or step == steps)

    def logged(step: int) -> bool:
        return step % config.log_every == 0 or step == steps

    def save(state: State) -> None:
        log.flush()
        writer.save(stepper.variables, state=state)

    def score(state: State, *, saved_already: bool) -> State:
        """Return the state with its evaluation; log it and write it to its checkpoint, or to a new one if best."""
        names = mixture_metrics.names_of([one.data for one in evaluated])
        each = [evaluator(stepper.variables.weights).numbers() for evaluator in evaluators]
        state, improved = _evaluated(state, mixture_metrics.joined(names, each))
        log.record(state.step, state.metrics, prefix=f"{config.eval_split}_")
        if saved_already:
            writer.describe(state)
        elif improved or _exhausted(state, config):
            save(state)
        log.flush()
        return state

    writing = CheckpointWriter(config.out, keep=config.keep)
    with Signals() as signals, writing as writer, memory.explained(config, held):
        batches = device_feed.device_batches(opened, config, layout=layout, start_step=state.step)
        stepper = Stepper(step.run, variables, batches, rate=rate, wanted=logged, number=state.step)
        del variables  # only the stepper may hold them: a step reuses their memory
        if state.step and due(state.step, eval_every) and not state.metrics:  # it stopped before its evaluation
            state = score(state, saved_already=True)
        now, stopped_early = state.step, _exhausted(state, config)
        traced = StepProfile(config.out, steps=profile, first=now)
        log.restart(now)
        while now < steps and not stopped_early and not signals.stop(now):
            stepper.begin()
            now = stepper.number
            traced.step(now, stepper.variables.step)
            writer.check()
            looking = due(now, save_every) or due(now, eval_every) or now == steps or signals.stop(now)
            for done in stepper.ended(ahead=0) if looking else stepper.ended():
                if done.metrics:
                    log.record(done.number, done.metrics, prefix="")
                    loss, learning_rate = done.metrics["loss"], done.metrics["learning_rate"]
                    log.line(done.number, loss=loss, learning_rate=learning_rate, waited=stepper.take_waited())
            if not looking:
                continue
            state = dataclasses.replace(state, step=now, value=None, metrics={})
            saving = due(now, save_every) or signals.stop(now)
            if saving:  # before the evaluation, which may take longer than a preemption allows
                save(state)
            if due(now, eval_every) and not signals.stop(now):
                state = score(state, saved_already=saving)
                stopped_early = _exhausted(state, config)
            log.restart(now)
        traced.finish(stepper.variables.step)
    unscored = due(now, eval_every) and not state.metrics
    if unscored or (now < steps and not stopped_early):
        raise T5prepError(f"Stopped by {signals.received} at step {now:,}, saved. The same command goes on from there.")

    # ──────────────────────────────────────────────────────────────────────────────────────────────────────── Finish ──
    best, _ = checkpoints.best(config.out)
    weights = checkpoint_tensors.restore_weights(best, stepper.variables) if evaluators else {}
    log.flush()
    say(
        f"{now:,} steps{' (no better metric for a while)' if stopped_early else ''} in {duration(time.monotonic() - began)}."
    )
    return Result(config.out, now, best, evaluators[0](weights, worst=20) if evaluators else None, stopped_early)


def _evaluated(state: State, metrics: dict[str, float]) -> tuple[State, bool]:
    """Return the state after an evaluation (of a mixture: by the mean over its datasets), and whether it is the best so far."""
    metric = state.metric
    if metric == "auto":
        metric = "accuracy" if "accuracy" in metrics else "loss"
    if metric not in metrics:
        raise UsageError(f'metric is "{metric}", and the evaluation has {", ".join(metrics)}.')
    value = metrics[metric]
    state = dataclasses.replace(state, metric=metric, metrics=metrics, value=value)
    improved, stale = state.judge(value)
    shown = "  ".join(f"{name} {number:.4f}" for name, number in metrics.items() if not name.endswith("records"))
    of = "  means of datasets" if any("/" in name for name in metrics) else ""
    say(f"step {state.step:,} evaluated{of}  {shown}{'  best so far' if improved else ''}")
    return dataclasses.replace(state, best=value if improved else state.best, stale=stale), improved


def _exhausted(state: State, config: TrainConfig) -> bool:
    return 0 < config.patience <= state.stale
