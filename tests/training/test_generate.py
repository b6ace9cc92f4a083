"""Generation: token by token what PyTorch `transformers` generates, for every family, greedy and with beams."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch_process
from raised import raises

from t5prep.errors import UsageError
from t5prep.options.generation import Generation
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.beam_search import generate, search
from t5prep.training.model.cached_decoder import FORBIDDEN, most_likely
from t5prep.training.model.forward import forward
from t5prep.training.model.weights import random_weights, save_weights
from t5prep.training.predict.device import answers_on_rows
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.state import put_weights

FAMILIES = {
    "t5": ModelConfig(vocab_size=40, d_model=16, d_kv=16, d_ff=32, num_layers=2, num_decoder_layers=2, num_heads=4),
    "t5 1.1": ModelConfig(
        vocab_size=40,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_decoder_layers=2,
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


# Our options and what `transformers` calls them, which counts no EOS in the least length.
CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"beams": 2, "length_penalty": 1.0}, {"num_beams": 2, "length_penalty": 1.0}),
    ({"beams": 4, "answers": 3}, {"num_beams": 4, "length_penalty": 0.6, "num_return_sequences": 3}),
    ({"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
    ({"no_repeat_ngram": 1, "beams": 3}, {"no_repeat_ngram_size": 1, "num_beams": 3, "length_penalty": 0.6}),
    ({"min_length": 6}, {"min_new_tokens": 5}),
    (
        {"min_length": 5, "no_repeat_ngram": 3, "beams": 2},
        {"min_new_tokens": 4, "no_repeat_ngram_size": 3, "num_beams": 2, "length_penalty": 0.6},
    ),
]  # fmt: skip

# Searches are the same for every family, so the second is asked two of them: each takes seconds to compile.
CASES_OF = {"t5": range(len(CASES)), "t5 1.1": (3, 6)}
SEEDS = range(2)

# In a process of its own: torch and TensorFlow each bring an LLVM, and the two end the process where both are loaded.
THEIRS = """
import json, sys
from pathlib import Path
import numpy as np
import torch
import transformers
for place in map(Path, sys.argv[2:]):
    model = transformers.T5ForConditionalGeneration.from_pretrained(place).eval()
    given = np.load(place / "given.npz")
    out = {}
    for number, options in json.loads(sys.argv[1]):
        with torch.no_grad():
            found = model.generate(
                torch.tensor(given["ids"]).long(), attention_mask=torch.tensor(given["mask"]).long(),
                max_new_tokens=int(given["length"]), do_sample=False, early_stopping=False,
                return_dict_in_generate=True, output_scores=True, **options,
            )
        out[f"ids{number}"] = found.sequences[:, 1:].numpy()
        if "num_beams" in options:
            out[f"scores{number}"] = found.sequences_scores.numpy()
    np.savez(place / "found.npz", **out)
