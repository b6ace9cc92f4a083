"""Functions of rows on the devices: parts of a batch that the cores of a CPU compute at the same time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytest.importorskip("jax", reason="jax is not installed")

from t5prep.train.model.t5_config import ModelConfig  # noqa: E402
from t5prep.train.model.weights import random_weights  # noqa: E402
from t5prep.train.runtime import rows  # noqa: E402
from t5prep.train.runtime.devices import open_layout  # noqa: E402
from t5prep.train.runtime.state import put_weights  # noqa: E402

CONFIG = ModelConfig(vocab_size=16, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_decoder_layers=1, num_heads=2)


def test_parts_give_the_rows_of_the_whole_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_cores", lambda: 3)
    layout, sizes = open_layout(), []

    def embedded(weights: Mapping[str, Any], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        sizes.append(batch["input_ids"].shape[0])
        return {"vectors": tf.gather(weights["shared"], batch["input_ids"]), "ids": batch["input_ids"]}

    weights = put_weights(random_weights(CONFIG, seed=0), CONFIG, layout)
    batch = {"input_ids": np.arange(24, dtype=np.int32).reshape(12, 2) % 16}
    results = []
    for least in (0, 4, 5, 8):
        run = rows.on_rows("embed", embedded, shape=CONFIG, layout=layout, place=str(tmp_path), least=least)
        results.append({name: np.asarray(value) for name, value in run(weights, batch).items()})
    assert sizes == [12, 4, 6, 12]
    for result in results:
        assert result["ids"].tolist() == batch["input_ids"].tolist()
        assert np.array_equal(result["vectors"], results[0]["vectors"])
