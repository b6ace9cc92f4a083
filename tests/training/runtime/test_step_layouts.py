"""One step, many layouts: 20 steps on one device, in parts, on replicas, split, and both, beside PyTorch's."""

import dataclasses
import functools
import json
import os
from collections.abc import Callable

import forked_commands
import lowered_programs
import numpy as np
import pytest
import tensorflow as tf
import torch_process

from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.weights import random_weights, save_weights
from t5prep.training.runtime import compiling, programs
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.lowering import lower
from t5prep.training.runtime.programs import METRICS, StepProgram, step_program
from t5prep.training.runtime.state import Variables, begin, put_rows, put_weights, with_copies
from t5prep.training.settings.train_config import TrainConfig

STEPS, ROWS, INPUT, TARGET = 20, 8, 12, 6
SHAPE = {
    "vocab_size": 128,
    "d_model": 32,
    "d_kv": 4,
    "d_ff": 48,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 8,
}
MODELS = {
    "t5": ModelConfig(**SHAPE),
    "t5_1_1": ModelConfig(
        **SHAPE, feed_forward_proj="gated-gelu", tie_word_embeddings=False, scale_decoder_outputs=False
    ),
    "tied gated": ModelConfig(**SHAPE, feed_forward_proj="gated-gelu"),
}
# Replicas, devices of each, and the parts whose gradients are accumulated. Each takes seconds to compile: every layout is run
# with one model, and T5 and T5 1.1 on several devices that are replicas, split, and accumulate at once.
LAYOUTS = {
    "t5": [(1, 1, 1), (2, 2, 2)],
    "t5_1_1": [(1, 1, 1), (8, 1, 1), (1, 8, 1), (2, 2, 2)],
    "tied gated": [(1, 1, 1)],
}
CONFIG = TrainConfig(batch=ROWS, optimizer="adamw", dtype="float32", dropout=0.0, z_loss=0.0)
RATE = 1e-3


def batches() -> list[dict[str, np.ndarray]]:
    """Rows with padding, without; with all targets, some, and none."""
    rng = np.random.default_rng(0)
    batch_list = []
    for _ in range(STEPS):
        mask = np.arange(INPUT) < rng.integers(3, INPUT + 1, (ROWS, 1))
        labels = rng.integers(2, 128, (ROWS, TARGET))
        labels[np.arange(TARGET) >= rng.integers(0, TARGET + 1, (ROWS, 1))] = -100
        labels[0, 0] = 3
        batch = {"input_ids": rng.integers(2, 128, (ROWS, INPUT)) * mask, "attention_mask": mask, "labels": labels}
        batch_list.append({name: value.astype(np.int32) for name, value in batch.items()})
    return batch_list


@functools.cache
def compiled(model: str, layout: Layout, config: TrainConfig) -> tuple[StepProgram, Callable]:
    lowered_step = step_program(MODELS[model], config, layout=layout, input_length=INPUT, target_length=TARGET)
    return lowered_step, compiling.compile_program(lowered_step.program)


def losses(model: str, layout: Layout, config: TrainConfig = CONFIG, *, resumed: int = 0) -> list[float]:
    """Train, and begin again with the same variables before step `resumed`."""
    shape, (lowered_step, step) = MODELS[model], compiled(model, layout, config)
    variables = begin(random_weights(shape), lowered_step.variables)
    loss_values = []
    for number, batch in enumerate(batches()):
        if number == resumed:
            variables = with_copies(variables, lowered_step.variables)
        sent = {name: ids for name, ids in batch.items() if name != "attention_mask"}  # the step computes it
        *state, metrics = step(*variables, put_rows(sent, layout), np.float32(RATE))
        variables = Variables(*state)
        loss_values.append(float(np.asarray(metrics)[METRICS.index("loss")]))
    assert int(variables.step) == STEPS
    return loss_values


THEIRS = """
import json, sys
import numpy as np, torch
from transformers import AutoModelForSeq2SeqLM
batches, rate, *places = sys.argv[1:]
found = []
for place in places:
    model = AutoModelForSeq2SeqLM.from_pretrained(place).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(rate), weight_decay=0.0)
    found.append([])
    for batch in json.load(open(batches)):
        optimizer.zero_grad()
        loss = model(**{name: torch.tensor(value) for name, value in batch.items()}).loss
        loss.backward()
        optimizer.step()
        found[-1].append(loss.item())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """PyTorch's losses of each model."""
    folder = tmp_path_factory.mktemp("models")
    for model, shape in MODELS.items():
        save_weights(folder / model, shape, random_weights(shape))
        (folder / model / "config.json").write_text(json.dumps(shape.to_json() | {"dropout_rate": 0.0}))
    (folder / "batches.json").write_text(json.dumps([{k: v.tolist() for k, v in batch.items()} for batch in batches()]))
    arguments = [folder / "batches.json", str(RATE), *(folder / model for model in MODELS)]
    return dict(zip(MODELS, json.loads(torch_process.pytorch_code(THEIRS, *arguments)), strict=True))


