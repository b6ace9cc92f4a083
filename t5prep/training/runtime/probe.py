"""Check the devices of a machine: describe them, and run one tiny training step on them."""

import importlib.metadata
import math
from typing import TypedDict

import jax
import numpy as np

from t5prep.errors import T5prepError
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.weights import random_weights
from t5prep.training.runtime.compiling import compile_now
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.programs import step_program
from t5prep.training.runtime.state import begin, put_rows
from t5prep.training.settings.train_config import TrainConfig

TOY = ModelConfig(vocab_size=128, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_decoder_layers=1, num_heads=2)


class Devices(TypedDict):
    """A description of devices. `memory` is the memory of one device in bytes, 0 if unknown; `loss` that of a tiny step."""

    devices: int
    kind: str
    memory: int
    versions: dict[str, str]
    loss: float


def look(layout: Layout) -> Devices:
    """Run a step of a tiny model on all devices, and return a description of them.

    Raises T5prepError if the loss is not finite.
    """
    loss = tiny_step(layout)
    if not math.isfinite(loss):
        raise T5prepError(
            f"The loss of a tiny training step on {layout.words} is {loss}, so the devices are faulty. "
            "Use other devices.",
            code="device.faulty",
        )
    memory = [device.memory_stats() or {} for device in layout.devices if device.process_index == jax.process_index()]
    names = ("jax", "libtpu") if layout.platform == "tpu" else ("jax",)
    return {
        "devices": len(layout.devices),
        "kind": str(layout.devices[0].device_kind),
        "memory": min((int(device.get("bytes_limit", 0)) for device in memory), default=0),
        "versions": {name: importlib.metadata.version(name) for name in names},
        "loss": loss,
    }


def tiny_step(layout: Layout) -> float:
    """Return the loss of one training step of a tiny model, with one row on each replica, in the default dtype of `train`."""
    config = TrainConfig(batch=layout.replicas, dropout=0.0)
    lowered = step_program(TOY, config, layout=layout, input_length=8, target_length=4)
    variables = begin(random_weights(TOY), lowered.variables)
    _, hosts = layout.row_reader
    ids = np.full([config.batch // hosts, 8], 5, np.int32)
    rows = put_rows({"input_ids": ids, "labels": ids[:, :4]}, layout)
    *_, metrics = compile_now(lowered.program)(*variables, rows, np.float32(1e-3))
    return float(np.asarray(metrics)[0])
