"""The training step as the program that a TPU would be given, made on any machine and never run.

What is lowered is `step.TrainStep` itself. Weights and slots are variables of the right shapes whose memory nobody touches,
so that a model of 11 billion weights can be lowered on a laptop.
"""

import dataclasses
import math
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from t5prep.train.config import TrainConfig
from t5prep.train.model.t5_config import ModelConfig
from t5prep.train.model.weight_layout import weight_layouts
from t5prep.train.parts import optimizer_of, options_of, schedule_of
from t5prep.train.step import Batch, Tensors, TrainStep, batch_specs

# Of a schedule only its shape is in the program; its length is a constant there.
STEPS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A step as a serialized HloModuleProto, and the bytes of its state: float32 weights and optimizer slots."""

    module: bytes
    weight_bytes: int
    slot_bytes: int


def lower(
    shape: ModelConfig,
    config: TrainConfig,
    *,
    rows: int,
    input_length: int,
    target_length: int,
    packed: bool = False,
    replicas: int = 1,
) -> Lowered:
    """The step of one of `replicas` devices, each with `rows` rows of the batch (config.batch is not looked at).

    `auto` precision is bfloat16 here, as it is on a TPU.
    """
    layouts, optimizer = weight_layouts(shape), optimizer_of(config)
    slots = {name: optimizer.slot_shapes(layout) for name, layout in layouts.items()}
    dtype = tf.bfloat16 if config.dtype == "auto" else tf.as_dtype(config.dtype)
    step = TrainStep(
        config=dataclasses.replace(shape, dropout_rate=config.dropout),
        weights={name: _untouched(layout.shape) for name, layout in layouts.items()},
        optimizer=optimizer,
        slots={name: {slot: _untouched(size) for slot, size in own.items()} for name, own in slots.items()},
        step=tf.Variable(0, dtype=tf.int64, trainable=False),
        schedule=schedule_of(config, steps=STEPS),
        options=options_of(config, dtype=dtype),
    )
    specs = batch_specs(rows, input_length=input_length, target_length=target_length, packed=packed)

    def run(*tensors: tf.Tensor) -> Tensors:
        batch: Batch = dict(zip(specs, tensors, strict=True))
        return step(batch) if replicas == 1 else step.run(batch, replica=_Replica(replicas))

    program = tf.function(run, jit_compile=True, autograph=False)
    return Lowered(
        module=program.experimental_get_compiler_ir(*specs.values())(stage="hlo_serialized"),
        weight_bytes=4 * sum(math.prod(layout.shape) for layout in layouts.values()),
        slot_bytes=4 * sum(math.prod(size) for own in slots.values() for size in own.values()),
    )


class _Replica:
    """One of several replicas in one XLA program: what TrainStep asks of tf.distribute's context, without devices."""

    def __init__(self, replicas: int):
        self.num_replicas_in_sync = replicas
        self.strategy = tf.distribute.get_strategy()

    @property
    def replica_id_in_sync_group(self) -> tf.Tensor:
        """This replica's number, known only when the program runs."""
        return gen_xla_ops.xla_replica_id()

    def all_reduce(self, _: tf.distribute.ReduceOp, values: Any) -> Any:
        """The sum over the replicas, which is the only reduction of a step, as XLA's own operation."""
        group = tf.constant([list(range(self.num_replicas_in_sync))])
        return tf.nest.map_structure(
            lambda value: gen_xla_ops.xla_all_reduce(value, group, reduce_op="Add", mode="CrossReplica"), values
        )


def _untouched(shape: tuple[int, ...]) -> tf.Variable:
    """A float32 variable whose pages the operating system never has to provide."""
    return tf.Variable(tf.raw_ops.Empty(shape=shape, dtype=tf.float32), trainable=False)
