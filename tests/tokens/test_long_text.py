"""The ends of long texts have the ids that tokenizing all of the text gives, or they are not used."""

import csv
import random
import sys
from pathlib import Path

import pytest

from t5prep.sources import sample
from t5prep.tokens.long_text import EndsEncoder
from t5prep.tokens.tokenizer import Tokenizer

csv.field_size_limit(sys.maxsize)


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")


def check(tokenizer: Tokenizer, texts: list[str], *, head: int = 255, tail: int = 255) -> int:
    """How many texts were tokenized only at their ends; all of those are right."""
    encoder = EndsEncoder(tokenizer)
    used = 0
    for text in texts:
        ends = encoder.encode(text, head=head, tail=tail)
        if ends is None:
            continue
        ids = tokenizer.encode(text)
        assert 0.5 < ends.tokens / len(ids) < 2
        if ends.tail is None:
            continue
        assert ends.head.tolist() == ids[:head]
        assert ends.tail.tolist() == ids[len(ids) - tail :]
        used += 1
    return used


def test_real_texts(shared_data: Path) -> None:
    model = shared_data / "t5_tokenizer/spiece.model"
    tokenizer = Tokenizer(model.read_bytes(), name=str(model))
    chooser = random.Random(5)
    with open(shared_data / "stackoverflow/questions_cp1252.csv", newline="", encoding="cp1252") as file:
        bodies = [row["Body"] for row in csv.DictReader(file)]
    lines = (shared_data / "english/wikitext2_valid.txt").read_text().splitlines()
    romanian = (shared_data / "romanian/RO-STS.train.ro").read_text().splitlines()
    for corpus, share in ((bodies, 0.3), (lines, 0.8), (romanian, 0.3)):
        texts = [" ".join(chooser.choices(corpus, k=200 if corpus is not bodies else 12)) for _ in range(60)]
        assert check(tokenizer, texts) >= share * len(texts)


def test_ties_far_into_a_text_are_not_guessed(words: Tokenizer) -> None:
    """Words with two equally good segmentations are those that rounding can turn: at least they must stay right."""
    chooser = random.Random(1)
    odd = ["-" * n for n in range(3, 40)] + ["#" * n for n in range(3, 40)] + ["." * 17, "=" * 33, "xyxyxyxy", "0" * 12]
    texts = [" ".join(chooser.choices([*odd, "and", "the", "question"], k=3000)) for _ in range(20)]
    check(words, texts)


@pytest.mark.parametrize(
    "strange", ["\u200b", "\u00a0", "\u0301", "\ufeff", "\x1c", "\u3000", "ﷺ", "\u2028", "🙂", "\r\n", "\t"]
)
def test_characters_that_normalization_moves(words: Tokenizer, strange: str) -> None:
    chooser = random.Random(len(strange))
    vocabulary = ["why", "does", f"this{strange}error", strange, f"{strange}come", f"back{strange}", "in", "a", "loop?"]
    check(words, [" ".join(chooser.choices(vocabulary, k=3000)) for _ in range(10)], head=40, tail=40)


@pytest.mark.parametrize(("head", "tail"), [(0, 256), (511, 0), (255, 0)])
def test_one_end_only(words: Tokenizer, head: int, tail: int) -> None:
    text = " ".join(random.Random(2).choices(["why", "does", "this", "error", "come"], k=4000))
    assert check(words, [text], head=head, tail=tail) == 1


def test_no_rule_of_normalization_reaches_across_a_safe_space(words: Tokenizer) -> None:
    """The argument of t5prep/tokens/long_text.py, tried on all neighbours: what stands on both sides is normalized on its own."""
    visible = [chr(code) for code in range(0x21, 0x7F)]
    normalize = words.processor.normalize
    for space in " \n":
        for left in visible:
            text = " | ".join(f"{left}{space}{right}" for right in visible)
            expected = "▁|▁".join(f"{left}▁{right}" for right in visible)
            assert normalize(text) == f"▁{expected}"


def test_a_model_that_cannot_be_proved_is_tokenized_whole(words: Tokenizer) -> None:
    encoder = EndsEncoder(words)
    assert encoder.worthwhile(100_000, 511)
    assert not encoder.worthwhile(2_000, 511)
    encoder.provable = False
    assert not encoder.worthwhile(100_000, 511)


def test_the_second_best_of_long_words_is_the_second_best(shared_data: Path) -> None:
    """A margin rests on SentencePiece's list of the two best segmentations: here they are found by trying all."""
    model = shared_data / "t5_tokenizer/spiece.model"
    processor = Tokenizer(model.read_bytes(), name=str(model)).processor
    numbers = [
        i for i in range(processor.get_piece_size()) if not processor.is_control(i) and not processor.is_unknown(i)
    ]
    costs = {processor.id_to_piece(i): -processor.get_score(i) for i in numbers}
    unknown = max(costs.values()) + 10
    with open(shared_data / "stackoverflow/questions_cp1252.csv", newline="", encoding="cp1252") as file:
        words = {word for row in csv.DictReader(file) for word in row["Body"].split() if 48 < len(word) <= 192}
    for word in random.Random(3).sample(sorted(filter(str.isascii, words)), 150):
        listed = [
            sum(costs.get(processor.id_to_piece(i), unknown) for i in path)
            for path in processor.nbest_encode(word, nbest_size=2)
        ]
        assert listed == pytest.approx(_two_cheapest(f"▁{word}", costs, unknown), abs=1e-3)


def _two_cheapest(word: str, costs: dict[str, float], unknown: float) -> list[float]:
    best: list[list[float]] = [[0.0]]
    for end in range(1, len(word) + 1):
        ways = []
        for begin in range(max(0, end - 16), end):
            cost = costs.get(word[begin:end], unknown if end - begin == 1 else None)
            ways += [before + cost for before in best[begin]] if cost is not None else []
        best.append(sorted(ways)[:2])
    return best[-1]
