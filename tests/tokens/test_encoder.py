"""Examples become features: protected text stays, fields join by the EOS token, and nothing is counted wrongly."""

import sys
from concurrent.futures import ThreadPoolExecutor
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
        assert made.tokens == alone.tokens


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


def test_threads_may_share_an_encoder() -> None:
    """As Beam's worker threads do. Targets were kept in a dict that one thread emptied while another one read it."""
    shared = encoder(64)
    blocks = [[Example(str(i), "why", f"answer {thread} {i}") for i in range(1500)] for thread in range(8)]
    expected = [[made.labels.tolist() for made in encoder(64)(block)] for block in blocks]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            for _ in range(3):
                found = [[made.labels.tolist() for made in row] for row in threads.map(shared, blocks)]
                assert found == expected
    finally:
        sys.setswitchinterval(before)
