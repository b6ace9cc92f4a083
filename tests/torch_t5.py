"""What PyTorch's T5 makes of small models and batches: the reference that tests/training/test_t5.py compares with.

    python tests/torch_t5.py OUT

For each family OUT gets a directory in Hugging Face layout and `reference.npz`: logits, gradients, the losses of ten steps
of AdamW and what is generated; below it the same weights as PyTorch's own files (`bin`, `legacy`, `sharded`, `half`, `bfloat16`).
A selection of the numbers is `golden_t5.json`, kept in tests/data/model for machines without PyTorch: weights and batch
follow from names and seeds alone (`draw`, `draw_batch`).
A program of its own, because transformers' T5 and TensorFlow in one process register LLVM's options twice and die.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from torch_steps import train

LENGTH = 6  # tokens to generate
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SHAPE = {"d_model": 24, "d_kv": 8, "d_ff": 40, "num_heads": 4, "decoder_start_token_id": 0}
FAMILIES = {
    "t5": {"model_type": "t5", "vocab_size": 96, "num_layers": 2, **SHAPE},
    "t5_1_1": {"model_type": "t5", "vocab_size": 96, "num_layers": 2, **GATED, **SHAPE},
    "mt5": {"model_type": "mt5", "vocab_size": 130, "num_layers": 2, **SHAPE},
    # ByT5: three times as many encoder as decoder layers, 256 bytes and specials.
    "byt5": {"model_type": "t5", "vocab_size": 384, "num_layers": 3, "num_decoder_layers": 1, **GATED, **SHAPE},
    "umt5": {"model_type": "umt5", "vocab_size": 130, "num_layers": 2, **SHAPE},
    # UL2, beside its shape (google/ul2, config.json).
    "ul2": {"model_type": "t5", "vocab_size": 96, "num_layers": 2, **GATED, "feed_forward_proj": "gated-silu", **SHAPE},
    # UnifiedQA is T5 1.0 and the LM-adapted T5 is 1.1; what is fine-tuned from either may have any vocabulary.
    "t5_odd": {"model_type": "t5", "vocab_size": 103, "num_layers": 2, **SHAPE},
    "t5_1_1_odd": {"model_type": "t5", "vocab_size": 103, "num_layers": 2, **GATED, **SHAPE},
}


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The weight of that Hugging Face name: normal, around 1 for norms."""
    values = np.random.default_rng([*name.encode()]).standard_normal(shape) * 0.15 + (len(shape) == 1)
    return values.astype(np.float32)


def draw_batch(vocabulary: int) -> dict[str, np.ndarray]:
    """Three rows, two with padding, two with labels of -100."""
    rng = np.random.default_rng(0)
    mask = np.arange(50) < np.array([[50], [40], [11]])
    labels = rng.integers(2, vocabulary, (3, 12))
    labels[np.arange(12) >= np.array([[9], [12], [5]])] = -100
    batch = {"input_ids": rng.integers(2, vocabulary, (3, 50)) * mask, "attention_mask": mask, "labels": labels}
    return {name: value.astype(np.int32) for name, value in batch.items()}


def as_published(model: Any) -> None:
    """Compute as the published umT5 does: transformers 5 divides its decoder's outputs by sqrt(d_model), as T5 1.0's."""
    if model.config.model_type == "umt5":
        model.config.tie_word_embeddings = False


def save_as_pytorch(model: Any, folder: Path) -> None:
    """The weights as PyTorch writes them: in a zip, as before 1.6, in parts, and in two dtypes of 16 bits."""
    import torch

    state = model.state_dict()
    names = list(state)
    parts = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    files = {
        "bin/pytorch_model.bin": state,
        "legacy/pytorch_model.bin": state,
        "half/pytorch_model.bin": {name: value.half() for name, value in state.items()},
        "bfloat16/pytorch_model.bin": {name: value.bfloat16() for name, value in state.items()},
        **{f"sharded/{part}": {name: state[name] for name in part_names} for part, part_names in parts.items()},
    }
    for file, tensors in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        torch.save(tensors, folder / file, _use_new_zipfile_serialization=not file.startswith("legacy"))
        shutil.copy(folder / "config.json", (folder / file).parent)
    index = {"weight_map": {name: part for part, part_names in parts.items() for name in part_names}}
    (folder / "sharded" / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def main(out: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    golden = {}
    for family, config in FAMILIES.items():
        model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**config)).eval()
        as_published(model)
        if family not in ("t5", "t5_odd"):
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
        for name, parameter in model.named_parameters():
            parameter.data = torch.tensor(draw(name, tuple(parameter.shape)))
        model.save_pretrained(out / family)
        save_as_pytorch(model, out / family)
        batch = draw_batch(config["vocab_size"])
        inputs = {name: torch.tensor(value).long() for name, value in batch.items()}
        result = model(**inputs)
        logits, loss = result.logits.detach().numpy(), result.loss.item()
        generation_inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        generation_options = {"max_new_tokens": LENGTH, "do_sample": False, "early_stopping": False}
        beams = {
            f"beams {n}": model.generate(**generation_inputs, num_beams=n, **generation_options)[:, 1:].numpy()
            for n in (1, 3)
        }
        trained = train(model, lambda model=model, inputs=inputs: model(**inputs).loss)
        np.savez(out / family / "reference.npz", logits=logits, **trained, **beams)
        norms = {
            name.removeprefix("gradient/"): float(np.linalg.norm(trained[name]))
            for name in sorted(trained)
            if "/" in name
        }
        golden[family] = {
            "config": config,
            "loss": loss,
            "logits[:, ::4, :3]": logits[:, ::4, :3].tolist(),
            "gradient_norms": norms,
        }
    (out / "golden_t5.json").write_text(json.dumps({"recipe": "python tests/torch_t5.py OUT", **golden}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
