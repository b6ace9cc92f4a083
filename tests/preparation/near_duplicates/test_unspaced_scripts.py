"""Near-duplicates and leaks in scripts that are written without spaces between words, and in those beside them."""

import random

import pytest

from t5prep.preparation import evaluation_sets
from t5prep.preparation.near_duplicates.sketches import shingles, word_edges

# Letters of each script, from which texts are drawn.
LETTERS = {
    "Thai": "กขคงจชซญดตถทนบปผพมยรลวสหอ",
    "Lao": "ກຂຄງຈຊຍດຕຖທນບປຜພມຢລວສຫອຮ",
    "Burmese": "ကခဂငစဆဇညတထဒနပဖဗဘမယရလဝသဟအ",
    "Khmer": "កខគឃងចឆជញដឋណតថទធនបផពមយរលវសហអ",
    "Chinese": "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏",
    "rare Han": "".join(chr(0x20000 + n * 7) for n in range(30)),
    "Japanese": "あいうえおかきくけこさしすせそたちつてとアイウエオ",
    "Javanese": "".join(chr(code) for code in range(0xA984, 0xA9A8)),
}
MARKS = {"Thai": "ัิีึื่้", "Lao": "ັິີ່້", "Burmese": "ါာိီုူ", "Khmer": "ាិីុូ"}


def text_of(script: str, length: int, *, seed: int) -> str:
    """A text without a space, in which some letters have marks."""
    draw = random.Random(f"{script} {seed}")
    marks = MARKS.get(script, "")
    letters = (draw.choice(LETTERS[script]) for _ in range(length))
    return "".join(letter + (draw.choice(marks) if marks and draw.random() < 0.4 else "") for letter in letters)


@pytest.mark.parametrize("script", LETTERS)
def test_nearly_the_same_text_shares_most_shingles(script: str) -> None:
    """A whole Thai clause was one word: two texts with one other letter had nothing in common."""
    text = text_of(script, 300, seed=1)
    middle = len(text) // 2
    changed = f"{text[:middle]}{LETTERS[script][0]}{text[middle:]}"
    unrelated_text = text_of(script, 300, seed=2)
    sets = [
        set(shingles([compared_text], words=5).hashes.tolist()) for compared_text in (text, changed, unrelated_text)
    ]
    assert len(sets[0] & sets[1]) / len(sets[0] | sets[1]) > 0.9
    assert len(sets[0] & sets[2]) / len(sets[0] | sets[2]) < 0.1


@pytest.mark.parametrize("script", LETTERS)
def test_a_text_that_holds_an_evaluation_text_is_a_leak(script: str) -> None:
    held_out = text_of(script, 60, seed=3)
    leaks = evaluation_sets.collect({"eval": [held_out]}, words=13)
    texts = [text_of(script, 80, seed=4) + held_out + text_of(script, 80, seed=5), text_of(script, 220, seed=6)]
    leak, none = leaks.find(texts)
    assert leak.endswith("is in eval")
    assert none == ""


def test_other_scripts_are_cut_at_spaces_alone() -> None:
    for text in ("हिन्दी में लिखा", "Việt Nam muôn năm", "한국어 문장", "مرحبا بالعالم", "plain words"):
        assert len(word_edges(text)) == len(text.split())
    text = "ข้าว rice ขาว"
    assert [text[begin:end] for begin, end in word_edges(text)] == ["ข้", "า", "ว", "rice", "ข", "า", "ว"]


def test_what_is_shared_is_quoted_as_it_was_read() -> None:
    held_out = "第一，今天的天氣很好、我們去公園散步。 Then we WENT home."
    leaks = evaluation_sets.collect({"eval": [held_out]}, words=13)
    assert leaks.find([f"「引」{held_out} 完"]) == ['leak: "第一，今天的天氣很好、我們去公" is in eval']
    assert evaluation_sets.collect({"eval": [held_out[-19:]]}, words=3).find(["So: then  we WENT\nhome!"]) == [
        'leak: "then we WENT" is in eval'
    ]
