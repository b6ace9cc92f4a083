"""Toy runs for tests: a small part of the built-in sample, a T5 of one narrow layer, and settings that end in seconds."""

import dataclasses
import functools
import itertools
import json
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import small_corpora

from t5prep.training.settings.train_config import TrainConfig, build

if TYPE_CHECKING:
    from t5prep.training.model.architecture import ModelConfig
    from t5prep.training.runtime.compiling import CompiledStep
    from t5prep.training.runtime.layout import Layout
    from t5prep.training.runtime.state import Step

SHAPE = {
    "model_type": "t5",
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 1,
    "num_heads": 2,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}


def classes(out: Path, *, rows: int = 90, **choices: Any) -> str:
    """Questions of three classes that a word of the title gives away; inputs of 32 tokens, targets of two."""
    lines = small_corpora.questions(rows, words=12)
    for line, clue in zip(lines, itertools.cycle(["closed", "edited", "fine"]), strict=False):
        line["Title"] = f"{clue} {line['Title']}"
    small_corpora.prepared(
        small_corpora.write_csv(out.with_suffix(".csv"), lines),
        out,
        tokenizer="sample:",
        input_length=32,
        splits={"train": 0.75, "validation": 0.25},
        shards=2,
        **choices,
    )
    return str(out)


def sentences(out: Path, *, rows: int = 60, **choices: Any) -> str:
    """A word and its number in words, back to front: targets of several tokens."""
    numbers = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    lines = [
        {"id": str(n), "q": " ".join(numbers[int(d)] for d in str(n + 100)), "a": str(n + 100)} for n in range(rows)
    ]
    source = small_corpora.write_csv(out.with_suffix(".csv"), lines)
    small_corpora.prepared(
        source,
        out,
        task="text2text",
        tokenizer="sample:",
        options={"inputs_column": "q", "targets_column": "a", "id_column": "id"},
        input_length=16,
        target_length=8,
        splits={"train": 0.75, "validation": 0.25},
        shards=1,
        **choices,
    )
    return str(out)


def shape(out: Path) -> str:
    """A directory with a `config.json` alone: for random weights."""
    out.mkdir(exist_ok=True)
    (out / "config.json").write_text(json.dumps(SHAPE))
    return str(out)


def config(data: str, model: str, out: Path | str, **values: Any) -> TrainConfig:
    """Settings of a run of 12 steps that looks at every step and saves every 4."""
    toy = {
        "data": (data,),
        "model": model,
        "out": str(out),
        "weights": "random",
        "batch": 8,
        "steps": 12,
        "learning_rate": 0.01,
        "eval_every": 4,
        "dropout": 0.0,  # its random bits are most of what a CPU compiles
        "log_every": 1,
        "tensorboard": False,
    }
    return build(toy, values)


def create_run(out: Path, manifest: Any, *, data: str = "data") -> str:
    """A run on a prepared dataset with one checkpoint of random weights, without training."""
    from t5prep.tokens import loading
    from t5prep.training.model.weights import random_weights
    from t5prep.training.run import checkpoints, run

    words = loading.load("sample:")
    shape = dataclasses.replace(run.TINY, vocab_size=words.size, d_model=8, d_kv=4, d_ff=8, num_heads=2)
    settings = build({"model": "m", "data": (data,), "out": str(out)})
    dataset: Any = types.SimpleNamespace(manifest=manifest, path_of=lambda name: f"{data}/{name}")
    run.begin(str(out), config=settings, shape=shape, tokenizer=words, datasets=[dataset])
    data_state = [{"uri": data, "task": manifest.settings.task, "digest": manifest.digest}]
    state = checkpoints.State(step=1, config=dataclasses.asdict(settings), data=data_state, tokenizer="", metric="loss")
    checkpoints.save(str(out), writer(random_weights(shape)), state=state, keep=1)
    return str(out)


def uncompiled(step: "Step") -> "Callable[..., tuple[CompiledStep, Layout]]":
    """Return what stands in for `compiling.compile_step`, and has this step for every model."""
    import numpy as np

    from t5prep.training.model.weight_layout import weight_layouts
    from t5prep.training.runtime.compiling import CompiledStep
    from t5prep.training.runtime.state import Variables
    from t5prep.training.step.step import optimizer_of

    def compile_step(
        shape: "ModelConfig", config: TrainConfig, layouts: "Iterable[Layout]", *_: object, **__: object
    ) -> "tuple[CompiledStep, Layout]":
        optimizer, layout = optimizer_of(config), next(iter(layouts))
        slots = {name: optimizer.slot_shapes(weight) for name, weight in weight_layouts(shape).items()}
        specs = Variables(layout.weights(shape), layout.slots(shape, slots), layout.scalar(np.int32))
        return CompiledStep(step, specs), layout

    return compile_step


def writer(weights: Mapping[str, Any]) -> Callable[[str], None]:
    """Return what `checkpoint.save` calls to write weights alone."""
    import jax

    from t5prep.training.run import checkpoint_tensors
    from t5prep.training.runtime.state import Variables

    variables = Variables(jax.device_put(dict(weights)), {name: {} for name in weights}, jax.numpy.int32(0))
    return functools.partial(checkpoint_tensors.write, parts=checkpoint_tensors.copied(variables))


def losses(run: Path | str) -> dict[int, float]:
    """Step → loss of a run's metrics.jsonl; a step twice is an error."""
    loss_by_step: dict[int, float] = {}
    for line in (Path(run) / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "loss" in entry:
            assert entry["step"] not in loss_by_step
            loss_by_step[entry["step"]] = entry["loss"]
    return loss_by_step


def points(run: Path | str) -> list[tuple[int, str, float]]:
    """Step, name and value of each point of a run's TensorBoard curves, from all of its files, sorted."""
    import tensorflow as tf

    curve_points = []
    for path in (Path(run) / "tensorboard").glob("events*"):
        records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        for event in map(tf.compat.v1.Event.FromString, records):
            curve_points += [
                (event.step, value.tag, float(tf.make_ndarray(value.tensor))) for value in event.summary.value
            ]
    return sorted(curve_points)
