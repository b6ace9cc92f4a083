"""Examples become features: protected text stays, fields join by the EOS token, and nothing is counted wrongly.

Of a classification, special tokens stay, pairs are cut as transformers cuts them, and classes are numbers.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from t5prep.errors import Reject
from t5prep.sources import sample
from t5prep.tasks import example_table
from t5prep.tasks.example import EOS, Example, Protected, Trace
from t5prep.tasks.targets import ClassTarget, TagsTarget
from t5prep.tokens import loading
from t5prep.tokens.featurizer import Features, Featurizer
from t5prep.tokens.tokenizer import Tokenizer
from tests import encoders
from tests.featurized_examples import ExampleFeatures, featurized, featurizer

WORDS = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")


def made_of(examples: list[Example], length: int, **options: str) -> list[ExampleFeatures | Reject]:
    return featurized(featurizer(WORDS, length=length, **options), examples)


def encoded(example: Example, length: int, **options: str) -> tuple[list[int], ExampleFeatures]:
    (features,) = made_of([example], length, **options)
    assert isinstance(features, ExampleFeatures)
    return features.inputs, features


TEXT = st.text(st.sampled_from("abcdefg  .,'\n<>/-0123éüя"), min_size=1, max_size=400).filter(lambda text: text.strip())


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT, st.integers(8, 120), st.sampled_from(["head_tail", "head", "tail"]))
def test_a_protected_field_survives_whole_or_the_row_is_rejected(
    question: str, context: str, length: int, policy: str
) -> None:
    example = Example("1", (Protected(question), f" {context}"), "x")
    (features,) = made_of([example], length, policy=policy)
    question_ids = WORDS.encode(question)
    if isinstance(features, Reject):
        assert len(question_ids) + 1 > length or not question_ids
        return
    ids = features.inputs
    assert len(ids) <= length
    assert ids[-1] == WORDS.eos_id
    assert features.tokens >= len(ids) - 1
    if features.tokens > length:  # it was cut, but not in the question
        assert ids[: len(question_ids)] == question_ids


def test_fields_are_joined_by_the_token_not_the_text() -> None:
    ids, features = encoded(Example("1", ("quality: a title", EOS, "a body </s>"), "x"), 512)
    assert ids == [*WORDS.encode("quality: a title"), 1, *WORDS.encode("a body </s>"), 1]
    assert ids.count(1) == 2
    assert features.tokens == len(ids)


def test_targets_are_cut_but_end_in_eos() -> None:
    _, features = encoded(Example("1", "why", "many words of a target that is far too long for its place"), 16)
    assert len(features.labels) == 8
    assert features.labels[-1] == 1
    assert features.target_tokens > 8


@pytest.mark.parametrize(
    ("inputs", "target", "reason"), [("", "x", "empty input"), (" \n", "x", "empty input"), ("x", " ", "empty target")]
)
def test_nothing_to_learn_from(inputs: str, target: str, reason: str) -> None:
    (features,) = made_of([Example("1", inputs, target)], 32)
    assert isinstance(features, Reject)
    assert str(features) == reason


def test_many_examples_are_what_each_is_alone() -> None:
    examples = [Example(str(i), (f"title {i}", EOS, "word " * (i * 97 % 900)), f"target {i % 5}") for i in range(40)]
    all_features = made_of(examples, 64)
    for example, features in zip(examples, all_features, strict=True):
        (alone,) = made_of([example], 64)
        assert isinstance(features, ExampleFeatures)
        assert features == alone


@pytest.mark.extra("seeds")
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


def test_threads_may_share_a_featurizer() -> None:
    """As Beam's worker threads do. Targets were kept in a dict that one thread emptied while another one read it."""
    shared = featurizer(WORDS, length=64)
    blocks = [[Example(str(i), "why", f"answer {thread} {i}") for i in range(1500)] for thread in range(8)]
    expected = [made_of(block, 64) for block in blocks]
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            for _ in range(3):
                assert list(threads.map(lambda block: featurized(shared, block), blocks)) == expected
    finally:
        sys.setswitchinterval(switch_interval)


ODD_TEXTS = st.lists(st.sampled_from(["", " ", "why", "a <b>loop</b>", "does this error come back " * 9]), max_size=3)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.tuples(st.booleans(), ODD_TEXTS), min_size=1, max_size=3), min_size=1), st.integers(4, 40))
def test_rows_of_any_parts_are_what_each_is_alone(rows: list, length: int) -> None:
    """Fields of several parts, empty fields, EOS at both ends: rows must not mix."""
    examples = []
    for row in rows:
        parts: list = []
        for number, (protected, texts) in enumerate(row):
            parts += [EOS] * (number > 0)
            parts += [Protected(text) if protected else text for text in texts]
        examples.append(Example(None, tuple(parts) or "", "because"))
    for policy, keep_newlines in (("head_tail", False), ("head", True), ("tail", False)):
        shared = featurizer(WORDS, length=length, policy=policy, keep_newlines=keep_newlines)
        all_features = featurized(shared, examples)
        for example, features in zip(examples, all_features, strict=True):
            (alone,) = featurized(shared, [example])
            assert str(features) == str(alone)
            texts = "".join(getattr(part, "text", part) for part in example.inputs if part is not EOS)
            assert not isinstance(features, ExampleFeatures) or features.markup == ("<b>" in texts)


