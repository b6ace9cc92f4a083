"""Training adapters (LoRA): the losses are peft's, only adapters are saved, and every command reads such a run."""

import dataclasses
import functools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import torch_process
import torch_t5gemma
import toy_runs
from raised import raises

import t5prep
from t5prep.errors import OutputError, UsageError
from t5prep.options.models import ExportOptions
from t5prep.training import trainer
from t5prep.training.model.architecture import ModelConfig, read_config
from t5prep.training.model.lora import adapter_layouts, variable_layouts
from t5prep.training.model.weights import draw, load_weights, random_weights, save_weights
from t5prep.training.publish.export import export_hf
from t5prep.training.run import adapters, checkpoints, run
from t5prep.training.runtime import compiling
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.programs import METRICS, step_program
from t5prep.training.runtime.state import Variables, begin, put_rows
from t5prep.training.settings import train_config
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step.step import shape_of

GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "scale_decoder_outputs": False}
SMALL = {"vocab_size": 128, "d_model": 32, "d_kv": 4, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 1}
MODELS = {"t5": ModelConfig(**SMALL, num_heads=8), "t5_1_1": ModelConfig(**SMALL, num_heads=8, **GATED)}
MODELS |= {
    name: dataclasses.replace(read_config(json.dumps(config).encode(), location=name), vocab_size=128)
    for name, config in torch_t5gemma.MODELS.items()
}
LAYOUTS = {"one": (1, 1), "both": (2, 4)}
CONFIG = TrainConfig(
    batch=8, lora=3, lora_alpha=24.0, optimizer="adamw", weight_decay=0.1, dtype="float32", dropout=0.0, z_loss=0.0
)
RATE, STEPS = 1e-2, 6

# In a process of its own: torch and TensorFlow each bring an LLVM, and the two end the process where both are loaded.
PEFT = """
import json, sys
import numpy as np, torch
from peft import PeftModel
from transformers import AutoModelForSeq2SeqLM
folder, rate, *names = sys.argv[1:]
found = {}
for name in names:
    base = AutoModelForSeq2SeqLM.from_pretrained(f"{folder}/{name}/base", attn_implementation="eager")
    model = PeftModel.from_pretrained(base, f"{folder}/{name}/adapters", is_trainable=True).eval()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=float(rate), weight_decay=0.1)
    losses = []
    for batch in json.load(open(f"{folder}/batches.json")):
        optimizer.zero_grad()
        loss = model(**{name: torch.tensor(value) for name, value in batch.items()}).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    found[name] = losses, sum(parameter.numel() for parameter in trained)
print(json.dumps(found))
"""
LOGITS = """
import sys
import numpy as np, torch
from peft import PeftModel
from transformers import AutoModelForSeq2SeqLM
base, adapters, batch, out = sys.argv[1:]
model = PeftModel.from_pretrained(AutoModelForSeq2SeqLM.from_pretrained(base), adapters).eval()
with torch.no_grad():
    np.save(out, model(**{name: torch.tensor(value).long() for name, value in np.load(batch).items()}).logits.numpy())
"""


def batches() -> list[dict[str, np.ndarray]]:
    """Two batches in turn."""
    rng = np.random.default_rng(0)
    batch_list = []
    for _ in range(2):
        mask = np.arange(12) < rng.integers(3, 13, (8, 1))
        labels = rng.integers(2, 128, (8, 6))
        labels[np.arange(6) >= rng.integers(1, 7, (8, 1))] = -100
        batch = {"input_ids": rng.integers(2, 128, (8, 12)) * mask, "attention_mask": mask, "labels": labels}
        batch_list.append({name: value.astype(np.int32) for name, value in batch.items()})
    return batch_list * (STEPS // 2)


def write_model(folder: Path, shape: ModelConfig, weights: dict[str, np.ndarray]) -> str:
    save_weights(folder, shape, weights)
    (folder / "config.json").write_text(json.dumps(shape.to_json() | {"dropout_rate": 0.0}))
    return str(folder)


@functools.cache
def losses(base: ModelConfig, layout: Layout, config: TrainConfig = CONFIG) -> list[float]:
    """The losses of some steps, after which everything but the adapters is what it was."""
    shape = shape_of(config, base)
    initial = random_weights(base) | draw(adapter_layouts(shape), seed=0)
    lowered_step = step_program(base, config, layout=layout, input_length=12, target_length=6)
    step = compiling.compile_program(lowered_step.program)
    assert not lowered_step.variables.copies
    assert set(lowered_step.variables.slots) == set(adapter_layouts(shape))
    variables = begin(initial, lowered_step.variables)
    loss_values = []
    for batch in batches():
        sent = {name: ids for name, ids in batch.items() if name != "attention_mask"}  # the step computes it
        *state, metrics = step(*variables, put_rows(sent, layout), np.float32(RATE))
        variables = Variables(*state)
        loss_values.append(float(np.asarray(metrics)[METRICS.index("loss")]))
    for name in variable_layouts(shape):
        assert np.array_equal(variables.weights[name], initial[name]) == ("lora" not in name), name
    return loss_values


@pytest.fixture(scope="module")
def of_peft(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[float], int]]:
    """The losses of peft and the number of weights that it trains, of each model, by one process for all."""
    folder = tmp_path_factory.mktemp("peft")
    for model, base in MODELS.items():
        shape, model_folder = shape_of(CONFIG, base), folder / model
        (model_folder / "adapters").mkdir(parents=True)
        write_model(model_folder / "base", base, random_weights(base))
        initial_adapter = adapters.Adapter("base", shape, draw(adapter_layouts(shape), seed=0))
        adapters.write(model_folder / "adapters", initial_adapter, base=str(model_folder / "base"), dtype="float32")
    (folder / "batches.json").write_text(json.dumps([{k: v.tolist() for k, v in batch.items()} for batch in batches()]))
    return dict(json.loads(torch_process.pytorch_code(PEFT, folder, str(RATE), *MODELS)))


