"""A run on `text2text` whose best checkpoint is the one with the best BLEU: `--set metric=bleu`."""

import json
from pathlib import Path

import pytest
import small_corpora
import toy_runs

from t5prep.training import trainer
from t5prep.training.run import checkpoints


@pytest.mark.slow
def test_the_best_checkpoint_is_that_of_the_best_bleu(tmp_path: Path, shape: str) -> None:
    """A metric of generated answers chooses the checkpoint, against the loss."""
    answers = ["the cat sat on the mat", "the dog sat on the mat"]
    rows = [{"id": str(n), "q": f"question {n}", "a": answers[n % 5 == 0]} for n in range(48)]
    small_corpora.prepared(
        small_corpora.write_csv(tmp_path / "rows.csv", rows),
        tmp_path / "data",
        task="text2text",
        tokenizer="sample:",
        options={"inputs_column": "q", "targets_column": "a", "id_column": "id"},
        splits={"train": 0.7, "validation": 0.3},
        input_length=8,
        target_length=16,
    )
    settings = {"metric": "bleu", "generate": True, "steps": 30, "eval_every": 10, "learning_rate": 0.02}
    result = trainer.train(toy_runs.config(str(tmp_path / "data"), shape, tmp_path / "run", **settings))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    evaluated = {line["step"]: line for line in lines if "validation_bleu" in line}
    scores = {step: line["validation_bleu"] for step, line in evaluated.items()}
    assert list(scores) == [10, 20, 30]
    best = max(scores, key=lambda step: scores[step])
    assert scores[best] > scores[10]
    assert min(evaluated, key=lambda step: evaluated[step]["validation_loss"]) != best
    assert checkpoints.best(str(tmp_path / "run"))[1].step == best
    assert result.evaluation is not None
    assert result.evaluation.metrics["bleu"] == scores[best]