CLASSES = ["negative", "positive"]
LONG = " ".join(encoders.SENTENCES[:3])
SHORT = "unflinchingly bleak"


@pytest.fixture(scope="module", params=["bert", "roberta"])
def folder(request, tmp_path_factory):
    return getattr(encoders, request.param)(tmp_path_factory.mktemp("vocabulary") / request.param)


def encode(folder, inputs, *, length, policy="head", target="positive"):
    class_featurizer = featurizer(
        loading.load(str(folder)), length=length, policy=policy, target=ClassTarget.of(CLASSES)
    )
    (features,) = featurized(class_featurizer, [Example("a", inputs, target)])
    return features


@pytest.mark.parametrize("texts", [[LONG], [LONG, LONG[5:]], [LONG, SHORT], [SHORT, LONG]])
@pytest.mark.parametrize("length", [13, 14, 40, 2000])
def test_head_is_the_truncation_of_transformers(folder, texts, length):
    from transformers import AutoTokenizer

    expected = AutoTokenizer.from_pretrained(folder)(*texts, truncation=True, max_length=length)["input_ids"]
    inputs = texts[0] if len(texts) == 1 else (texts[0], EOS, texts[1])
    assert encode(folder, inputs, length=length).inputs == expected


def test_head_tail_keeps_both_ends_and_the_special_tokens(folder):
    full_ids, cut_ids = (encode(folder, LONG, length=length, policy="head_tail").inputs for length in (2000, 16))
    assert cut_ids == full_ids[:8] + full_ids[-8:]


def test_tail_keeps_the_first_special_token(folder):
    full_ids, cut_ids = (encode(folder, LONG, length=length, policy="tail").inputs for length in (2000, 16))
    assert cut_ids == full_ids[:1] + full_ids[-15:]


def test_protected_text_is_never_cut(folder):
    question = Protected("the film ?")
    question_ids = loading.load(str(folder)).encode("the film ?")
    ids = encode(folder, (question, EOS, LONG), length=30).inputs
    assert len(ids) == 30
    assert ids[1 : 1 + len(question_ids)] == question_ids
    assert isinstance(encode(folder, (Protected(LONG), EOS, SHORT), length=20), Reject)


def test_a_class_is_its_number_and_tokens_count_special_ones(folder):
    features = encode(folder, SHORT, length=64)
    assert features.labels == [1]
    assert (features.tokens, features.target_tokens) == (len(features.inputs), 1)


def test_an_unknown_class_and_an_empty_text_are_rejected(folder):
    assert "unknown class: 'neutral'" in str(encode(folder, SHORT, length=64, target="neutral"))
    assert str(encode(folder, " ", length=64)) == "empty input"


@pytest.mark.parametrize("keep_newlines", [False, True])
@settings(max_examples=40, deadline=None)
@given(
    TEXT,
    TEXT,
    st.integers(12, 60),
    st.sampled_from(["head_tail", "head", "tail"]),
    st.sampled_from(["pair", "protected", "tags"]),
)
def test_what_is_cut_out_of_a_row_is_what_its_ids_lack(
    keep_newlines: bool, first: str, second: str, length: int, policy: str, kind: str
) -> None:
    words = " ".join(f"{first} {second}".split())
    inputs = {"pair": (first, EOS, second), "protected": (Protected("q: "), second), "tags": (words,)}[kind]
    options: dict[str, Any] = {"policy": policy, "marker": "none", "keep_newlines": keep_newlines}
    tags = {"target": TagsTarget(("a",))} if kind == "tags" else {}
    targets = " ".join("a" for _ in words.split()) if tags else first

    def features(room: int, trace: Trace | None = None) -> Features:
        table = example_table.made_of([0], [Example("1", inputs, targets)])
        make = Featurizer(WORDS, input_length=room, target_length=room, trace=trace, **options, **tags)
        return make(example_table.inputs_of(table), table["target"].combine_chunks())

    trace = Trace()
    full_row, cut_row = features(10_000), features(length, trace)
    assume(not full_row.reasons and not cut_row.reasons)
    removed = [token for run in trace.inputs for token in run]
    assert sorted([*cut_row.inputs.ids.tolist(), *removed]) == sorted(full_row.inputs.ids.tolist())
    if not tags:
        ids = full_row.labels.ids.tolist()
        assert [ids[length - 1 : -1]] == trace.targets if len(ids) > length else not trace.targets
