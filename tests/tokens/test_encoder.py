"""Examples become features: protected text stays, fields join by the EOS token, and nothing is counted wrongly."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5prep.errors import Reject
from t5prep.sources import sample
from t5prep.tasks.example import EOS, Example, Protected
from t5prep.tokens.encoder import Encoder, Features
from t5prep.tokens.tokenizer import Tokenizer

WORDS = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")


def encoder(length: int, *, policy: str = "head_tail", marker: str = "extra_id_1", targets: int = 8) -> Encoder:
    return Encoder(WORDS, input_length=length, target_length=targets, policy=policy, marker=marker)


def encoded(example: Example, length: int, **how: str) -> tuple[list[int], Features]:
    (made,) = encoder(length, **how)([example])
    assert isinstance(made, Features)
    return np.concatenate(made.inputs).tolist(), made


TEXT = st.text(st.sampled_from("abcdefg  .,'\n<>/-0123éüя"), min_size=1, max_size=400).filter(lambda text: text.strip())


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT, st.integers(8, 120), st.sampled_from(["head_tail", "head", "tail"]))
def test_a_protected_field_survives_whole_or_the_row_is_rejected(
    question: str, context: str, length: int, policy: str
) -> None:
    example = Example("1", (Protected(question), f" {context}"), "x")
    (made,) = encoder(length, policy=policy)([example])
    kept = WORDS.encode(question)
    if isinstance(made, Reject):
        assert len(kept) + 1 > length or not kept
        return
    ids = np.concatenate(made.inputs).tolist()
    assert len(ids) <= length
    assert ids[-1] == WORDS.eos_id
    assert made.tokens >= len(ids) - 1
    if made.tokens > length:  # it was cut, but not in the question
        assert ids[: len(kept)] == kept


def test_fields_are_joined_by_the_token_not_the_text() -> None:
    ids, made = encoded(Example("1", ("quality: a title", EOS, "a body </s>"), "x"), 512)
    assert ids == [*WORDS.encode("quality: a title"), 1, *WORDS.encode("a body </s>"), 1]
    assert ids.count(1) == 2
    assert made.tokens == len(ids)
    assert made.exact


def test_targets_are_cut_but_end_in_eos() -> None:
    _, made = encoded(Example("1", "why", "many words of a target that is far too long for its place"), 16)
    assert len(made.labels) == 8
    assert made.labels[-1] == 1
    assert made.target_tokens > 8


@pytest.mark.parametrize(
    ("inputs", "target", "why"), [("", "x", "empty input"), (" \n", "x", "empty input"), ("x", " ", "empty target")]
)
def test_nothing_to_learn_from(inputs: str, target: str, why: str) -> None:
    (made,) = encoder(32)([Example("1", inputs, target)])
    assert isinstance(made, Reject)
    assert str(made) == why


def test_many_examples_are_what_each_is_alone() -> None:
    examples = [Example(str(i), (f"title {i}", EOS, "word " * (i * 97 % 900)), f"target {i % 5}") for i in range(40)]
    together = encoder(64)(examples)
    for example, made in zip(examples, together, strict=True):
        (alone,) = encoder(64)([example])
        assert isinstance(made, Features)
        assert isinstance(alone, Features)
        assert np.concatenate(made.inputs).tolist() == np.concatenate(alone.inputs).tolist()
        assert made.labels.tolist() == alone.labels.tolist()
        assert made.tokens == alone.tokens or not made.exact


def test_the_vocabulary_is_t5s(shared_data: Path) -> None:
    model = shared_data / "t5_tokenizer/spiece.model"
    t5 = Tokenizer(model.read_bytes(), name="t5")
    assert (t5.vocab_size, t5.size, t5.padded_size) == (32_000, 32_100, 32_128)
    assert (t5.sentinel(0), t5.sentinel(1), t5.sentinel(99)) == (32_099, 32_098, 32_000)
    assert t5.sha256.startswith("d60acb12")
    assert [t5.piece(token) for token in (0, 1, 2, 32_099, 32_127)] == [
        "<pad>",
        "</s>",
        "<unk>",
        "<extra_id_0>",
        "<unused_32127>",
    ]
    assert t5.decode([*t5.encode("none of it"), t5.sentinel(3), 1, 0, 0]) == "none of it <extra_id_3> </s>"
    assert [t5.encode(word) for word in ("none", "low", "high")] == [[5839], [731], [306]]


def test_a_model_whose_sentinels_are_pieces_keeps_text_text(tmp_path: Path) -> None:
    """As mT5's: `<extra_id_0>` stands in the vocabulary, and text that spells it must not become it."""
    import sentencepiece

    (tmp_path / "text.txt").write_text("\n".join(f"some words to learn from number {i} of many" for i in range(500)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"), model_prefix=str(tmp_path / "m"), vocab_size=200, pad_id=0, eos_id=1, unk_id=2,
        bos_id=-1, user_defined_symbols=[f"<extra_id_{i}>" for i in range(99, -1, -1)], hard_vocab_limit=False,
        minloglevel=2,
    )  # fmt: skip
    words = Tokenizer((tmp_path / "m.model").read_bytes(), name="m")
    assert words.piece(words.sentinel(0)) == "<extra_id_0>"
    assert words.sentinel(1) == words.sentinel(0) - 1
    assert words.size == words.vocab_size
    sentinels = {words.sentinel(i) for i in range(100)}
    for ids in (words.encode("a <extra_id_0> b"), words.encode_all(["a <extra_id_0> b"])[0].tolist()):
        assert ids
        assert sentinels.isdisjoint(ids)


@pytest.mark.parametrize("policy", ["head_tail", "head", "tail"])
def test_features_do_not_show_what_was_tokenized_before(policy: str) -> None:
    """Two workers see other rows, and one run is not cut into blocks as the next: no count may depend on it."""
    chooser = random.Random(7)
    vocabulary = ["why", "does", "this", "error", "----", "loop?", "a.b.c()", "x" * 60, "café", "== !=", "\n"]
    texts = [" ".join(chooser.choices(vocabulary, k=chooser.randrange(20, 900))) for _ in range(120)]
    examples = [Example(str(i), ("quality: t", EOS, text), "high") for i, text in enumerate(texts)]
    poor = encoder(512, policy=policy)
    poor._ends._credit = 0  # it learns no word, and tokenizes whole what it could otherwise end early
    rich = encoder(512, policy=policy)
    rich(examples)
    found = [[plain(features) for features in one(examples)] for one in (encoder(512, policy=policy), rich, poor)]
    assert found[0] == found[1] == found[2]
    assert sum(not exact for *_, exact in found[0]) > 20


def plain(features: Features | Reject) -> tuple:
    assert isinstance(features, Features)
    return np.concatenate(features.inputs).tolist(), features.labels.tolist(), features.tokens, features.exact
