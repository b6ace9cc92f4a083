"""Answers on the devices: the parts that the cores of a CPU answer are those of the whole batch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytest.importorskip("jax", reason="jax is not installed")

from t5prep.train import generating  # noqa: E402
from t5prep.train.model import custom_calls  # noqa: E402
from t5prep.train.model.generation import Generation  # noqa: E402
from t5prep.train.model.t5_config import ModelConfig  # noqa: E402
from t5prep.train.model.weights import random_weights  # noqa: E402
from t5prep.train.runtime.devices import open_layout  # noqa: E402
from t5prep.train.runtime.state import put_weights  # noqa: E402

CONFIG = ModelConfig(vocab_size=40, d_model=16, d_kv=16, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=2)


@pytest.mark.skipif(not custom_calls.usable(), reason="what is in C is not built, or not for this processor")
def test_parts_give_the_answers_of_the_whole_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, sizes = open_layout(), []
    whole_search = generating.search

    def search(*arguments: Any, operations: Any, **options: Any) -> Any:
        sizes.append((type(operations).__name__, arguments[2].shape[0]))
        return whole_search(*arguments, operations=operations, **options)

    monkeypatch.setattr(generating, "search", search)
    weights = random_weights(CONFIG, seed=0)
    weights["shared"] *= 3
    placed = put_weights(weights, CONFIG, layout)
    batch = {"input_ids": np.random.default_rng(0).integers(2, 40, (24, 5)).astype(np.int32)}
    options, answers = Generation(max_length=6, min_length=3, no_repeat_ngram=1, scores=True), []
    for cores in (1, 3, 5):
        monkeypatch.setattr(generating, "_cores", lambda cores=cores: cores)
        run = generating.answers_on_rows(CONFIG, options, layout=layout, dtype=tf.float32, place=str(tmp_path))
        answers.append({name: np.asarray(value) for name, value in run(placed, batch).items()})
    assert sizes == [("OwnOperations", 24), ("OwnOperations", 8), ("StepOperations", 24)]
    assert len(np.unique(answers[0]["ids"])) > 4
    for answer in answers:
        assert answer["ids"].tolist() == answers[0]["ids"].tolist()
        np.testing.assert_allclose(answer["scores"], answers[0]["scores"], rtol=1e-4)


def test_parts_are_left_where_they_would_idle_cores_or_copy_too_much() -> None:
    size = generating._decoder_bytes(CONFIG)
    assert size == 4 * (8 * 16 * 32 + 2 * 16 * 24 + 3 * 16 + 16 + 32 * 2)
    assert generating.parts_of(32, cores=2, part_bytes=generating.MOST_COPIED // 2) == 2
    assert generating.parts_of(32, cores=2, part_bytes=generating.MOST_COPIED // 2 + 1) == 0
    assert [generating.parts_of(rows, cores=2, part_bytes=size) for rows in (1, 8, 15, 16, 17)] == [0, 0, 0, 2, 0]
    assert generating.parts_of(1, cores=1, part_bytes=1 << 60) == 1
