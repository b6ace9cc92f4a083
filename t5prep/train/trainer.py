"""One training run, from prepared shards to a best checkpoint, as one function to be read from top to bottom."""

import dataclasses
import math
import operator
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from t5prep.errors import T5prepError, TokenizerError, UsageError
from t5prep.train import checkpoint as checkpoints
from t5prep.train import device, run, unused
from t5prep.train.checkpoint import State
from t5prep.train.config import TrainConfig
from t5prep.train.data import opening, steps_per_epoch, train_batches
from t5prep.train.evaluate import Evaluation, Evaluator
from t5prep.train.model.weight_layout import weight_layouts
from t5prep.train.model.weights import create_variables
from t5prep.train.optimizer import create_slots
from t5prep.train.parts import optimizer_of, options_of, schedule_of
from t5prep.train.progress import RunLog, duration, say
from t5prep.train.step import TrainStep

STEP_METRICS = ("loss", "accuracy", "gradient_norm", "learning_rate")


@dataclasses.dataclass(frozen=True)
class Result:
    """How a run ended. `evaluation` is the best checkpoint's, restored; None where there is no evaluation split."""

    run: str
    steps: int
    best: str
    evaluation: Evaluation | None
    stopped_early: bool


def train(config: TrainConfig, *, tpu: str | None = None, gpus: bool = False, replicas: int = 1) -> Result:
    """Train, or go on with the run that is in `config.out`; same data, same settings, same losses.

    `tpu`, `gpus`, `replicas`: see `device.strategy`. Raises T5prepError, also when SIGTERM or SIGINT stopped it, after
    saving: the same call then goes on from there.
    """
    began = time.monotonic()
    for key, example in (("data", "--data data/sample"), ("model", "--model google-t5/t5-base"), ("out", "--out RUN")):
        if not getattr(config, key):
            raise UsageError(f"A run needs {key}: {example}")

    # ──────────────────────────────────────────────────────────────────────────────────────────────────────── Input ──
    strategy = device.strategy(tpu=tpu, gpus=gpus, replicas=replicas)
    count = strategy.num_replicas_in_sync
    if config.batch % (count * config.accumulate):
        raise UsageError(
            f"A batch of {config.batch} cannot be cut into {count} replicas × accumulate={config.accumulate}."
        )
    opened = opening.open_all(config.data, split=config.split)
    manifests = [one.manifest for one in opened]
    unused.check_data(config, manifests)
    tokenizer = run.open_tokenizer(manifests[0], name=config.tokenizer)
    data = [{"uri": one.data, "task": one.manifest.settings.task, "digest": one.manifest.digest} for one in opened]
    in_epoch = steps_per_epoch(config.data, split=config.split, global_batch=config.batch)
    steps = config.steps or math.ceil(config.epochs * in_epoch)
    if not steps:
        raise UsageError("How long? --set epochs=3, or --set steps=10000.")

    def batches(start_step: int) -> Any:
        """Each replica's rows of every batch from `start_step` on; each host reads only its own."""

        def of_host(context: tf.distribute.InputContext) -> tf.data.Dataset:
            rows = train_batches(
                config.data,
                split=config.split,
                global_batch=config.batch,
                seed=config.seed,
                start_step=start_step,
                rates=config.rates or None,
                host=context.input_pipeline_id,
                hosts=context.num_input_pipelines,
                tokenizer=tokenizer.sha256,
            )
            return rows.rebatch(config.batch // count, drop_remainder=True)

        return iter(strategy.distribute_datasets_from_function(of_host))

    # ──────────────────────────────────────────────────────────────────────────────────────────────────────── Model ──
    if config.dtype == "auto":
        config = dataclasses.replace(config, dtype="float32" if tpu is None and not gpus else "bfloat16")
    dtype = tf.as_dtype(config.dtype)
    shape, initial, own_tokenizer = run.start_from(config, ids=tokenizer.size)
    shape = dataclasses.replace(shape, dropout_rate=config.dropout)
    if own_tokenizer and own_tokenizer.sha256 != tokenizer.sha256:
        raise TokenizerError(
            f"{config.data[0]} was tokenized by {tokenizer.name}, and {config.model} has another tokenizer. "
            f"Prepare the data with it: t5prep prepare TASK --tokenizer {config.model} ..."
        )

    # ──────────────────────────────────────────────────────────────────────────────────────────────────── Optimizer ──
    optimizer = optimizer_of(config)
    rate = schedule_of(config, steps=steps)
    with strategy.scope():
        weights = create_variables(initial)
        slots = create_slots(optimizer, weight_layouts(shape))
        made = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
    del initial

    # ────────────────────────────────────────────────────────────────────────────────────────────────────── Restore ──
    saved = tf.train.Checkpoint(weights=weights, slots=slots, step=made)
    state = State(
        step=0, config=dataclasses.asdict(config), data=data, tokenizer=tokenizer.sha256, metric=config.metric
    )
    newest = checkpoints.last(config.out)
    if newest:
        checkpoints.check(*newest, config=config, data=data, tokenizer=tokenizer.sha256)
        checkpoints.restore(newest[0], saved)
        state = dataclasses.replace(newest[1], config=state.config, data=data)
        say(f"Going on with {config.out} at step {state.step:,}.")
    all_variables = [*weights.values(), *(slot for own in slots.values() for slot in own.values())]
    say(checkpoints.check_space(config.out, size=checkpoints.size_of(all_variables), keep=config.keep))
    run.begin(config.out, config=config, shape=shape, tokenizer=tokenizer, manifests=manifests)

    # ───────────────────────────────────────────────────────────────────────────────────────────────────────── Step ──
    options = options_of(config, dtype=dtype)
    step = TrainStep(shape, weights, optimizer, slots, made, rate, options)
    run_steps = compile_loop(strategy, step)

    # ───────────────────────────────────────────────────────────────────────────────────────────────────── Evaluate ──
    evaluators = [
        Evaluator(
            weights,
            shape,
            strategy=strategy,
            data=one.data,
            split=config.eval_split,
            batch=config.eval_batch or config.batch,
            tokenizer=tokenizer,
            dtype=dtype,
            generating=config.generate,
            beams=config.beams,
        )
        for one in opened
        if config.eval_split in one.manifest.splits
    ]
    eval_every = (config.eval_every or min(in_epoch, steps)) if evaluators else 0
    save_every = config.save_every or eval_every or min(in_epoch, steps)

    # ───────────────────────────────────────────────────────────────────────────────────────────────────────── Loop ──
    shares = config.rates or [one.split.records for one in opened]
    lengths = [sum(one.split.tokens.values()) / one.split.records for one in opened]  # tokens of a record
    tokens = config.batch * sum(map(operator.mul, lengths, shares)) / sum(shares)
    log = RunLog(config.out, step=state.step, steps=steps, tokens_per_step=tokens, tensorboard=config.tensorboard)
    parameters = sum(int(variable.shape.num_elements()) for variable in weights.values())
    say(
        f"{parameters:,} parameters; {steps:,} steps of {config.batch} rows, {in_epoch:,} to an epoch; "
        f"{count} replica{'s' if count > 1 else ''}, {config.dtype}. Compiling the first step takes a while."
    )

    def due(step: int, every: int) -> bool:
        return bool(every) and (step % every == 0 or step == steps)

    def score(state: State, *, saved_already: bool) -> State:
        """The state with its evaluation; in the log, and in its checkpoint or a new one where it is the best."""
        state, improved = _evaluated(state, [evaluator() for evaluator in evaluators])
        log.record(state.step, state.metrics, prefix=f"{config.eval_split}_")
        if saved_already:
            checkpoints.describe(config.out, state=state, keep=config.keep)
        elif improved or _exhausted(state, config):
            checkpoints.save(config.out, saved, state=state, keep=config.keep)
        log.flush()
        return state

    with _Signals() as signals:
        if state.step and due(state.step, eval_every) and not state.metrics:  # it was stopped before its evaluation
            state = score(state, saved_already=True)
        now, stopped_early = state.step, _exhausted(state, config)
        iterator = batches(now) if now < steps and not stopped_early else None
        while now < steps and not stopped_early and not signals.received:
            ahead = [every - now % every for every in (save_every, eval_every) if every]
            made_now, waited = run_steps(iterator, tf.constant(min(config.steps_per_loop, steps - now, *ahead)))
            values = made_now.numpy()
            for numbers in values:
                now += 1
                if not math.isfinite(numbers[0]):
                    raise T5prepError(
                        f"The loss of step {now:,} is {numbers[0]}: lower learning_rate, or set clip_norm."
                    )
                if now % config.log_every == 0 or now == steps:
                    log.record(now, dict(zip(STEP_METRICS, numbers.tolist(), strict=True)), prefix="")
            log.line(now, loss=values[-1, 0], learning_rate=values[-1, 3], waited=float(waited))
            state = dataclasses.replace(state, step=now, value=None, metrics={})
            saving = due(now, save_every) or bool(signals.received)
            if saving:  # before the evaluation, which may take longer than a preemption leaves
                checkpoints.save(config.out, saved, state=state, keep=config.keep)
                log.flush()
            if due(now, eval_every) and not signals.received:
                state = score(state, saved_already=saving)
                stopped_early = _exhausted(state, config)
            if saving or state.metrics:
                log.restart(now)
    unscored = due(now, eval_every) and not state.metrics
    if unscored or (now < steps and not stopped_early):
        raise T5prepError(f"Stopped by {signals.received} at step {now:,}, saved. The same command goes on from there.")

    # ──────────────────────────────────────────────────────────────────────────────────────────────────────── Finish ──
    best, _ = checkpoints.best(config.out)
    checkpoints.restore(best, saved)
    log.flush()
    say(
        f"{now:,} steps{' (no better metric for a while)' if stopped_early else ''} in {duration(time.monotonic() - began)}."
    )
    return Result(config.out, now, best, evaluators[0](worst=20) if evaluators else None, stopped_early)


def compile_loop(strategy: tf.distribute.Strategy, step: TrainStep) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """A function of (iterator, count) that makes so many steps in one call: float32[count, metrics], seconds waited."""
    one_device = strategy.num_replicas_in_sync == 1 and not isinstance(strategy, tf.distribute.TPUStrategy)
    compiled = tf.function(step.__call__, jit_compile=True, autograph=False) if one_device else step

    def run_steps(iterator: Any, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.TensorArray(tf.float32, size=count, element_shape=[len(STEP_METRICS)])
        waited, last = tf.zeros([], tf.float64), tf.zeros([len(STEP_METRICS)])
        for number in tf.range(count):
            with tf.control_dependencies([last]):  # the clock must not run while the step before is still computing
                began = tf.timestamp()
            with tf.control_dependencies([began]):
                batch = next(iterator)
            with tf.control_dependencies(
                [part for value in batch.values() for part in strategy.experimental_local_results(value)]
            ):
                waited += tf.timestamp() - began
            metrics = strategy.run(compiled, (batch,))
            last = tf.stack([strategy.experimental_local_results(metrics[name])[0] for name in STEP_METRICS])
            values = values.write(number, last)
        return values.stack(), waited

    compiled_loop: Callable[..., tuple[tf.Tensor, tf.Tensor]] = tf.function(run_steps)
    return compiled_loop


def _evaluated(state: State, evaluations: list[Evaluation]) -> tuple[State, bool]:
    """The state after an evaluation (the mean over the datasets of a mixture), and whether it is the best so far."""
    each = [evaluation.numbers() for evaluation in evaluations]
    metrics = {
        name: sum(numbers[name] for numbers in each) / len(each) for name in each[0] if all(name in n for n in each)
    }
    metric = state.metric
    if metric == "auto":
        metric = "accuracy" if "accuracy" in metrics else "loss"
    if metric not in metrics:
        raise UsageError(f'metric is "{metric}", and the evaluation has {", ".join(metrics)}.')
    value = metrics[metric]
    state = dataclasses.replace(state, metric=metric, metrics=metrics, value=value)
    improved, stale = state.judge(value)
    shown = "  ".join(f"{name} {number:.4f}" for name, number in metrics.items() if name != "records")
    say(f"step {state.step:,} evaluated  {shown}{'  best so far' if improved else ''}")
    return dataclasses.replace(state, best=value if improved else state.best, stale=stale), improved


def _exhausted(state: State, config: TrainConfig) -> bool:
    return 0 < config.patience <= state.stale


class _Signals:
    """Remembers SIGTERM and SIGINT instead of dying of them, while the loop runs."""

    def __init__(self) -> None:
        self.received = ""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "_Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, _: object) -> None:
        self.received = signal.Signals(number).name
        say(f"{self.received}: saving after this call's steps.")
