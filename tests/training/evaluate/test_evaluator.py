"""Labels whose names are several tokens are scored as classes, whatever the task; whole texts are not."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import copying_model
import numpy as np
import pytest
import small_corpora
import tensorflow as tf
import toy_runs

from t5prep.dataset.prepared import Dataset
from t5prep.options.generation import Generation
from t5prep.training.evaluate import evaluator
from t5prep.training.model.weights import random_weights
from t5prep.training.run.run import TINY
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.state import put_weights

WORDS = copying_model.WORDS


def test_no_batch_is_larger_than_the_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filled up, a batch of a hundred billion rows would end the process."""
    rows = [{"q": f"question {i}", "a": "yes"} for i in range(5)]
    small_corpora.prepared(
        small_corpora.write_csv(tmp_path / "rows.csv", rows), tmp_path / "data", task="text2text", tokenizer="sample:",
        options={"inputs_column": "q", "targets_column": "a"}, splits={"validation": 1.0}, input_length=16,
    )  # fmt: skip
    sizes = []

    def count_rows(*_: Any, **__: Any) -> Any:
        return lambda weights, batch: (sizes.append(len(batch["input_ids"])), copying_model.echo()(weights, batch))[1]

    copying_model.no_model(monkeypatch, count_rows)
    score = evaluator.Evaluator(
        TINY, layout=open_layout(), opened=Dataset(tmp_path / "data").split("validation"),
        batch=10**11, tokenizer=WORDS, dtype=tf.float32,
    )  # fmt: skip
    assert score({}).metrics["records"] == 5
    assert set(sizes) == {5}


@pytest.mark.parametrize("labelled", [True, False])
def test_labels_are_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labelled: bool) -> None:
    names = ("a backend team", "the web team")
    rows = [{"q": names[i % 2], "a": names[0] if labelled else f"a whole answer, number {i}"} for i in range(12)]
    rows[0]["a"] = names[1]
    source = small_corpora.write_csv(tmp_path / "rows.csv", rows)
    small_corpora.prepared(
        source, tmp_path / "data", task="text2text", tokenizer="sample:",
        options={"inputs_column": "q", "targets_column": "a"},
        splits={"validation": 1.0}, input_length=16, target_length=16,
    )  # fmt: skip
    copying_model.no_model(monkeypatch, copying_model.echo)
    score = evaluator.Evaluator(
        TINY, layout=open_layout(), opened=Dataset(tmp_path / "data").split("validation"), batch=4,
        tokenizer=WORDS, dtype=tf.float32,
    )  # fmt: skip
    metrics = score({}).metrics
    if not labelled:
        assert "confusion" not in metrics
        return
    assert metrics["labels"] == ["a backend team", "the web team"]
    assert metrics["confusion"] == [[5, 6, 0], [1, 0, 0]]
    assert metrics["accuracy"] == pytest.approx(5 / 12)


