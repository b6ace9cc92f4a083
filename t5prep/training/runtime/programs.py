"""Make jax programs for `train` and `plan`: the training step, and functions of rows (scores, answers)."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from jax.sharding import PartitionSpec

from t5prep.training.model.architecture import Config
from t5prep.training.model.lora import merged, trained_layouts
from t5prep.training.runtime.layout import ROWS, Layout
from t5prep.training.runtime.lowering import Lowered, Structure, embed, lower, specs
from t5prep.training.runtime.state import Arrays, Step, StepResult, Variables
from t5prep.training.settings.padding import Padding
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step.step import Sums, TrainStep, batch_specs, dtype_of, optimizer_of, shape_of

METRICS = ("loss", "accuracy", "gradient_norm")  # the float32[3] that a step returns


@dataclasses.dataclass(frozen=True)
class Program:
    """A jax program for the devices of a layout, not yet compiled.

    `arguments` holds a jax.ShapeDtypeStruct with a sharding for each argument, nested like the arguments. `results` holds the
    shardings of the results. `donated`: the numbers of the arguments whose memory the results reuse.
    """

    name: str
    layout: Layout
    function: Callable[..., object]
    arguments: tuple[object, ...]
    results: object
    donated: tuple[int, ...] = ()

    @functools.cached_property
    def lowered(self) -> jax.stages.Lowered:
        """Return the program lowered by jax, ready to be compiled."""
        jitted = jax.jit(self.function, out_shardings=self.results, donate_argnums=self.donated, keep_unused=True)
        return jitted.lower(*self.arguments)

    @functools.cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the program's text, which depends on the layout but not on the machine."""
        return hashlib.sha256(self.lowered.as_text().encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class StepProgram:
    """A training step: (*`state.Variables`, batch, learning_rate) → (*`state.Variables`, `METRICS`).

    The variables are donated: a step overwrites their memory. `variables` holds the shape, dtype and sharding of each.
    """

    program: Program
    variables: Variables


def step_program(
    shape: Config,
    config: TrainConfig,
    *,
    layout: Layout,
    input_length: int,
    target_length: int,
    packed: bool = False,
    padding: Padding | None = None,
) -> StepProgram:
    """Return the training step of a model with the config `shape`, for `config.batch` rows over all replicas of the layout.

    With `config.dtype` "auto", products are float32 on a CPU and bfloat16 elsewhere. `packed`: rows hold several examples.
    `padding`: of the dataset; None if no dataset is known, as in `plan`.
    """
    shape = shape_of(config, shape)
    optimizer, layouts = optimizer_of(config), trained_layouts(shape)
    dtype = dtype_of(config.dtype, platform=layout.platform)
    step = TrainStep(shape, optimizer, config, dtype, padding or Padding.of_model(shape))
    weights = layout.weights(shape)
    slots = layout.slots(shape, {name: optimizer.slot_shapes(variable) for name, variable in layouts.items()})
    copies = {name: weights[name].update(dtype=dtype.as_numpy_dtype) for name in step.rounded}
    variables = Variables(weights, slots, layout.scalar(np.int32), copies)
    rows = batch_specs(
        config.batch // layout.replicas, input_length=input_length, target_length=target_length, packed=packed
    )
    global_batch = {
        name: jax.ShapeDtypeStruct((config.batch, *spec.shape[1:]), np.int32, sharding=layout.by_rows)
        for name, spec in rows.items()
    }
    lower_step = functools.partial(lower, dtype=dtype)
    variable_specs, rate = specs(variables), layout.scalar(np.float32)
    gradients = lower_step(step.gradients, variable_specs.weights, rows, variable_specs.step, variable_specs.copies)
    # The gradients of several replicas are added up in float32; those of a single replica keep their dtype.
    widened = (
        gradients.outputs
        if layout.replicas == 1
        else ({name: variable_specs.weights[name] for name in layouts}, gradients.outputs[1])
    )
    update = lower_step(
        step.update,
        variable_specs.weights,
        variable_specs.slots,
        *widened,
        variable_specs.step,
        specs(rate),
        variable_specs.copies,
    )
    function, results = _step(gradients, update, layout), jax.tree.map(lambda spec: spec.sharding, variables)
    program = Program(
        "train_step",
        layout,
        function,
        (*variables, global_batch, rate),
        (*results, layout.everywhere),
        donated=tuple(range(len(variables))),
    )
    return StepProgram(program, variables)


def rows_program(
    name: str,
    function: Callable[..., Mapping[str, tf.Tensor]],
    *,
    shape: Config,
    layout: Layout,
    batch: Mapping[str, tf.TensorSpec],
    dtype: tf.DType = tf.float32,
    weights: Mapping[str, jax.ShapeDtypeStruct] | None = None,
) -> Program:
    """Return `function(weights, batch)` as a program. Its results are a dict of tensors, whose first axis is the batch's rows.

    Each replica computes its own rows, and every device gets all results. batch: the specs of the whole batch. dtype: the dtype of
    matrix products. weights: the specs of the weights that the function takes; None for all, in float32.
    """
    weights = dict(layout.weights(shape) if weights is None else weights)
    replica_batch = {
        name: tf.TensorSpec([spec.shape[0] // layout.replicas, *spec.shape[1:]], spec.dtype)
        for name, spec in batch.items()
    }
    computed = lower(lambda w, rows: function(merged(w, shape), rows), specs(weights), replica_batch, dtype=dtype)
    run = _function(computed, layout)
    if layout.replicas > 1:
        replicated_spec, rows = PartitionSpec(), PartitionSpec(ROWS)
        run = jax.shard_map(
            run, mesh=layout.mesh, in_specs=(replicated_spec, rows), out_specs=rows, axis_names={ROWS}, check_vma=False
        )
    placed = {
        name: jax.ShapeDtypeStruct(tuple(spec.shape), spec.dtype.as_numpy_dtype, sharding=layout.by_rows)
        for name, spec in batch.items()
    }
    return Program(name, layout, run, (weights, placed), layout.everywhere)


def _step(
    gradients: Lowered[tuple[Arrays, Sums]],
    update: Lowered[tuple[Arrays, dict[str, Arrays], Arrays, Arrays]],
    layout: Layout,
) -> Step:
    """Return the function of a step: gradients on each replica, their sum over the replicas, and the update."""
    gradients_of, updated = _function(gradients, layout), _function(update, layout)
    replicas = layout.replicas

    def run(
        weights: Arrays,
        slots: dict[str, Arrays],
        step: jax.Array,
        copies: Arrays,
        batch: Arrays,
        rate: jax.Array,
        replica: jax.Array,
    ) -> StepResult:
        of_weights, sums = gradients_of(weights, batch, step * replicas + replica[0], copies)
        if replicas > 1:
            of_weights = {name: gradient.astype(jnp.float32) for name, gradient in of_weights.items()}
            of_weights, sums = jax.lax.psum((of_weights, sums), ROWS)
        weights, slots, metrics, copies = updated(weights, slots, of_weights, Sums(*sums), step, rate, copies)
        return weights, slots, step + 1, copies, jnp.stack([metrics[name] for name in METRICS])

    if replicas > 1:
        replicated_spec, rows = PartitionSpec(), PartitionSpec(ROWS)
        run = jax.shard_map(
            run,
            mesh=layout.mesh,
            in_specs=(replicated_spec, replicated_spec, replicated_spec, replicated_spec, rows, replicated_spec, rows),
            out_specs=replicated_spec,
            axis_names={ROWS},
            check_vma=False,
        )

    def train_step(
        weights: Arrays, slots: dict[str, Arrays], step: jax.Array, copies: Arrays, batch: Arrays, rate: jax.Array
    ) -> StepResult:
        return run(weights, slots, step, copies, batch, rate, jnp.arange(replicas, dtype=jnp.int32))

    return train_step


def _function(lowered: Lowered[Structure], layout: Layout) -> Callable[..., Structure]:
    """Return a jax function with the arguments and results of the TensorFlow function that was lowered."""
    run, structure = embed(lowered.module, platform=layout.platform).call, jax.tree.structure(lowered.outputs)

    def call(*inputs: object) -> Structure:
        return jax.tree.unflatten(structure, run(*jax.tree.leaves(inputs)))

    return call
