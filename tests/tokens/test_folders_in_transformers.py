"""Tokenizer folders saved and read by transformers have the ids of transformers, also with added tokens.

By this environment's transformers; others are asked by their Pythons: T5PREP_TRANSFORMERS=/path/to/python[:/another].
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fuzzed_texts import fuzzed

from t5prep.tokens import huggingface_files, loading
from tests import encoders

pytest.importorskip("transformers", reason="transformers is not installed")

PYTHONS = [sys.executable, *filter(None, os.environ.get("T5PREP_TRANSFORMERS", "").split(":"))]
SCRIPT = Path(__file__).parents[1] / "transformers_tokenizers.py"
MARKS = ("<unk>", "</s>", "<pad>", "<extra_id", "▁", "<s>", "[SEP]", "[CLS]", "<mask>", "<0x41>")
TOKENS, SPECIAL = ["{{", "<|x|>", "[E1]", "naïve!"], ["<sep>x", "[NAME]"]


def ask(python: str, request: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [python, SCRIPT], input=json.dumps(request), capture_output=True, text=True, timeout=600, check=True
    )
    return dict(json.loads(done.stdout))


def t5(folder: Path) -> Path:
    """Write a T5 whose tokenizer.json alone is there, as transformers 5 saves it."""
    folder.mkdir()
    huggingface_files.write(folder, loading.load("sample:"), config={"model_type": "t5"})
    (folder / "spiece.model").unlink()
    return folder


def drawn(seed: int) -> list[str]:
    chooser = random.Random(seed)
    texts = [text for text in fuzzed(chooser, 300) if text.strip() and not any(mark in text for mark in MARKS)][:140]
    words = [*encoders.SENTENCES[:5], *TOKENS, *SPECIAL, "a{{b", " x", "y "]
    return texts + [" ".join(chooser.choices(words, k=chooser.randrange(1, 6))) for _ in range(60)]


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_saved_folders_have_the_ids_of_transformers(tmp_path: Path, python: str) -> None:
    makers = {
        "bert": encoders.bert,
        "roberta": encoders.roberta,
        "codet5": encoders.codet5,
        "modernbert": encoders.modernbert,
    }
    folders = {name: make(tmp_path / name) for name, make in makers.items()}
    saves = []
    for name, folder in {**folders, "t5": t5(tmp_path / "t5")}.items():
        for kind, tokens, special in (
            ("added", TOKENS[:3], []),
            ("special", [], SPECIAL),
            ("both", TOKENS[2:], SPECIAL[:1]),
        ):
            out = tmp_path / f"{name}-{kind}"
            saves.append([str(folder), str(out), True, tokens, special])
            folders[out.name] = out
    assert ask(python, {"save": saves})["saved"] == [""] * len(saves)
    for source, out, *_ in saves:
        shutil.copy(Path(source) / "config.json", out)
    texts = drawn(int(os.environ.get("T5PREP_SEEDS", "0")))
    encoded = ask(python, {"encode": {str(folder): texts for folder in folders.values()}})["encoded"]
    for name, folder in folders.items():
        tokenizer = loading.load(str(folder))
        found = [[*tokenizer.frame.first, *ids.tolist(), *tokenizer.frame.last] for ids in tokenizer.encode_all(texts)]
        if name.startswith("t5"):  # the tokenizers library and SentencePiece draw other lines between combining marks
            same = sum(one == other for one, other in zip(found, encoded[str(folder)], strict=True))
            assert same >= 0.9 * len(texts), name
        else:
            assert found == encoded[str(folder)], name
