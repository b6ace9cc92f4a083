"""What transformers' encoders make of small models and some ids: the reference of tests/training/embed/test_embedding.py.

    python tests/torch_vectors.py OUT IDS.npz

IDS.npz has `NAME/ids` and `NAME/mask` for each model; OUT gets a directory for each, as transformers writes the encoder
alone, and `NAME.npz` with its `vectors`.
A program of its own, because transformers' models and TensorFlow in one process register LLVM's options twice and die.
"""

import sys
from pathlib import Path

import numpy as np
from torch_encoders import TYPES

_T5 = {"d_model": 24, "d_kv": 8, "d_ff": 40, "num_heads": 4, "num_layers": 3, "vocab_size": 8128}
ENCODERS = {
    # google/t5-v1_1-xxl and google/umt5-xxl but for their sizes, as T5EncoderModel and UMT5EncoderModel are saved
    "t5": {"model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, **_T5},
    "umt5": {"model_type": "umt5", "feed_forward_proj": "gated-gelu", **_T5},
    "bert": TYPES["bert"] | {"vocab_size": 400},
    "modernbert": TYPES["modernbert"] | {"vocab_size": 500},
}


def _write(name: str, out: Path, ids: np.ndarray, mask: np.ndarray) -> None:
    import torch
    from transformers import AutoConfig, AutoModel, T5EncoderModel, UMT5EncoderModel

    torch.manual_seed(0)
    config = AutoConfig.for_model(**ENCODERS[name])
    classes = {"t5": T5EncoderModel, "umt5": UMT5EncoderModel}
    model = classes[name](config) if name in classes else AutoModel.from_config(config, attn_implementation="eager")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.0 if parameter.dim() > 1 else 0.5, std=0.3)
    model.eval().save_pretrained(out / name)
    with torch.no_grad():
        inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
        vectors = model(**inputs).last_hidden_state.numpy()
    np.savez(out / f"{name}.npz", vectors=vectors)


def main() -> None:
    out, arrays = Path(sys.argv[1]), np.load(sys.argv[2])
    for name in ENCODERS:
        _write(name, out, arrays[f"{name}/ids"].astype(np.int64), arrays[f"{name}/mask"].astype(np.int64))


if __name__ == "__main__":
    main()
