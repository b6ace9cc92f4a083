"""What a protected template keeps: its own words, whatever is cut."""

import random

import pytest

from t5prep.sources import sample
from t5prep.tasks import registry
from t5prep.tasks.example import Protected
from t5prep.tokens.encoder import Encoder, Features
from t5prep.tokens.tokenizer import Tokenizer

WORDS = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")
COMMON = ["why", "does", "this", "error", "come", "back", "in", "a", "loop?"]
TEMPLATE = "question: {q} context: {c}"


def cut(record: dict[str, str], *, length: int, policy: str, protect: list[str]) -> str:
    """The input of a record, cut and decoded."""
    chosen = registry.get("text2text").choose({"inputs": TEMPLATE, "targets_column": "a", "protect": protect})
    encode = Encoder(WORDS, input_length=length, target_length=8, policy=policy, marker="extra_id_1")
    (made,) = encode([chosen.to_example({"a": "yes", **record})])
    assert isinstance(made, Features), made
    ids = [int(token) for piece in made.inputs for token in piece]
    assert len(ids) <= length
    return WORDS.decode(ids)


@pytest.mark.parametrize("policy", ["head_tail", "head", "tail"])
@pytest.mark.parametrize("protect", ["q", "c"])
def test_the_words_of_a_template_survive_any_cut(policy: str, protect: str) -> None:
    chooser = random.Random(1)
    for length in (64, 80, 128):
        for _ in range(8):
            sizes = {name: chooser.randrange(1, 10) if name == protect else chooser.randrange(300) for name in "qc"}
            record = {name: " ".join(chooser.choices(COMMON, k=size)) for name, size in sizes.items()}
            said = cut(record, length=length, policy=policy, protect=[protect])
            assert said.startswith("question:")
            assert said.count("question:") == said.count(" context:") == 1
            label = "question" if protect == "q" else "context"
            assert f"{label}: {record[protect]} " in said


def test_without_protect_the_template_is_text_like_any_other() -> None:
    record = {"q": "why", "c": "does this error " * 100}
    assert not cut(record, length=32, policy="tail", protect=[]).startswith("question")
    chosen = registry.get("text2text").choose({"inputs": TEMPLATE, "targets_column": "a"})
    assert not any(isinstance(part, Protected) for part in chosen.to_example({"a": "yes", **record}).inputs)


def test_what_fits_is_the_same_protected_or_not() -> None:
    record = {"q": "why does (this)", "c": "come back"}
    whole = cut(record, length=64, policy="head", protect=[])
    for name in "qc":
        assert cut(record, length=64, policy="head", protect=[name]) == whole
