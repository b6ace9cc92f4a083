"""What PyTorch's T5 makes of small models and batches: the reference that tests/train/test_t5.py compares with.

    python tests/torch_t5.py OUT

For each family OUT gets a directory in Hugging Face layout and `reference.npz`: a batch, logits, loss and gradients. A
selection of the numbers is `golden_t5.json`, kept in tests/data/model for machines without PyTorch: weights and batch
follow from names and seeds alone (`draw`, `draw_batch`).
A program of its own, because transformers' T5 and TensorFlow in one process register LLVM's options twice and die.
"""

import json
import sys
from pathlib import Path

import numpy as np

GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SHAPE = {"d_model": 24, "d_kv": 8, "d_ff": 40, "num_heads": 4, "decoder_start_token_id": 0}
FAMILIES = {
    "t5": {"model_type": "t5", "vocab_size": 96, "num_layers": 2, **SHAPE},
    "t5_1_1": {"model_type": "t5", "vocab_size": 96, "num_layers": 2, **GATED, **SHAPE},
    "mt5": {"model_type": "mt5", "vocab_size": 130, "num_layers": 2, **SHAPE},
    # ByT5: three times as many encoder as decoder layers, 256 bytes and specials.
    "byt5": {"model_type": "t5", "vocab_size": 384, "num_layers": 3, "num_decoder_layers": 1, **GATED, **SHAPE},
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


def main(out: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    golden = {}
    for family, config in FAMILIES.items():
        model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**config)).eval()
        if family != "t5":
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
        for name, parameter in model.named_parameters():
            parameter.data = torch.tensor(draw(name, tuple(parameter.shape)))
        model.save_pretrained(out / family)
        batch = draw_batch(config["vocab_size"])
        result = model(**{name: torch.tensor(value).long() for name, value in batch.items()})
        result.loss.backward()
        gradients = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
        logits = result.logits.detach().numpy()
        named = {f"gradient:{name}": value for name, value in gradients.items()}
        np.savez(out / family / "reference.npz", logits=logits, loss=result.loss.item(), **named)
        golden[family] = {
            "config": config,
            "loss": result.loss.item(),
            "logits[:, ::4, :3]": logits[:, ::4, :3].tolist(),
            "gradient_norms": {name: float(np.linalg.norm(value)) for name, value in sorted(gradients.items())},
        }
    (out / "golden_t5.json").write_text(json.dumps({"recipe": "python tests/torch_t5.py OUT", **golden}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
