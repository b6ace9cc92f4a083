"""What PyTorch's encoders make of small models of tags, of labels and of a number: the reference of tests/training/test_objectives.py.

    python tests/torch_targets.py OUT

For each of JOBS, OUT gets a directory in Hugging Face layout and `reference.npz`: a batch, its logits, the losses that
transformers itself computes from its labels before each of ten steps of AdamW, and the gradients of the first. A program
of its own, as torch_encoders.py is.
"""

import sys
from pathlib import Path

import numpy as np
from torch_encoders import T5_TYPES, TYPES, draw_batch
from torch_steps import train

TARGETS = {"labels": "multi_label_classification", "number": "regression", "tags": None}
OF_TAGS = ("bert", "distilbert", "roberta", "albert", "electra", "modernbert", "deberta", "eurobert", "t5_1_1")
# Name → its type's config, and what it learns.
JOBS = {f"{name}-tags": ({**TYPES, **T5_TYPES}[name], "tags") for name in OF_TAGS}
JOBS |= {
    f"{name}-{target}": (TYPES[name], target) for name in ("bert", "modernbert") for target in ("labels", "number")
}


def draw_labels(target: str, texts: np.ndarray) -> np.ndarray:
    """Labels as records have them: a tag at some tokens and -100 elsewhere; 0 or 1 for each of three; a float32."""
    rng = np.random.default_rng(2)
    if target == "tags":
        return np.where((texts > 0) & (rng.random(texts.shape) < 0.6), rng.integers(0, 3, texts.shape), -100)
    return rng.integers(0, 2, (len(texts), 3)) if target == "labels" else rng.normal(size=(len(texts), 1)).astype("f4")


def _write(config: dict, target: str, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

    torch.manual_seed(0)
    settings = AutoConfig.for_model(**{**config, "num_labels": 1 if target == "number" else 3})
    settings.problem_type = TARGETS[target]
    kind = AutoModelForTokenClassification if target == "tags" else AutoModelForSequenceClassification
    model = kind.from_config(settings, attn_implementation="eager").train()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.0 if parameter.dim() > 1 else 0.5, std=0.3)
    model.save_pretrained(folder)
    batch = draw_batch(settings.pad_token_id)
    labels = batch["labels"] = draw_labels(target, batch["texts"])
    inputs = {"input_ids": torch.tensor(batch["ids"]), "attention_mask": torch.tensor((batch["texts"] > 0).astype(int))}
    if getattr(settings, "type_vocab_size", 1) > 1:
        inputs["token_type_ids"] = torch.tensor(np.maximum(batch["texts"] - 1, 0))
    inputs["labels"] = torch.tensor(labels if target != "labels" else labels.astype("f4"))
    logits = model(**inputs).logits.detach().numpy()
    np.savez(folder / "reference.npz", logits=logits, **batch, **train(model, lambda: model(**inputs).loss))


if __name__ == "__main__":
    for own_name, (own_config, own_target) in JOBS.items():
        _write(own_config, own_target, Path(sys.argv[1]) / own_name)
