"""What PyTorch's T5Gemma and T5Gemma 2 make of small models: the reference that tests/training/test_t5gemma.py compares with.

    python tests/torch_t5gemma.py OUT

For each model OUT gets a directory in Hugging Face layout with `reference.npz`: a batch, its logits, the gradients of its
loss, the losses of ten steps of AdamW, and what is generated. `published/` has the same weights as Google publishes them:
bfloat16, in two files, T5Gemma 2's with its vision tower, and without `text_model` in the names of its encoder.
A program of its own, because transformers' models and TensorFlow in one process register LLVM's options twice and die.
"""

import json
import sys
from pathlib import Path

import numpy as np
from torch_steps import train

LENGTH = 9
VOCABULARY, EOI = 96, 77
_ENDS = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "vocab_size": VOCABULARY}
# google/t5gemma-2-270m-270m in a small size: grouped queries, sliding layers before a full one, two kinds of angles.
_KINDS = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "layer_types": _KINDS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "sliding_window": 7,
    "query_pre_attn_scalar": 12,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
    **_ENDS,
}
_VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 28,
    "patch_size": 14,
    "vision_use_head": False,
}
# google/t5gemma-9b-2b in a small size: the stacks differ in layers, widths and heads; every second layer is a full one.
_NARROW = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 5,
    "query_pre_attn_scalar": 10,
    "final_logit_softcapping": 3.0,
    "attn_logit_softcapping": 2.0,
    **_ENDS,
}
MODELS = {
    "t5gemma2": {
        "model_type": "t5gemma2",
        "encoder": {"text_config": _TEXT, "vision_config": _VISION, "mm_tokens_per_image": 4, "eoi_token_index": EOI},
        "decoder": {**_TEXT, "num_hidden_layers": 3, "layer_types": _KINDS[:3]},
        "eoi_token_index": EOI,
        "image_token_index": 78,
    },
    "t5gemma": {
        "model_type": "t5gemma",
        "encoder": {**_NARROW, "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3},
        "decoder": _NARROW,
        "vocab_size": VOCABULARY,
    },
}


def draw_batch() -> dict[str, np.ndarray]:
    """Three rows, two with padding, two with labels of -100; texts longer than the windows, one with the image's end."""
    rng = np.random.default_rng(0)
    mask = np.arange(30) < np.array([[30], [24], [11]])
    labels = rng.integers(3, VOCABULARY, (3, 14))
    labels[np.arange(14) >= np.array([[9], [14], [5]])] = -100
    ids = rng.integers(3, VOCABULARY, (3, 30)) * mask
    ids[1, 3] = labels[0, 2] = EOI
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: value.astype(np.int32) for name, value in batch.items()}


def _write(name: str, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(**MODELS[name])
    model = AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager").train()
    for key, parameter in model.named_parameters():
        # Embeddings are small, or else each answer repeats its first token.
        is_small = "embed" in key or ("norm" in key and parameter.dim() == 1)
        torch.nn.init.normal_(parameter, std=0.1 if is_small else 0.25)
    model.save_pretrained(folder)
    _publish(model, folder / "published")
    batch = draw_batch()
    inputs = {name: torch.tensor(value).long() for name, value in batch.items()}
    reference = {"logits": model(**inputs).logits.detach().numpy()}
    generation_inputs = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    generation_options = {"max_new_tokens": LENGTH, "do_sample": False, "early_stopping": False}
    for beams in (1, 3):
        reference[f"beams {beams}"] = (
            model.eval().generate(**generation_inputs, num_beams=beams, **generation_options)[:, 1:].numpy()
        )
    model.train()
    reference |= train(model, lambda: model(**inputs).loss)
    np.savez(folder / "reference.npz", **batch, **reference)


def _publish(model, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    config = model.config.to_dict() | {"dtype": "bfloat16", "transformers_version": "5.0.0.dev0"}
    (folder / "config.json").write_text(json.dumps(config, default=str))
    tensors = {
        name.replace("encoder.text_model.", "encoder."): value.to(torch.bfloat16).clone()
        for name, value in model.state_dict().items()
        if "lm_head" not in name and not (name.startswith("model.decoder.embed") and "2" in config["model_type"])
    }
    names, index = sorted(tensors), {}
    for part in range(2):
        file = f"model-0000{part + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names[part::2]}, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(names[part::2], file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


if __name__ == "__main__":
    for own_name in MODELS:
        _write(own_name, Path(sys.argv[1]) / own_name)