def test_answers_are_drawn_by_numbers_of_each_row_and_a_limit_ends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"q": f"question {i}", "a": f"the answer {i}"} for i in range(9)]
    small_corpora.prepared(
        small_corpora.write_csv(tmp_path / "rows.csv", rows), tmp_path / "data", task="text2text", tokenizer="sample:",
        options={"inputs_column": "q", "targets_column": "a"}, splits={"validation": 1.0}, input_length=16,
    )  # fmt: skip
    uniforms = []

    def record_uniforms(*_: Any, **__: Any) -> Any:
        def answered(weights: Mapping[str, Any], batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            uniforms.extend(batch.get("uniform", []))
            return copying_model.echo()(weights, batch)

        return answered

    copying_model.no_model(monkeypatch, record_uniforms)
    for size in (2, 4):
        score = evaluator.Evaluator(
            TINY, layout=open_layout(), opened=Dataset(tmp_path / "data").split("validation"), batch=size, tokenizer=WORDS,
            dtype=tf.float32, limit=3, generation=Generation(sample=True, max_length=7, seed=5),
        )  # fmt: skip
        assert score({}).metrics["records"] == 3
    assert len(uniforms) == 8
    assert uniforms[0].shape == (1, 7)
    # The same for a row in any batch, and another one for another row.
    assert all(
        np.array_equal(first_draw, second_draw)
        for first_draw, second_draw in zip(uniforms[:3], uniforms[4:7], strict=True)
    )
    assert not np.array_equal(uniforms[0], uniforms[1])


@pytest.mark.parametrize("targets", [("yes", "a backend team"), ("yes", "no")])
def test_a_split_is_read_once_whether_its_targets_are_one_token_or_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, targets: tuple[str, str]
) -> None:
    """One text more than a token among labels: it was found out after scoring, and all was scored again."""
    rows = [{"q": f"question {i}", "a": targets[i % 2]} for i in range(8)]
    small_corpora.prepared(
        small_corpora.write_csv(tmp_path / "rows.csv", rows), tmp_path / "data", task="text2text", tokenizer="sample:",
        options={"inputs_column": "q", "targets_column": "a"}, splits={"validation": 1.0}, input_length=16,
        target_length=16,
    )  # fmt: skip
    reads, searched = [], []
    eval_batches = evaluator.eval_batches
    monkeypatch.setattr(evaluator, "eval_batches", lambda *a, **k: (reads.append(1), eval_batches(*a, **k))[1])
    copying_model.no_model(monkeypatch, copying_model.echo)
    search = evaluator.answers_on_rows
    monkeypatch.setattr(evaluator, "answers_on_rows", lambda *a, **k: (searched.append(1), search(*a, **k))[1])
    score = evaluator.Evaluator(
        TINY, layout=open_layout(), opened=Dataset(tmp_path / "data").split("validation"), batch=4, tokenizer=WORDS,
        dtype=tf.float32,
    )  # fmt: skip
    several = len(WORDS.encode(targets[1])) > 1 or len(WORDS.encode(targets[0])) > 1
    assert score.generates == several
    assert "accuracy" in score({}).metrics
    assert len(reads) == 1
    assert bool(searched) == several


def test_wrong_answers_are_sampled_by_class_and_scored_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"q": f"question {i}", "a": ("a backend team", "the web team")[i % 2]} for i in range(20)]
    small_corpora.prepared(
        small_corpora.write_csv(tmp_path / "rows.csv", rows), tmp_path / "data", task="text2text", tokenizer="sample:",
        options={"inputs_column": "q", "targets_column": "a"}, splits={"validation": 1.0}, input_length=16,
        target_length=16,
    )  # fmt: skip

    def wrong(*_: Any, **__: Any) -> Any:
        def answered(weights: Any, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {
                "ids": np.full_like(batch.get("labels", batch["input_ids"]), 5),
                "loss": np.zeros(len(batch["input_ids"])),
            }

        return answered

    copying_model.no_model(monkeypatch, wrong)
    evaluations = []
    for size in (4, 5):
        score = evaluator.Evaluator(
            TINY, layout=open_layout(), opened=Dataset(tmp_path / "data").split("validation"), batch=size, tokenizer=WORDS,
            dtype=tf.float32,
        )  # fmt: skip
        evaluations.append(score({}, sample=3, score_each=True))
    assert sorted(answer.target for answer in evaluations[0].sample) == ["a backend team"] * 3 + ["the web team"] * 3
    assert [answer.id for answer in evaluations[0].sample] == [answer.id for answer in evaluations[1].sample]
    assert evaluations[0].worst == []
    assert all(answer["scores"]["accuracy"] == 0.0 for answer in evaluations[0].predictions)


def test_eight_devices_give_the_table_of_one(tmp_path: Path) -> None:
    """Also of a last batch that does not fill them: so a TPU's cores and several GPUs give what one device gives."""
    data = toy_runs.classes(tmp_path / "data", rows=90)
    shape = dataclasses.replace(TINY, vocab_size=WORDS.size, d_model=8, d_kv=4, d_ff=8, num_heads=2)
    tables = []
    for replicas in (1, 8):
        layout = open_layout(replicas=replicas)
        assert layout.replicas == replicas
        score = evaluator.Evaluator(
            shape, layout=layout, opened=Dataset(data).split("validation"), batch=16, tokenizer=WORDS, dtype=tf.float32
        )
        tables.append(score(put_weights(random_weights(shape), layout.weights(shape))))
    one_device, eight_devices = tables
    assert one_device.metrics["records"] % 8 != 0
    assert eight_devices.metrics["confusion"] == one_device.metrics["confusion"]
    assert eight_devices.metrics["loss"] == pytest.approx(one_device.metrics["loss"], rel=1e-5)
    assert [(row["id"], row["prediction"]) for row in eight_devices.predictions] == [
        (row["id"], row["prediction"]) for row in one_device.predictions
    ]