@pytest.mark.slow
@pytest.mark.extra("torch", "peft")
@pytest.mark.parametrize("model", MODELS)
def test_every_layout_makes_the_losses_of_peft(model: str, of_peft: dict[str, tuple[list[float], int]]) -> None:
    """Adapters of each family of T5 in each layout, beside peft."""
    base = MODELS[model]
    theirs, trained = of_peft[model]
    shape = shape_of(CONFIG, base)
    assert trained == sum(np.prod(layout.shape) for layout in adapter_layouts(shape).values())
    assert theirs[-2] < theirs[0]
    # Replicas that are split; test_step_layouts has each layout by itself.
    for name in ("one", "both") if model == "t5" else ("one",):
        replicas, shard = LAYOUTS[name]
        ours = losses(base, open_layout(replicas=replicas, shard=shard))
        # T5Gemma 2's losses of peft itself change by 2e-5 where its weights are rounded otherwise, by 6e-8 of themselves.
        assert ours == pytest.approx(theirs, abs=1e-4 if model == "t5gemma2" else 1e-5), name


@pytest.mark.slow
def test_accumulation_remat_and_bfloat16_train_adapters_too() -> None:
    """Adapters with what other tests do with all weights."""
    layout = open_layout(replicas=1, shard=1)
    expected = losses(MODELS["t5"], layout)
    parts = losses(MODELS["t5"], layout, dataclasses.replace(CONFIG, accumulate=2, remat=True))
    assert parts == pytest.approx(expected, abs=1e-5)
    rounded = losses(MODELS["t5"], layout, dataclasses.replace(CONFIG, dtype="bfloat16"))
    assert rounded == pytest.approx(expected, abs=0.05)


@pytest.fixture(scope="module")
def base(toys: Path) -> str:
    shape = dataclasses.replace(ModelConfig.from_json(toy_runs.SHAPE), vocab_size=8192)
    (toys / "base").mkdir()
    return write_model(toys / "base", shape, random_weights(shape, seed=4))


LORA = {"weights": "pretrained", "lora": 4, "optimizer": "adamw"}


@pytest.fixture(scope="module")
def lora_result(toys: Path, data: str, base: str) -> trainer.Result:
    return trainer.train(toy_runs.config(data, base, toys / "run", **LORA))


def test_only_adapters_are_trained_and_checkpointed(lora_result: trainer.Result, base: str) -> None:
    assert lora_result.evaluation is not None
    loss_by_step = toy_runs.losses(lora_result.run)
    assert loss_by_step[12] < loss_by_step[1]
    path, state = checkpoints.best(lora_result.run)
    names = [name for name, _ in tf.train.list_variables(f"{path}/state")]
    assert len(names) > 10
    assert not [name for name in names if "lora" not in name and not name.startswith(("step", "_", "save_counter"))]
    base_size = (Path(base) / "model.safetensors").stat().st_size
    assert sum(state.files.values()) < base_size / 10
    opened = run.open_model(lora_result.run)
    theirs = load_weights(base)[1]
    changed = {name for name, weight in opened.weights.items() if not np.array_equal(weight, theirs[name])}
    assert changed == {name.removesuffix(".lora_a") for name in opened.adapter.weights if name.endswith(".lora_a")}  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_same_losses(
    lora_result: trainer.Result, data: str, base: str, toys: Path
) -> None:
    """A checkpoint of adapters alone goes on from its base."""
    half = toy_runs.config(data, base, toys / "half", **LORA, schedule="constant")
    trainer.train(dataclasses.replace(half, steps=8))
    result = trainer.train(half)
    assert toy_runs.losses(result.run) == toy_runs.losses(lora_result.run)


def test_eval_predict_and_a_new_run_use_the_adapters(lora_result: trainer.Result, data: str, toys: Path) -> None:
    scores = t5prep.evaluate(lora_result.run)
    assert lora_result.evaluation is not None
    assert scores.metrics["loss"] == pytest.approx(lora_result.evaluation.metrics["loss"], abs=1e-5)
    (answer,) = t5prep.predict(lora_result.run, ["quality: closed one"])
    assert answer.prediction is not None
    following = toy_runs.config(data, lora_result.run, toys / "following", weights="pretrained")
    initial_weights, opened = run.start_from(following, ids=8100)[1], run.open_model(lora_result.run)
    assert all(np.array_equal(initial_weights[name], weight) for name, weight in opened.weights.items())


