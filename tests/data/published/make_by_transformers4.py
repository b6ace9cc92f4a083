"""Small models as transformers 4's own Flax classes save them, with what these classes compute.

    python make_by_transformers4.py OUT

Run once, in an environment with transformers 4.57, flax and jax 0.7; transformers 5 has no such class. The files beside
this one are its output, and the reference for the reader.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

SHAPE = {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_heads": 2, "num_layers": 2, "num_decoder_layers": 1}
SHAPE |= {"vocab_size": 35, "decoder_start_token_id": 0}
FAMILIES = {"t5": SHAPE, "t5_1_1": {**SHAPE, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}}


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    mask = np.arange(9) < np.array([[9], [5]])
    inputs = rng.integers(2, 35, (2, 9)) * mask
    decoder = np.concatenate([np.zeros((2, 1), int), rng.integers(2, 35, (2, 5))], 1)
    values = {"input_ids": inputs, "attention_mask": mask, "decoder_input_ids": decoder}
    return {name: value.astype(np.int32) for name, value in values.items()}


def save(model: Any, folder: Path, logits: Any) -> None:
    model.save_pretrained(folder)
    model.save_pretrained(folder / "sharded", max_shard_size="6KB")
    np.savez(folder / "reference.npz", logits=np.asarray(logits), **batch())


def by_flax(config: Any, folder: Path) -> None:
    import flax.serialization
    import jax
    from transformers import FlaxT5ForConditionalGeneration

    rng = np.random.default_rng(6)
    model = FlaxT5ForConditionalGeneration(config, seed=3, input_shape=(1, 4))
    add_noise = lambda x: np.asarray(x) + rng.standard_normal(x.shape).astype(np.float32) * 0.2  # noqa: E731
    model.params = jax.tree_util.tree_map(add_noise, model.params)
    save(model, folder, model(**batch()).logits)
    for name, chunk, params in (("chunked", 300, model.params), ("bf16", 1 << 30, model.to_bf16(model.params))):
        flax.serialization.MAX_CHUNK_SIZE = chunk
        (folder.parent / name).mkdir(exist_ok=True)
        (folder.parent / name / "flax_model.msgpack").write_bytes(flax.serialization.to_bytes(params))


def main(out: Path) -> None:
    from transformers import T5Config

    for family, shape in FAMILIES.items():
        folder = out / family / "flax"
        folder.mkdir(parents=True, exist_ok=True)
        by_flax(T5Config(**shape), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
