"""Records hold the features that their manifest names, whatever their targets are."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_corpora import prepared, records

from t5prep.dataset.settings import TARGETS
from t5prep.tasks.targets import TARGETS as KINDS
from t5prep.training.objectives import OBJECTIVES
from tests import encoders

ROWS = [
    {"text": f"a {word} movie {number}", "tags": "O B-X O O", "score": number / 4, "label": word}
    for number, word in enumerate(["good", "bad"] * 4)
]
OPTIONS: dict[str, dict[str, Any]] = {
    "text": {"targets_column": "label"},
    "class": {"targets_column": "label"},
    "tags": {"tags_column": "tags"},
    "labels": {"labels_column": "label"},
    "number": {"number_column": "score"},
}


LAYOUTS: dict[str, dict[str, Any]] = {"padded": {}, "masks": {"masks": True}, "ragged": {"layout": "ragged"}}
# The rows of hidden tokens are full already, so that none is ragged.
CASES = [(target, layout) for target in KINDS for layout in LAYOUTS if (target, layout) != ("tokens", "ragged")]


@pytest.mark.parametrize(("target", "layout"), CASES)
def test_records_have_the_features_of_their_manifest(tmp_path: Path, target: str, layout: str) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    options = {"input_length": 16, "splits": {"train": 1.0}, "task": "masked_language", **LAYOUTS[layout]}
    if target in OPTIONS:
        options |= {"task": "text2text", "options": {"inputs_column": "text", **OPTIONS[target]}}
    tokenizer = "sample:" if target == "text" else encoders.bert(tmp_path / "bert")
    manifest = prepared(tmp_path / "rows.jsonl", tmp_path / "out", tokenizer=tokenizer, **options)
    assert manifest.target.name == manifest.settings.target == target
    (split,) = records(tmp_path / "out").values()
    for record in split:
        assert sorted(record) == sorted(manifest.features)
        for name, feature in manifest.features.items():
            assert feature.shape[0] in (None, len(record[name]))


def test_each_kind_of_target_has_its_half_in_training() -> None:
    assert tuple(KINDS) == TARGETS
    assert {name: kind.name for name, kind in KINDS.items()} == dict(zip(TARGETS, TARGETS, strict=True))
    assert OBJECTIVES.keys() == KINDS.keys()
