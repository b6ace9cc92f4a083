"""Export a run's training step and forward pass as programs of jax, which run without TensorFlow and without t5prep.

OUT/train_step.jax       jax.export's artifact of (weights, slots, step, copies, batch, learning_rate) → the same four, metrics
OUT/forward.jax          that of (weights, batch) → {"logits": float32[batch, target_length, vocab_size]}
OUT/state.safetensors    the checkpoint: weights/NAME and slots/NAME/SLOT, float32
OUT/step.json            each argument's shape, dtype and sharding; the mesh; the number of steps made; what metrics are
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from t5prep.errors import UsageError
from t5prep.io import atomic_files
from t5prep.train.model.architecture import Config
from t5prep.train.model.forward import forward, with_mask
from t5prep.train.model.weights import finite
from t5prep.train.published import safetensors_file
from t5prep.train.run import checkpoint_tensors, run
from t5prep.train.runtime.compiling import check_batch
from t5prep.train.runtime.devices import open_layout
from t5prep.train.runtime.programs import METRICS, Program, StepProgram, rows_program, step_program
from t5prep.train.settings import config as configs
from t5prep.train.settings.config import TrainConfig
from t5prep.train.settings.padding import Padding
from t5prep.train.step.step import batch_specs, dtype_of, shape_of

ARGUMENTS = ("weights", "slots", "step", "copies", "batch", "learning_rate")


def export_step(
    model: str, *, out: str, which: str = "best", platform: str = "cpu", devices: int = 1, dtype: str = ""
) -> str:
    """Write the step and the forward pass of a run with a checkpoint's state; return the checkpoint's name.

    platform: "cpu", "cuda" or "tpu", none of which needs to be here; devices: how many, in replicas of the run's `shard`.
    dtype: that of products, as the run's by default. Batch and lengths are the run's. Raises OutputError, UsageError.
    """
    opened = run.open_model(model, which=which)
    if opened.state is None:
        raise UsageError(f"{model} is no run, so it has no step. Train one from it: t5prep train --model {model} ...")
    if opened.adapter:
        raise UsageError(f"{model} was trained with adapters: export a whole model with --format hf --merge.")
    config = configs.build(opened.state.config)
    config = dataclasses.replace(config, dtype=dtype or config.dtype)
    shape, padding = shape_of(config, opened.config), Padding.of_dataset(opened.manifests[0])
    lengths = {
        "input_length": max(one.settings.input_length for one in opened.manifests),
        "target_length": max(one.settings.target_length for one in opened.manifests),
        "packed": opened.settings.layout == "packed",
    }
    step, passed = programs(shape, config, platform=platform, devices=devices, padding=padding, **lengths)
    state = checkpoint_tensors.restore(opened.name, step.variables)
    write(Path(out), step, passed, state.weights, state.slots, number=opened.state.step)
    return opened.name


def programs(
    shape: Config, config: TrainConfig, *, platform: str, devices: int, padding: Padding | None = None, **lengths: Any
) -> tuple[StepProgram, Program]:
    """Return the step and the forward pass for devices of a platform. `padding` and `lengths`: as for `step_program`."""
    shard = 1 if config.shard == "auto" else int(config.shard)
    if devices % shard:
        raise UsageError(f"--devices {devices}: the model is split over {shard} devices: take a multiple of {shard}.")
    # The CPU's logical devices stand for those of the platform: nothing is run on them.
    layout = dataclasses.replace(open_layout(replicas=devices // shard, shard=shard), target=platform)
    check_batch(config, layout.replicas)
    dtype, masking = dtype_of(config.dtype, platform=platform), padding or Padding.of_model(shape)

    def logits(weights: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"logits": forward(weights, shape, with_mask(batch, masking), dtype=dtype)}

    rows = batch_specs(config.batch, **lengths)
    passed = rows_program("forward", logits, shape=shape, layout=layout, batch=rows, dtype=dtype)
    return step_program(shape, config, layout=layout, padding=padding, **lengths), passed


def write(
    out: Path,
    step: StepProgram,
    passed: Program,
    weights: Mapping[str, Any],
    slots: Mapping[str, Mapping[str, Any]],
    *,
    number: int,
) -> None:
    """Write a step, a forward pass and the state after `number` steps, whole or not at all. Raises OutputError."""
    tensors = {f"weights/{name}": value for name, value in weights.items()}
    tensors |= {f"slots/{name}/{slot}": value for name, of_weight in slots.items() for slot, value in of_weight.items()}
    about = {
        "step": number,
        "jax": jax.__version__,
        "platform": passed.layout.platform,
        "mesh": dict(passed.layout.mesh.shape),
        "arguments": jax.tree.map(_described, dict(zip(ARGUMENTS, step.program.arguments, strict=True))),
        "metrics": METRICS,
    }
    with atomic_files.whole_directory(out) as place:
        atomic_files.write_whole(place / "train_step.jax", step.program.exported())
        atomic_files.write_whole(place / "forward.jax", passed.exported())
        with atomic_files.whole(place / "state.safetensors") as file:
            shapes = {name: value.shape for name, value in tensors.items()}
            safetensors_file.write(file, shapes, lambda name: finite(tensors, name).astype(np.float32))
        atomic_files.write_whole(place / "step.json", (json.dumps(about, indent=1) + "\n").encode())


def _described(argument: jax.ShapeDtypeStruct) -> dict[str, Any]:
    """Return an argument in JSON; its sharding names the mesh's axis of each dimension, or null."""
    return {"shape": argument.shape, "dtype": argument.dtype.name, "sharding": list(argument.sharding.spec)}
