"""Any JSON in the files of a tokenizer's folder: a tokenizer or one sentence."""

import contextlib
import copy
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import encoders
import pytest
from random_seeds import seeds

from t5prep.errors import TokenizerError
from t5prep.tokens import loading

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 3, 2**31, 2**63, 10**400, 0.5, float("nan"), float("inf"), "", "a", "\ud800", "x\0y"),
    *("x" * 300_000, "(a+)+$", "[", [], {}, [None], [[]], {"a": 1}, [1, 2], ["x"] * 100_000),
    *({"type": kind} for kind in ("NFKC", "Strip", "x", "Precompiled", "Replace", "TemplateProcessing", "Sequence")),
    {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"},
    {"type": "Replace", "pattern": {"String": ""}, "content": "a" * 100_000},
    {"type": "Precompiled", "precompiled_charsmap": "/////w=="},
    {"id": 10**9, "content": "<z>", "special": True, "normalized": True},
)
FAMILIES = (encoders.bert, encoders.xlm_roberta, encoders.modernbert, encoders.mmbert)


def places(value: Any, holder: Any = None, name: Any = None) -> Iterator[tuple[Any, Any]]:
    """Yield the holder and the name of each value of some JSON, of large ones the first."""
    if holder is not None:
        yield holder, name
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for inner, _ in zip(list(items), range(20), strict=False):
        yield from places(inner[1], value, inner[0])


@pytest.mark.fuzz
def test_drawn_changes_of_a_tokenizer(tmp_path: Path) -> None:
    folders = [family(tmp_path / family.__name__) for family in FAMILIES]
    for seed in seeds(60):
        draw = random.Random(seed)
        folder = tmp_path / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(draw.choice(folders), folder)
        names = sorted(path.name for path in folder.glob("*.json"))
        path = folder / draw.choice([*names, *(name for name in names * 3 if name == "tokenizer.json")])
        facts = json.loads(path.read_text())
        for _ in range(draw.choice((1, 1, 2))):
            holder, name = draw.choice(list(places(facts)) or [([None], 0)])
            if draw.random() < 0.2:
                del holder[name]
            else:
                holder[name] = copy.deepcopy(draw.choice(VALUES))
        path.write_text(json.dumps(facts))
        try:
            with contextlib.suppress(TokenizerError):
                loading.load(str(folder)).encode("a text " * 100)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