"""


Answering = Callable[[Any, np.ndarray, np.ndarray], tuple[Any, Any]]


def _on_the_device(config: ModelConfig, options: Generation, *, cache_path: Path) -> Answering:
    """Return what gives answers and scores as `predict` computes them: on a CPU by custom calls, where they are built."""
    layout = open_layout()
    run = answers_on_rows(config, options, layout=layout, dtype=tf.float32, cache_path=str(cache_path))

    def answer(weights: Any, ids: np.ndarray, mask: np.ndarray) -> tuple[Any, Any]:
        answers = run(put_weights(weights, layout.weights(config)), {"input_ids": ids, "attention_mask": mask})
        return answers["ids"], answers["scores"]

    return answer


def _in_tensorflow(config: ModelConfig, options: Generation) -> Answering:
    """Return what gives answers and scores as a SavedModel computes them."""
    run = tf.function(functools.partial(search, options=options), jit_compile=True, autograph=False)
    return lambda weights, ids, mask: run(weights, config, ids, mask)


@pytest.mark.extra("torch")
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_tokens_of_transformers(family: str, tmp_path: Path) -> None:
    """Searches and their scores beside transformers' own, with rows that end at different times."""
    config, numbers = FAMILIES[family], CASES_OF[family]
    inputs_by_seed, expected = {}, {}
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        inputs_by_seed[seed] = (_sharp(config, seed), *_inputs(config.vocab_size, seed))
        weights, ids, mask = inputs_by_seed[seed]
        save_weights(folder, config, weights)
        (folder / "config.json").write_text(json.dumps(config.to_json()))
        np.savez(folder / "given.npz", ids=ids, mask=mask, length=LENGTH)
    theirs = json.dumps([(number, CASES[number][1]) for number in numbers])
    places = [tmp_path / str(seed) for seed in SEEDS]
    torch_process.pytorch_code(THEIRS, theirs, *places)
    for seed, folder in zip(SEEDS, places, strict=True):
        expected[seed] = dict(np.load(folder / "found.npz"))
    lengths = set()
    for number in numbers:
        options = Generation(max_length=LENGTH, **CASES[number][0])
        # A program takes seconds to compile, so each case is answered in one of two ways.
        answer = (
            _in_tensorflow(config, options)
            if number % 2
            else _on_the_device(config, options, cache_path=tmp_path / "programs")
        )
        for seed in SEEDS:
            ids, scores = map(np.asarray, answer(*inputs_by_seed[seed]))
            got, expected_ids = ids.reshape(-1, LENGTH), expected[seed][f"ids{number}"]
            # Behind the first EOS transformers' beam search writes more of them: it takes a pad id of 0 for none.
            is_after_eos = (
                np.cumsum(expected_ids == config.eos_token_id, axis=1) - (expected_ids == config.eos_token_id) > 0
            )
            assert got[:, : expected_ids.shape[1]].tolist() == np.where(is_after_eos, 0, expected_ids).tolist(), options
            assert not got[:, expected_ids.shape[1] :].any()
            if f"scores{number}" in expected[seed]:
                assert scores.reshape(-1) == pytest.approx(expected[seed][f"scores{number}"], rel=1e-4)
            lengths |= set((got != 0).sum(axis=1))
    assert len(lengths) > 1  # or the end of a sequence was never tested


def test_compiled_or_not_alone_or_in_a_batch() -> None:
    config = FAMILIES["t5 1.1"]
    weights = _sharp(config, 7)
    ids, mask = map(tf.constant, _inputs(config.vocab_size, 7))
    options = {"max_length": 5, "beams": 3}
    answers = tf.function(generate, jit_compile=True, autograph=False)(weights, config, ids, mask, **options)
    assert (answers == generate(weights, config, ids, mask, **options)).numpy().all()
    alone = generate(weights, config, ids[2:3], mask[2:3], **options)
    assert alone.numpy().tolist() == answers[2:3].numpy().tolist()


def test_nothing_follows_the_end() -> None:
    config = FAMILIES["t5"]
    ids, mask = map(tf.constant, _inputs(config.vocab_size, 0))
    out = generate(_sharp(config, 0), config, ids, mask, max_length=LENGTH).numpy()
    for row in out.tolist():
        if config.eos_token_id in row:
            assert not any(row[row.index(config.eos_token_id) + 1 :])


