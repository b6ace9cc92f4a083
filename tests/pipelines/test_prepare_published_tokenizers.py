"""Preparing with tokenizers that are published without a SentencePiece model."""

from pathlib import Path

import published_models
import pytest
import small_corpora

from t5prep.tokens import loading


@pytest.mark.parametrize("name", ["gsarti/it5-base", "google/byt5-small"])
def test_a_dataset_holds_the_ids_of_the_models_own_tokenizer(tmp_path: Path, name: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file, content in published_models.files(name, tmp_path / "made").items():
        (model / file).write_bytes(content)
    assert not (model / "spiece.model").exists()
    rows = [{"id": str(n), "q": f"Hello {n}, wörld", "a": f"word{n}"} for n in range(12)]
    manifest = small_corpora.prepared(
        small_corpora.write_csv(tmp_path / "rows.csv", rows),
        tmp_path / "out",
        task="text2text",
        tokenizer=model,
        options={"inputs_column": "q", "targets_column": "a", "id_column": "id"},
        input_length=32,
        target_length=16,
        splits={"train": 1.0},
    )
    words = loading.load(str(model))
    assert manifest.tokenizer.sha256 == words.sha256
    assert manifest.tokenizer.padded_vocab_size == words.padded_size
    records = small_corpora.by_id(tmp_path / "out")
    for row in rows:
        ids = [*words.encode(row["q"]), words.eos_id]
        assert records[row["id"]]["input_ids"] == ids + [0] * (32 - len(ids))