@pytest.mark.extra("torch")
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_layout_makes_the_losses_of_one_device_and_of_pytorch(model: str, theirs: dict[str, list[float]]) -> None:
    """Twenty steps with Adam in each layout of devices; other tests of PyTorch compute on one device."""
    losses_by_layout: dict[object, list[float]] = {
        (replicas, shard, parts): losses(
            model, open_layout(replicas=replicas, shard=shard), dataclasses.replace(CONFIG, accumulate=parts)
        )
        for replicas, shard, parts in LAYOUTS[model]
    }
    losses_by_layout["torch"] = theirs[model]
    for name, loss_values in losses_by_layout.items():
        assert loss_values == pytest.approx(losses_by_layout[1, 1, 1], abs=3e-6), (
            name
        )  # of losses above 5: six units of float32


@pytest.mark.slow
def test_with_dropout_a_layout_makes_the_same_losses_again_bit_by_bit() -> None:
    """Dropout on replicas and split models is a function of seed and step alone."""
    dropping = dataclasses.replace(CONFIG, dropout=0.1, optimizer="adafactor")
    layout = open_layout(replicas=2, shard=4)
    once = losses("t5", layout, dropping)
    assert once == losses("t5", layout, dropping)
    assert once[0] != losses("t5", open_layout(replicas=2, shard=2), dataclasses.replace(CONFIG, accumulate=2))[0]


@pytest.mark.slow
def test_copies_in_bfloat16_are_the_rounded_weights_bit_by_bit() -> None:
    """So a run that goes on, with new copies, makes the losses of one that was never stopped."""
    layout, rounding = open_layout(replicas=1), dataclasses.replace(CONFIG, dtype="bfloat16")
    lowered_step, _ = compiled("t5", layout, rounding)
    assert {"encoder.q", "decoder.cross_kv", "decoder.wo"} < lowered_step.variables.copies.keys()
    assert not {"shared", "encoder.norms", "encoder.relative_bias"} & lowered_step.variables.copies.keys()
    loss_values = losses("t5", layout, rounding)
    assert loss_values == losses("t5", layout, rounding, resumed=9)
    assert loss_values == pytest.approx(losses("t5", layout), abs=0.1)


def test_each_device_holds_its_part() -> None:
    """Of what is split, an eighth; the norms whole."""
    shape, layout = MODELS["t5"], open_layout(replicas=1, shard=8)
    weights = put_weights(random_weights(shape), layout.weights(shape))
    sizes = {name: value.size for name, value in weights.items()}
    device_sizes = {name: value.addressable_shards[3].data.size for name, value in weights.items()}
    assert {name for name in sizes if device_sizes[name] == sizes[name]} == {
        *("encoder.norms", "encoder.final_norm", "decoder.norms", "decoder.final_norm"),
    }
    assert all(device_sizes[name] * 8 == sizes[name] for name in sizes if "norm" not in name)
    host_weights = {name: np.asarray(value) for name, value in weights.items()}
    assert all(np.array_equal(host_weights[name], value) for name, value in random_weights(shape).items())


@pytest.mark.slow
def test_a_program_has_the_same_digest_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """And after others were lowered, which TensorFlow numbers."""
    monkeypatch.setattr(programs, "lower", lower)  # not as the fixture `lowered_once` has it
    code = (
        "from t5prep.training.runtime import probe\n"
        "from t5prep.training.runtime.devices import open_layout\n"
        "from t5prep.training.runtime.programs import step_program\n"
        "from t5prep.training.settings.train_config import TrainConfig\n"
        "layout = open_layout(replicas=2, shard=2)\n"
        "made = step_program(probe.TOY, TrainConfig(batch=4), layout=layout, input_length=8, target_length=4)\n"
        "print(made.program.digest)"
    )
    from t5prep.training.runtime import probe

    for _ in range(3):
        lower(tf.nn.relu, tf.TensorSpec([2], tf.float32))
    layout = open_layout(replicas=2, shard=2)
    lowered_step = step_program(probe.TOY, TrainConfig(batch=4), layout=layout, input_length=8, target_length=4)
    environment = {name: value for name, value in os.environ.items() if name != lowered_programs.VARIABLE}
    output, error = forked_commands.start_code(code, environment=environment).communicate()
    assert output.decode().split()[-1:] == [lowered_step.program.digest], error.decode()
    z_loss_step = step_program(
        probe.TOY, TrainConfig(batch=4, z_loss=0.5), layout=layout, input_length=8, target_length=4
    )
    assert z_loss_step.program.digest != lowered_step.program.digest