def test_what_is_exported_is_read_back(lora_result: trainer.Result, base: str, toys: Path) -> None:
    opened = run.open_model(lora_result.run)
    export_hf(lora_result.run, out=str(toys / "adapters"))
    export_hf(lora_result.run, out=str(toys / "merged"), options=ExportOptions(merge=True))
    assert not (toys / "adapters" / "model.safetensors").exists()
    adapter_config = json.loads((toys / "adapters" / "adapter_config.json").read_text())
    assert (adapter_config["r"], adapter_config["base_model_name_or_path"]) == (4, base)
    assert "PeftModel" in (toys / "adapters" / "README.md").read_text()
    for folder in ("adapters", "merged"):
        exported_model = run.open_model(str(toys / folder))
        for name, weight in opened.weights.items():
            np.testing.assert_array_equal(exported_model.weights[name], weight)
        assert exported_model.tokenizer is not None
        assert opened.tokenizer is not None
        assert exported_model.tokenizer.sha256 == opened.tokenizer.sha256


@pytest.mark.slow
@pytest.mark.extra("torch", "peft")
def test_peft_loads_what_is_exported(lora_result: trainer.Result, base: str, toys: Path) -> None:
    """peft reads exported adapters, and has our logits."""
    from t5prep.training.model.forward import forward

    opened = run.open_model(lora_result.run)
    export_hf(lora_result.run, out=str(toys / "for_peft"))
    np.savez(toys / "batch.npz", **batches()[0])
    torch_process.pytorch_code(LOGITS, base, toys / "for_peft", toys / "batch.npz", toys / "logits.npy")
    weights = {name: tf.constant(value) for name, value in opened.weights.items()}
    ours = forward(weights, opened.config, {name: tf.constant(value) for name, value in batches()[0].items()})
    np.testing.assert_allclose(ours, np.load(toys / "logits.npy"), atol=1e-5)


def test_a_base_that_changed_is_noticed(lora_result: trainer.Result, base: str, tmp_path: Path) -> None:
    base_folder, copied = tmp_path / "other", str(tmp_path / "run")
    shutil.copytree(lora_result.run, copied)
    config, weights = load_weights(base)
    changed = np.array(weights["encoder.wo"])
    changed[0, 0, 0] += 1e-6
    weights["encoder.wo"] = changed
    base_folder.mkdir()
    write_model(base_folder, config, weights)
    for marker in Path(copied).glob("checkpoints/*/checkpoint.json"):
        state = json.loads(marker.read_text())
        state["config"]["model"] = str(base_folder)
        marker.write_text(json.dumps(state))
    with raises(OutputError, "checkpoint.base-mismatch"):
        run.open_model(copied)
    path, checkpoint_state = checkpoints.best(copied)
    settings = train_config.build(checkpoint_state.config)
    arguments = {"config": settings, "data": checkpoint_state.data, "tokenizer": checkpoint_state.tokenizer}
    checkpoints.check(path, checkpoint_state, **arguments, base=checkpoint_state.base)
    with raises(UsageError, "checkpoint.base-mismatch"):
        checkpoints.check(path, checkpoint_state, **arguments, base=adapters.digest(weights))
    base_folder.rename(tmp_path / "moved")
    with raises(UsageError, "hub.not-found"):
        run.open_model(copied)


@pytest.mark.slow
def test_adapters_that_nobody_else_can_use_are_not_exported_alone(data: str, base: str, toys: Path) -> None:
    """Adapters of random weights are only exported merged."""
    config = toy_runs.config(data, base, toys / "of_random", **{**LORA, "weights": "random"}, steps=1)
    trainer.train(config)
    with raises(UsageError, "weights.private-base"):
        export_hf(config.out, out=str(toys / "alone"))
    export_hf(config.out, out=str(toys / "whole"), options=ExportOptions(merge=True))
    assert (toys / "whole" / "model.safetensors").is_file()
    with raises(UsageError, "option.inapplicable"):
        export_hf(str(toys / "whole"), out=str(toys / "twice"), options=ExportOptions(merge=True))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"use_dora": True}, ("weights.unsupported-adapter", "use_dora=True")),
        ({"r": 0}, ("weights.unsupported-adapter", "r=0")),
        ({"peft_type": ("weights.unsupported-adapter", "IA3")}, ("weights.unsupported-adapter", "IA3")),
        ({"base_model_name_or_path": None}, ("weights.missing-base",)),
        ({"r": 5}, ("weights.shape-mismatch",)),
    ],
)
def test_other_adapters_are_refused_in_a_sentence(
    lora_result: trainer.Result, toys: Path, tmp_path: Path, change: dict[str, object], match: tuple[str, ...]
) -> None:
    export_hf(lora_result.run, out=str(tmp_path / "adapters"))
    path = tmp_path / "adapters" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with raises(UsageError, *match):
        run.open_model(str(tmp_path / "adapters"))
