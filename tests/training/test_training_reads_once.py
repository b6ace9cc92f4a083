"""A run reads each manifest once, and each evaluation reads its split once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import copying_model
import jax
import pytest
import toy_runs

from t5prep.dataset import manifest
from t5prep.training import trainer
from t5prep.training.evaluate import evaluator
from t5prep.training.runtime.state import Variables


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count how often a manifest is loaded and a split is read for an evaluation."""
    counts = {"manifests": 0, "splits": 0}
    load, eval_batches = manifest.load, evaluator.eval_batches

    def loading(data: str):
        counts["manifests"] += 1
        return load(data)

    def reading(*arguments, **options):
        counts["splits"] += 1
        return eval_batches(*arguments, **options)

    monkeypatch.setattr(manifest, "load", loading)
    monkeypatch.setattr(evaluator, "eval_batches", reading)
    return counts


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and scoring without a program: what is read does not depend on what is computed."""

    def step(*arguments: Any) -> tuple[Any, ...]:
        return *arguments[: len(Variables._fields)], jax.numpy.ones(3)

    monkeypatch.setattr(trainer.compiling, "compile_step", toy_runs.uncompiled(step))
    copying_model.no_model(monkeypatch, copying_model.echo)


def test_a_run_that_generates_opens_its_data_once_and_reads_the_split_once_an_evaluation(
    toy: None, tmp_path: Path, shape: str, reads: dict[str, int]
) -> None:
    data = toy_runs.sentences(tmp_path / "sentences")
    settings = {"steps": 2, "eval_every": 1, "generate": True, "metric": "em", "eval_rows": 5}
    result = trainer.train(toy_runs.config(data, shape, tmp_path / "once", **settings))
    assert reads == {"manifests": 1, "splits": 2}  # at both steps; that of the best one is kept
    assert result.evaluation
    assert result.evaluation.metrics["records"] == 5
    assert len(result.evaluation.predictions) == 5


def test_answers_of_one_token_are_not_generated(
    toy: None, tmp_path: Path, data: str, shape: str, reads: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("one forward pass has the answers")

    monkeypatch.setattr(evaluator, "answers_on_rows", lambda *_, **__: refuse)
    result = trainer.train(toy_runs.config(data, shape, tmp_path / "classes-once", steps=1, eval_every=1))
    assert reads == {"manifests": 1, "splits": 1}
    assert result.evaluation
    assert "accuracy" in result.evaluation.metrics
