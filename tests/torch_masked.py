"""What PyTorch's masked-language models make of small models: the reference of tests/training/test_masked_language.py.

    python tests/torch_masked.py OUT          makes models, each with a batch, its logits, gradients and ten steps of AdamW
    python tests/torch_masked.py OUT MODEL    loads an exported model, and writes its logits of OUT's batch

A program of its own, because transformers' models and TensorFlow in one process register LLVM's options twice and die.
"""

import json
import sys
from pathlib import Path

import numpy as np
from torch_encoders import TYPES, draw_batch
from torch_steps import train

NAMES = ("bert", "distilbert", "roberta", "albert", "electra_small", "modernbert")


def batch_of(pad: int) -> dict[str, np.ndarray]:
    """Ids of four texts, of which some are hidden: labels are -100 at all other places."""
    batch = draw_batch(pad)
    hidden = np.random.default_rng(2).random(batch["ids"].shape) < 0.3
    labels = np.where(hidden & (batch["texts"] > 0), batch["ids"], -100)
    return {"ids": np.where(labels >= 0, 7, batch["ids"]), "mask": (batch["texts"] > 0).astype(int), "labels": labels}


def _scored(model, batch: dict[str, np.ndarray]):
    import torch

    inputs = {"input_ids": torch.tensor(batch["ids"]), "attention_mask": torch.tensor(batch["mask"])}
    return model(**inputs, labels=torch.tensor(batch["labels"]))


def _write(name: str, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForMaskedLM

    torch.manual_seed(0)
    settings = AutoConfig.for_model(**TYPES[name])
    model = AutoModelForMaskedLM.from_config(settings, attn_implementation="eager").train()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.0 if parameter.dim() > 1 else 0.5, std=0.3)
    model.save_pretrained(folder)
    batch = batch_of(settings.pad_token_id)
    logits = _scored(model, batch).logits.detach().numpy()
    trained = train(model, lambda: _scored(model, batch).loss)
    np.savez(folder / "reference.npz", logits=logits, **batch, **trained)


def _read(folder: Path, exported: Path) -> None:
    import torch
    from transformers import AutoModelForMaskedLM

    model, loading_info = AutoModelForMaskedLM.from_pretrained(exported, output_loading_info=True)
    with torch.no_grad():
        scored = _scored(model.eval(), dict(np.load(folder / "reference.npz")))
    odd = {name: sorted(map(str, loading_info[name])) for name in ("missing_keys", "unexpected_keys")}
    (exported / "said.json").write_text(json.dumps({"class": type(model).__name__, **odd}))
    np.savez(exported / "said.npz", logits=scored.logits.numpy())


def main() -> None:
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        for name in NAMES:
            _read(out / name, Path(sys.argv[2]) / name)
        return
    for name in NAMES:
        _write(name, out / name)


if __name__ == "__main__":
    main()
