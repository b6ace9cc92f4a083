"""Tokenizer folders saved and read by transformers have the ids of transformers, also with added tokens, or are refused.

Where transformers 4 and 5 differ from each other, or from SentencePiece, `tokenizer check` encodes as each of them does.
By the versions of transformers in the environments that `.ci/run` makes; one of them is this environment's version.
By hand, all ways to save each family, and 200 texts: T5PREP_SEEDS=1 pytest -m '' tests/tokens/test_folders_in_transformers.py
"""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import random_seeds
from extras import TRANSFORMERS
from fuzzed_texts import fuzzed

from t5prep.errors import TokenizerError
from t5prep.tokens import audit, huggingface_files, loading
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.tokenizer import Tokenizer
from tests import encoders, published_folders

PYTHONS = [*map(str, TRANSFORMERS.values())]
SCRIPT = Path(__file__).parents[1] / "transformers_tokenizers.py"
MARKS = ("<unk>", "</s>", "<pad>", "<extra_id", "▁", "<s>", "[SEP]", "[CLS]", "<mask>", "<0x41>")
FLAGS: list[dict[str, Any]] = [
    {"content": "{{", "normalized": False},
    {"content": "naïve!", "normalized": True},
    {"content": "lead", "lstrip": True},
    {"content": "tail", "rstrip": True, "normalized": False},
    {"content": "word", "single_word": True},
]
ADDED: dict[str, tuple[list[Any], list[Any]]] = {
    "none": ([], []),
    "plain": (["{{", "<|x|>", "[E1]"], []),
    "special": ([], ["<sep>x", "[NAME]"]),
    "flags": (FLAGS, ["<sep>x"]),
}
# By transformers 4, the ways to load a tokenizer before it is saved; version 5 has one.
OPTIONS: dict[str, dict[str, Any]] = {
    "fast": {},
    "slow": {"use_fast": False},
    "slow-not-legacy": {"use_fast": False, "legacy": False},
    "not-legacy": {"legacy": False},
    "no-prefix-space": {"add_prefix_space": False},
}


class Saved(NamedTuple):
    """A folder that transformers saves: of which family, by which version, how loaded and with which tokens added."""

    family: str
    python: int
    options: str
    added: str

    @property
    def name(self) -> str:
        return "-".join(map(str, self))


def ask(python: str, request: dict[str, Any]) -> dict[str, Any]:
    process = subprocess.run(
        [python, SCRIPT], input=json.dumps(request), capture_output=True, text=True, timeout=900, check=True
    )
    return dict(json.loads(process.stdout))


def written_t5(folder: Path) -> Path:
    """Write a T5 as t5prep exports it, whose tokenizer.json alone is there."""
    folder.mkdir()
    huggingface_files.write(folder, loading.load("sample:"), config={"model_type": "t5"})
    (folder / "spiece.model").unlink()
    return folder


