"""One training step: gradients of the summed loss, added up over micro-batches and replicas, then one update.

The same step runs on one device, where it is one XLA program; on the replicas of a tf.distribute strategy, through
`strategy.run(step, (batch,))`; and through the TPU compiler without a TPU (`lowerable`).
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from t5prep.errors import UsageError
from t5prep.train.loss import Sums, summed_loss
from t5prep.train.model.sums import row_and_column_sums
from t5prep.train.model.t5 import forward
from t5prep.train.model.t5_config import ModelConfig
from t5prep.train.model.weight_layout import weight_layouts
from t5prep.train.optimizer import Optimizer
from t5prep.train.schedules import Schedule

Batch = Mapping[str, tf.Tensor]
Tensors = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class StepOptions:
    """What a step does besides model, optimizer and schedule.

    clip_norm: gradients are scaled down to this norm over all weights together. accumulation: each replica's batch is
    cut into this many parts, one after the other in memory. dropout: at the config's rate, with masks from `seed` and
    the step.
    """

    dtype: tf.DType = tf.float32
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    clip_norm: float | None = None
    accumulation: int = 1
    remat: bool = False
    dropout: bool = True
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """A step over the variables it is given: call it with one replica's batch, and it updates them.

    weights: of `weights.create_variables`; slots: of `optimizer.create_slots`; step: an int64 scalar variable, the
    number of updates made. All three are made in the strategy's scope where there is one.

    Replicas that are logical CPUs want `cross_device_ops=tf.distribute.ReductionToOneDevice()` of MirroredStrategy: with
    its default, a second strategy in the same process joins the first one's collectives and fails.
    """

    config: ModelConfig
    weights: Mapping[str, tf.Variable]
    optimizer: Optimizer
    slots: Mapping[str, Mapping[str, tf.Variable]]
    step: tf.Variable
    schedule: Schedule
    options: StepOptions = StepOptions()

    def __call__(self, batch: Batch) -> Tensors:
        """Make one update; batch: int32[rows of this replica, length] each, see `model.forward`.

        Gives float32 scalars, of all replicas together: `loss` and `accuracy` over all targets, `targets`, the
        `gradient_norm` before clipping, `learning_rate`.
        """
        return self.run(batch, replica=tf.distribute.get_replica_context())

    def run(self, batch: Batch, *, replica: Any) -> Tensors:
        """As a call, on a given replica: a tf.distribute.ReplicaContext, or what `lowering` describes one with."""
        step = tf.convert_to_tensor(self.step)
        weights = {name: tf.convert_to_tensor(variable) for name, variable in self.weights.items()}
        slots = {name: {slot: tf.convert_to_tensor(v) for slot, v in own.items()} for name, own in self.slots.items()}
        gradients_of, updated = self._halves(replica)
        number = tf.cast(replica.replica_id_in_sync_group, tf.int32)
        index = tf.cast(step, tf.int32) * replica.num_replicas_in_sync + number
        gradients, sums = gradients_of(weights, dict(batch), index)
        if replica.num_replicas_in_sync > 1:
            gradients = {name: tf.cast(gradient, tf.float32) for name, gradient in gradients.items()}
            gradients, sums = replica.all_reduce(tf.distribute.ReduceOp.SUM, (gradients, sums))
        weights, slots, metrics = updated(weights, slots, gradients, sums, step)
        for name, variable in self.weights.items():
            _assign(variable, weights[name], replica)
            for slot, own in self.slots[name].items():
                _assign(own, slots[name][slot], replica)
        _assign(self.step, step + 1, replica)
        return metrics

    def gradients(self, weights: Tensors, batch: Batch, index: tf.Tensor) -> tuple[Tensors, Sums]:
        """Of the summed loss of one replica's batch, in the precision they were found in, and its sums. index: int32, one
        for each step and replica."""
        parts = self.options.accumulation
        rows = batch["labels"].shape[0]
        if rows % parts:
            raise UsageError(
                f"A replica's batch of {rows} rows cannot be cut into {parts} equal parts: make accumulation a divisor."
            )
        if parts == 1:
            return self.part_gradients(weights, batch, index)
        cut = {name: tf.reshape(x, [parts, rows // parts, *x.shape[1:]]) for name, x in batch.items()}

        def add_part(part: tf.Tensor, total: tuple[Tensors, Sums]) -> tuple[tf.Tensor, tuple[Tensors, Sums]]:
            own = self.part_gradients(weights, {name: x[part] for name, x in cut.items()}, index * parts + part)
            return part + 1, tf.nest.map_structure(lambda sum_, one: sum_ + tf.cast(one, sum_.dtype), total, own)

        zeros = {name: tf.zeros_like(weight) for name, weight in weights.items()}
        begin = (tf.constant(0), (zeros, Sums(*[tf.constant(0.0)] * 3)))
        return tf.while_loop(lambda part, _: part < parts, add_part, begin, maximum_iterations=parts)[1]

    def part_gradients(self, weights: Tensors, batch: Batch, index: tf.Tensor) -> tuple[Tensors, Sums]:
        """Of the summed loss of one micro-batch."""
        options = self.options
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            scores = forward(
                weights,
                self.config,
                batch,
                dtype=options.dtype,
                dropout_seed=tf.stack([options.seed, index]) if options.dropout else None,
                remat=options.remat,
            )
            sums = summed_loss(scores, batch["labels"], label_smoothing=options.label_smoothing, z_loss=options.z_loss)
        gradients = tape.gradient(sums.loss, weights)
        return {name: tf.convert_to_tensor(gradient) for name, gradient in gradients.items()}, sums

    def update(
        self,
        weights: Tensors,
        slots: Mapping[str, Tensors],
        gradients: Tensors,
        sums: Sums,
        step: tf.Tensor,
    ) -> tuple[Tensors, dict[str, Tensors], Tensors]:
        """The next weights and slots, and the step's metrics. A batch without any target leaves gradients of zero."""
        targets = tf.maximum(sums.targets, 1.0)
        factor = 1.0 / targets
        squares = {name: tf.square(tf.cast(gradient, tf.float32)) for name, gradient in gradients.items()}
        sums_of = (row_and_column_sums(x)[0] if x.shape.rank > 1 else x for x in squares.values())
        norm = factor * tf.sqrt(tf.add_n([tf.reduce_sum(x) for x in sums_of]))
        if self.options.clip_norm is not None:
            factor *= tf.minimum(1.0, self.options.clip_norm / tf.maximum(norm, 1e-30))
        rate = self.schedule(step)
        new_weights, new_slots = {}, {}
        for name, layout in weight_layouts(self.config).items():
            new_weights[name], new_slots[name] = self.optimizer.update(
                weights[name], gradients[name], slots[name], layout=layout, learning_rate=rate, step=step, scale=factor
            )
        metrics = {
            "loss": sums.loss / targets,
            "accuracy": sums.correct / targets,
            "targets": sums.targets,
            "gradient_norm": norm,
            "learning_rate": rate,
        }
        return new_weights, new_slots, metrics

    def _halves(self, replica: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """What is before and after the all-reduce: XLA programs of their own where it cannot be inside of one."""
        if replica.num_replicas_in_sync > 1 and isinstance(replica.strategy, tf.distribute.MirroredStrategy):
            return self._compiled_halves
        return self.gradients, self.update

    @functools.cached_property
    def _compiled_halves(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        compile_alone = functools.partial(tf.function, jit_compile=True, autograph=False)
        return compile_alone(self.gradients), compile_alone(self.update)


def batch_specs(rows: int, *, input_length: int, target_length: int, packed: bool = False) -> dict[str, tf.TensorSpec]:
    """The static shapes of one replica's batch, by name."""
    names = {"input_ids": input_length, "attention_mask": input_length, "labels": target_length}
    if packed:
        names |= {"input_segment_ids": input_length, "input_positions": input_length}
        names |= {"label_segment_ids": target_length, "label_positions": target_length}
    return {name: tf.TensorSpec([rows, length], tf.int32, name=name) for name, length in names.items()}


def lowerable(step: TrainStep, specs: Mapping[str, tf.TensorSpec]) -> Any:
    """The step as one XLA program of the batch's tensors in the order of their names in `specs`.

    `lowerable(step, specs).experimental_get_compiler_ir(*specs.values())(stage="stablehlo")` is its text: that method
    takes tensors, no dict of them.
    """

    def run(*tensors: tf.Tensor) -> Tensors:
        return step(dict(zip(specs, tensors, strict=True)))

    return tf.function(run, jit_compile=True, autograph=False)


def _assign(variable: tf.Variable, value: tf.Tensor, replica: Any) -> None:
    """Every replica computes the same update and writes its own copy: nothing need be sent again."""
    number = replica.replica_id_in_sync_group
    copies = replica.strategy.experimental_local_results(variable) if isinstance(number, int) else (variable,)
    (copies[number] if len(copies) > 1 else variable).assign(value, read_value=False)