def _draw_tokens(options: Generation, uniform: np.ndarray, *, compiled: bool) -> tuple[np.ndarray, np.ndarray]:
    """Tokens drawn for one input again and again (a row for each draw of `uniform`, [draws, length]), and scores."""
    config = FAMILIES["t5"]
    draws = len(uniform)
    ids, mask = (np.repeat(x[:1], draws, axis=0) for x in _inputs(config.vocab_size, 3))
    run = functools.partial(search, options=options)
    run = tf.function(run, jit_compile=True, autograph=False) if compiled else run
    got = run(_sharp(config, 3), config, tf.constant(ids), tf.constant(mask), uniform=tf.constant(uniform[:, None]))
    return got[0].numpy()[:, 0], got[1].numpy()[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", [40, 384])
def test_the_most_likely_token_is_the_one_of_argmax(vocabulary: int) -> None:
    scores = np.random.default_rng(vocabulary).normal(size=(vocabulary, 200)).astype(np.float32)
    scores[:, 0] = FORBIDDEN
    scores[vocabulary - 1, 0] = 0.0
    np.testing.assert_array_equal(most_likely(tf.constant(scores)), scores.argmax(axis=0))


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    """The first token's shares, over 4,000 draws, against the model's own probabilities."""
    config = FAMILIES["t5"]
    ids, mask = _inputs(config.vocab_size, 3)
    batch = {"input_ids": ids[:1], "attention_mask": mask[:1], "labels": np.array([[2]], np.int32)}
    logits = forward(_sharp(config, 3), config, {k: tf.constant(v) for k, v in batch.items()}).numpy()[0, 0]
    uniform = np.random.default_rng(0).random((4000, 1), np.float32)
    for temperature, top_k, top_p in ((1.0, 0, 0.5), (0.7, 5, 1.0), (2.0, 8, 0.8)):
        options = Generation(max_length=1, sample=True, temperature=temperature, top_k=top_k, top_p=top_p, scores=True)
        tokens, scores = _draw_tokens(options, uniform, compiled=bool(top_k) and top_p < 1)
        shares = np.exp(logits / temperature - (logits / temperature).max())
        order = np.argsort(-shares, kind="stable")
        candidates = order[: top_k or len(order)]
        shares = shares / shares[candidates].sum()
        preceding_shares = np.cumsum(shares[candidates]) - shares[candidates]
        candidates = candidates[preceding_shares < top_p]
        expected = np.zeros(len(shares))
        expected[candidates] = shares[candidates] / shares[candidates].sum()
        frequencies = np.bincount(tokens[:, 0], minlength=len(shares)) / len(tokens)
        assert set(np.flatnonzero(frequencies)) <= set(candidates)
        assert np.abs(frequencies - expected).max() < 0.04
        log = logits - np.log(np.exp(logits).sum())
        assert scores == pytest.approx(log[tokens[:, 0]], rel=1e-4)  # the model's own, whatever the temperature


def test_several_drawn_answers_come_best_first() -> None:
    config = FAMILIES["t5"]
    ids, mask = map(tf.constant, _inputs(config.vocab_size, 3))
    uniform = tf.constant(np.random.default_rng(1).random((5, 4, LENGTH), np.float32))
    options = Generation(max_length=LENGTH, sample=True, answers=4, no_repeat_ngram=1, min_length=3)
    answers, scores = (
        x.numpy() for x in search(_sharp(config, 3), config, ids, mask, options=options, uniform=uniform)
    )
    assert answers.shape == (5, 4, LENGTH)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert len({tuple(row) for row in answers.reshape(-1, LENGTH).tolist()}) > 10
    for row in answers.reshape(-1, LENGTH).tolist():
        tokens = [token for token in row if token]
        assert len(tokens) >= 3
        assert len(set(tokens)) == len(tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 3}, ("option.missing-prerequisite", "--top-k")),
        ({"sample": True, "beams": 2}, ("option.conflict", "2")),
        ({"sample": True, "temperature": 0.0}, ("option.out-of-range", "0")),
        ({"sample": True, "temperature": float("nan")}, ("option.out-of-range", "--temperature", "nan")),
        ({"beams": 2, "length_penalty": float("inf")}, ("option.out-of-range", "--length-penalty", "inf")),
        ({"beams": 0}, ("option.out-of-range", "--beams", "0", "1")),
        ({"no_repeat_ngram": -1}, ("option.out-of-range", "--no-repeat-ngram", "-1", "0")),
        ({"sample": True, "top_p": 1.5}, ("option.out-of-range", "1.5")),
        ({"min_length": 9, "max_length": 8}, ("option.inverted-range", "9", "8")),
        ({"answers": 3, "beams": 2}, ("option.missing-prerequisite", "3")),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: tuple[str, ...]) -> None:
    with raises(UsageError, *message):
        Generation(**options)


def test_a_step_takes_no_weights_apart():
    # A slice of a stack of weights inside the loop is a copy of all weights for each token, on a CPU half of the time.
    config = FAMILIES["t5"]
    weights = {name: tf.constant(value) for name, value in random_weights(config, seed=0).items()}
    ids = tf.ones([2, 4], tf.int32)
    search_of = tf.function(
        lambda ids: generate(weights, config, ids, ids, max_length=3), jit_compile=True, autograph=False
    )
    program = search_of.experimental_get_compiler_ir(ids)(stage="hlo")
    (body,) = (part for part in program.split("\n\n") if part.lstrip().startswith("%while_body"))
    assert " dot(" in body
    assert not re.findall(r" slice\(f32\[[\d,]+\]\{2,1,0\} %get-tuple-element", body)
    # Logits of few rows times the table's transpose take three times as long as the table times few columns.
    assert re.findall(r"= f32\[40,2\]\S* dot\(", body)
    assert not re.findall(r"= f32\[2,40\]\S* dot\(", body)