def draw_texts(seed: int, count: int) -> list[str]:
    chooser = random.Random(seed)
    texts = [text for text in fuzzed(chooser, 2 * count) if not any(mark in text for mark in MARKS)][: count * 2 // 3]
    words = [
        *encoders.SENTENCES[:5],
        "{{",
        "<|x|>",
        "[E1]",
        "a{{b",
        "<sep>x",
        "[NAME]",
        "tail",
        "lead",
        "word",
        "wording",
    ]
    words += ["naïve!", "nai\u0308ve!", "e\u0301", "\xa0x\u3000", "\tq", " x", "y ", "ﬁ…½", "a\u200bb", "🙂"]
    while len(texts) < count:
        separator = chooser.choice((" ", " ", "", "  ", "\n"))
        texts.append(separator.join(chooser.choices(words, k=chooser.randrange(1, 6))))
    return texts


def saved_folders(versions: list[int]) -> list[Saved]:
    """Return all folders that are saved, or in CI one of each family by each version, with options and tokens in turn."""
    chosen = []
    for number, family in enumerate([*published_folders.FAMILIES, "written_t5"]):
        for python, version in enumerate(versions):
            ways = [(name, added) for added in ADDED for name in (OPTIONS if version < 5 else ("fast",))]
            in_turn = [
                ways[7 * number % len(ways)]
            ]  # each option and each set of tokens: 7 divides neither of their numbers
            chosen += [Saved(family, python, *way) for way in (ways if random_seeds.ARE_GIVEN else in_turn)]
    return chosen


def check_ids(folder: Path, texts: list[str], theirs: list[list[int]], *, version: int) -> str:
    """Check the ids of a folder against those of a transformers. Return "" or the sentence by which it is refused."""
    try:
        tokenizer = loading.load(str(folder))
    except TokenizerError as error:
        return str(error)
    documents = loading.as_in_transformers(str(folder), tokenizer)
    sources = [f"transformers {version}", "the folder's tokenizer.json"]
    source = next((name for name in sources if name in documents), "")
    our_ids = [ids.tolist() for ids in tokenizer.encode_all(texts)]
    if source:
        predicted = audit.encode_by(documents[source], name=folder.name)(texts)
        if isinstance(tokenizer, EncoderTokenizer) and source != "transformers 5":
            assert our_ids == predicted, (folder.name, source)
        assert_same_ids(predicted, theirs, texts, tokenizer, label=f"{folder.name} {source}")
    if not source or (isinstance(tokenizer, EncoderTokenizer) and source != "transformers 5"):
        assert_same_ids(our_ids, theirs, texts, tokenizer, label=folder.name)
    if not isinstance(tokenizer, EncoderTokenizer):
        assert our_ids == tokenizer.processor.encode(texts), folder.name
    return ""


def assert_same_ids(ours: Any, theirs: Any, texts: list[str], tokenizer: Tokenizer, *, label: str) -> None:
    """Assert that ids are the same, but for splits of a text that are equally likely."""
    first, last = tokenizer.frame.first, tokenizer.frame.last
    for text, our_ids, their_ids in zip(texts, ours, theirs, strict=True):
        framed_ids = [*first, *our_ids, *last]
        assert framed_ids == their_ids or is_tied(framed_ids, their_ids, tokenizer), (
            label,
            text,
            framed_ids,
            their_ids,
        )


def is_tied(first_ids: list[int], second_ids: list[int], tokenizer: Tokenizer) -> bool:
    """Check whether two splits are equally likely: the numbers of a file are read in another way than those of Python are."""
    if isinstance(tokenizer, EncoderTokenizer):
        model = json.loads(tokenizer.model)["model"]
        if model["type"] != "Unigram":
            return False
        inside = [[model["vocab"][id] for id in ids if id < len(model["vocab"])] for ids in (first_ids, second_ids)]
        if len({"".join(text for text, _ in pieces) for pieces in inside}) > 1:
            return False
        totals = [sum(score for _, score in pieces) for pieces in inside]
        return abs(totals[0] - totals[1]) < 1e-6 * abs(totals[0])
    return audit.tied(first_ids[:-1], second_ids[:-1], tokenizer)


@pytest.mark.extra(*TRANSFORMERS)
@pytest.mark.slow
def test_saved_folders_have_the_ids_of_transformers(tmp_path: Path) -> None:
    """Folders that real transformers 4 and 5 save and read; test_tokenizer_folders writes such folders by hand."""
    makers = {**published_folders.FAMILIES, "written_t5": written_t5}
    folders = {name: make(tmp_path / name) for name, make in makers.items()}
    versions = [int(name.removeprefix("transformers").split(".")[0]) for name in TRANSFORMERS]
    saved_tokenizers = saved_folders(versions)
    for index, python in enumerate(PYTHONS):
        mine = [saved for saved in saved_tokenizers if saved.python == index]
        requests = [
            {
                "folder": str(folders[saved.family]),
                "out": str(tmp_path / saved.name),
                "options": OPTIONS[saved.options],
                **dict(zip(("tokens", "special"), ADDED[saved.added], strict=True)),
            }
            for saved in mine
        ]
        for saved, message in zip(mine, ask(python, {"save": requests})["saved"], strict=True):
            if (
                not message
            ):  # transformers 5 has no tokenizer for a SentencePiece model beside some versions of protobuf
                folders[saved.name] = tmp_path / saved.name
                shutil.copy(tmp_path / saved.family / "config.json", folders[saved.name])
    assert len(folders) > 2 * len(makers)
    texts = draw_texts(random_seeds.seeds(1)[0], 200 if random_seeds.ARE_GIVEN else 60)
    refused = {}
    for python, version in zip(PYTHONS, versions, strict=True):
        encoded = ask(python, {"encode": {str(folder): texts for folder in folders.values()}})["encoded"]
        for name, folder in folders.items():
            if isinstance(encoded[str(folder)], list):  # a version cannot read all folders of the other one
                refused[name] = check_ids(folder, texts, encoded[str(folder)], version=version)
    assert not any(refused[name] for name in makers)
    for name, message in refused.items():
        assert "\n" not in message, (name, message)
        assert not message or "-none" not in name or "no-prefix-space" in name, (name, message)
