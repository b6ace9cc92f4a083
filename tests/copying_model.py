"""A model that copies its input, in place of a trained one: what stands around the device, without a device."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from t5prep.dataset.manifest import Manifest
from t5prep.options.generation import Generation
from t5prep.sources import sample
from t5prep.tokens import loading
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.run.run import TINY, Model

WORDS = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")


class Copies:
    """Answers each input with its own tokens, at most `max_length` of them; `batches` are the shapes that were asked."""

    batches: list[tuple[int, int]] = []  # noqa: RUF012 - of the class, so that a test sees those of every instance

    def __init__(self, opened: Model, *, generation: Generation, rows: int, tokenizer: Tokenizer, **_: Any) -> None:
        self.rows, self._generation, self._pad = rows, generation, tokenizer.pad_id

    def __call__(self, inputs: Sequence[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
        assert len(inputs) <= self.rows
        assert max(map(len, inputs)) <= length
        self.batches.append((len(inputs), length))
        answers = np.full([len(inputs), self._generation.answers, self._generation.max_length], self._pad, np.int32)
        for row, token_ids in enumerate(inputs):
            copied_ids = token_ids[: self._generation.max_length]
            answers[row, :, : len(copied_ids)] = copied_ids
        return answers, np.array([[-float(len(token_ids))] * self._generation.answers for token_ids in inputs])


def model(manifest: Manifest | None, *, tokenizer: str = "sample:") -> Model:
    """A model that was trained on a dataset, without weights."""
    return Model("toy", TINY, {}, loading.load(tokenizer), (manifest,) if manifest else ())


def echo(*_: Any, **__: Any) -> Any:
    """In place of a program that scores rows: every input is its own answer, and every label right."""

    def answered(weights: Mapping[str, Any], batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        ids = batch.get("labels", batch["input_ids"])
        return {"ids": np.maximum(ids, 0), "loss": np.zeros(len(ids))}

    return answered


def no_model(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    """Let a fake like `echo` score rows and search answers."""
    from t5prep.training.evaluate import evaluator

    def search(*_: Any, **__: Any) -> Any:
        return lambda weights, batch: {"ids": fake()(weights, batch)["ids"][:, None]}

    monkeypatch.setattr(evaluator, "on_rows", fake)
    monkeypatch.setattr(evaluator, "answers_on_rows", search)
