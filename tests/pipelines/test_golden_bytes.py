"""The bytes of shards: what is prepared today is what was prepared before, in every layout."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from small_corpora import prepared

# SHA-256 of all shards in order of their names, made of the built-in sample with its tokenizer.
GOLDEN: dict[str, dict[str, Any]] = {
    "padded": {},
    "padded with masks, without markup": {"options": {"html": "strip"}, "masks": True, "dedup": "exact", "seed": 7},
    "ragged with newlines": {
        "layout": "ragged", "keep_newlines": True, "limit": 500, "input_length": 64, "marker": "none",
    },
    "packed": {"layout": "packed", "shards": 3, "splits": {"train": 0.8, "validation": 0.1, "test": 0.1}},
}  # fmt: skip
DIGESTS = {
    "padded": "1fe87d6ab64ba34d",
    "padded with masks, without markup": "108ccf821de946ae",
    "ragged with newlines": "33e0112a388b9b03",
    "packed": "40f1667f5887739b",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_shards_have_the_bytes_that_they_always_had(tmp_path: Path, name: str) -> None:
    prepared("sample:", tmp_path / "out", tokenizer="sample:", **GOLDEN[name])
    digest = hashlib.sha256()
    for path in sorted((tmp_path / "out").glob("*.tfrecord-*")):
        digest.update(path.read_bytes())
    assert digest.hexdigest()[:16] == DIGESTS[name]
