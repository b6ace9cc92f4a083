"""Generation: token by token what PyTorch `transformers` generates, for every family, greedy and with beams."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.train.model.generate import generate  # noqa: E402
from t5prep.train.model.t5_config import ModelConfig  # noqa: E402
from t5prep.train.model.weights import random_weights, save_weights  # noqa: E402

FAMILIES = {
    "t5": ModelConfig(vocab_size=40, d_model=16, d_kv=4, d_ff=32, num_layers=2, num_decoder_layers=2, num_heads=4),
    "t5 1.1": ModelConfig(
        vocab_size=40,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=3,
        num_decoder_layers=3,
        num_heads=3,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        scale_decoder_outputs=False,
    ),
}
LENGTH = 12


def _inputs(vocabulary: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Five rows of different lengths, padded."""
    random = np.random.default_rng(seed)
    ids = random.integers(2, vocabulary, (5, 9)).astype(np.int32)
    mask = (np.arange(9) < np.array([[9], [1], [5], [7], [3]])).astype(np.int32)
    return ids * mask, mask


def _sharp(config: ModelConfig, seed: int) -> dict[str, np.ndarray]:
    """Random weights that do not say one token for ever: EOS comes at different times in different rows."""
    weights = random_weights(config, seed=seed)
    table = "shared" if config.tie_word_embeddings else "lm_head"
    weights[table] = weights[table] * np.float32(3.0)
    weights[table][config.eos_token_id] *= np.float32(1.5)
    return weights


# In a process of its own: torch and TensorFlow each bring an LLVM, and the two end the process where both are loaded.
THEIRS = """
import sys
import numpy as np
import torch
import transformers
model = transformers.T5ForConditionalGeneration.from_pretrained(sys.argv[1]).eval()
given = np.load(sys.argv[2])
out = {}
for beams in (1, 2, 4):
    with torch.no_grad():
        found = model.generate(
            torch.tensor(given["ids"]).long(), attention_mask=torch.tensor(given["mask"]).long(), num_beams=beams,
            max_new_tokens=int(given["length"]), do_sample=False, length_penalty=1.0, early_stopping=False,
        )
    out[str(beams)] = found[:, 1:].numpy()
np.savez(sys.argv[3], **out)
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_tokens_of_transformers(family: str, tmp_path: Path) -> None:
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")):
        pytest.skip("torch or transformers is not installed")
    config = FAMILIES[family]
    search = tf.function(generate, jit_compile=True)
    lengths = set()
    for seed in range(2):
        weights = _sharp(config, seed)
        save_weights(tmp_path, config, weights)
        (tmp_path / "config.json").write_text(json.dumps(config.to_json()))
        ids, mask = _inputs(config.vocab_size, seed)
        np.savez(tmp_path / "given.npz", ids=ids, mask=mask, length=LENGTH)
        given, found = tmp_path / "given.npz", tmp_path / "found.npz"
        subprocess.run([sys.executable, "-c", THEIRS, tmp_path, given, found], check=True)
        for name, expected in np.load(found).items():
            got = search(
                weights, config, tf.constant(ids), tf.constant(mask), max_length=LENGTH, beams=int(name)
            ).numpy()
            # Behind the first EOS transformers' beam search writes more of them: it takes a pad id of 0 for none.
            ended = np.cumsum(expected == config.eos_token_id, axis=1) - (expected == config.eos_token_id) > 0
            assert got[:, : expected.shape[1]].tolist() == np.where(ended, 0, expected).tolist()
            assert not got[:, expected.shape[1] :].any()
            lengths |= set((got != 0).sum(axis=1))
    assert len(lengths) > 1  # or the end of a sequence was never tested


def test_compiled_or_not_alone_or_in_a_batch() -> None:
    config = FAMILIES["t5 1.1"]
    weights = _sharp(config, 7)
    ids, mask = map(tf.constant, _inputs(config.vocab_size, 7))
    for beams in (1, 3):
        whole = tf.function(generate, jit_compile=True)(weights, config, ids, mask, max_length=5, beams=beams)
        assert (whole == generate(weights, config, ids, mask, max_length=5, beams=beams)).numpy().all()
        alone = generate(weights, config, ids[2:3], mask[2:3], max_length=5, beams=beams)
        assert alone.numpy().tolist() == whole[2:3].numpy().tolist()


def test_nothing_follows_the_end() -> None:
    config = FAMILIES["t5"]
    ids, mask = map(tf.constant, _inputs(config.vocab_size, 0))
    out = generate(_sharp(config, 0), config, ids, mask, max_length=LENGTH).numpy()
    for row in out.tolist():
        if config.eos_token_id in row:
            assert not any(row[row.index(config.eos_token_id) + 1 :])
