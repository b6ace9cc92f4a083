"""What PyTorch's T5 makes of small random models and batches: the reference that tests/test_model.py compares with.

    python tests/torch_t5.py OUT

For each family OUT gets a directory in Hugging Face layout and `reference.npz`: a batch, logits, loss and gradients.
A program of its own, because transformers' T5 and TensorFlow in one process register LLVM's options twice and die.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import MT5Config, MT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration

GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SHAPE = {"d_model": 24, "d_kv": 8, "d_ff": 40, "num_heads": 4, "decoder_start_token_id": 0}
FAMILIES = {
    "t5": (T5ForConditionalGeneration, T5Config, {"vocab_size": 96, "num_layers": 2}),
    "t5_1_1": (T5ForConditionalGeneration, T5Config, {"vocab_size": 96, "num_layers": 2, **GATED}),
    "mt5": (MT5ForConditionalGeneration, MT5Config, {"vocab_size": 130, "num_layers": 2}),
    # ByT5: three times as many encoder as decoder layers, 256 bytes and specials.
    "byt5": (
        T5ForConditionalGeneration,
        T5Config,
        {"vocab_size": 384, "num_layers": 3, "num_decoder_layers": 1, **GATED},
    ),
}


def main(out: Path) -> None:
    for family, (model_class, config_class, options) in FAMILIES.items():
        torch.manual_seed(0)
        model = model_class(config_class(**SHAPE, **options)).eval()
        if family != "t5":
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
        for parameter in model.parameters():
            parameter.data = torch.randn_like(parameter) * 0.15 + (parameter.ndim == 1)
        model.save_pretrained(out / family)
        rng = np.random.default_rng(0)
        vocabulary = options["vocab_size"]
        input_ids = rng.integers(2, vocabulary, (3, 50))
        attention_mask = np.arange(50) < np.array([[50], [40], [11]])
        labels = rng.integers(2, vocabulary, (3, 12))
        labels[np.arange(12) >= np.array([[9], [12], [5]])] = -100
        batch = {"input_ids": input_ids * attention_mask, "attention_mask": attention_mask + 0, "labels": labels}
        result = model(**{name: torch.tensor(value) for name, value in batch.items()})
        result.loss.backward()
        gradients = {f"gradient:{name}": value.grad.numpy() for name, value in model.named_parameters()}
        np.savez(
            out / family / "reference.npz",
            **{name: value.astype(np.int32) for name, value in batch.items()},
            logits=result.logits.detach().numpy(),
            loss=result.loss.item(),
            **gradients,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
