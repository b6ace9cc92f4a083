"""Evaluate a run on each dataset of its mixture while it trains, and decide whether it has improved."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

import jax

from t5prep.dataset.prepared import DatasetSplit
from t5prep.errors import UsageError
from t5prep.options.generation import Generation
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.training.data.open_datasets import open_split
from t5prep.training.evaluate.evaluator import Evaluation, Evaluator
from t5prep.training.log import say
from t5prep.training.model.architecture import Config
from t5prep.training.run.checkpoints import State
from t5prep.training.runtime.layout import Layout
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step.step import dtype_of

WORST = 20  # wrong answers in an evaluation


class Validation:
    """Evaluate weights on every dataset that has the evaluation split. The object is false if no dataset has it."""

    def __init__(
        self,
        opened: Sequence[DatasetSplit],
        config: TrainConfig,
        *,
        shape: Config,
        layout: Layout,
        tokenizer: Tokenizer,
        cache_path: str,
    ) -> None:
        split = config.eval_split
        evaluated = [
            open_split(dataset_split.dataset, split)
            for dataset_split in opened
            if split in dataset_split.manifest.splits
        ]
        self.split, self._patience = split, config.patience
        self._names = names_of([dataset_split.folder for dataset_split in evaluated]) if evaluated else []
        self._evaluators = [
            Evaluator(
                shape,
                layout=layout,
                opened=dataset_split,
                batch=config.eval_batch or config.batch,
                limit=config.eval_rows,
                tokenizer=tokenizer,
                dtype=dtype_of(config.dtype, platform=layout.platform),
                generating=config.generate,
                generation=Generation(beams=config.beams),
                metric=config.metric,
                cache_path=cache_path,
            )
            for dataset_split in evaluated
        ]

        self._default_metrics = ["accuracy", shape.objective.best]
        # The step of the best weights that this process has judged, and their evaluation.
        self._best: tuple[int, Evaluation] | None = None

    def __bool__(self) -> bool:
        return bool(self._evaluators)

    def judge(self, state: State, weights: Mapping[str, jax.Array]) -> tuple[State, bool]:
        """Return the state with the evaluation of `weights`, and whether that is the best so far.

        In a mixture the mean over the datasets decides. Raises UsageError if the evaluation lacks the settings' metric.
        """
        evaluations = [evaluator(weights, worst=WORST) for evaluator in self._evaluators]
        metrics = joined(self._names, [evaluation.numbers() for evaluation in evaluations])
        metric = state.metric
        if metric == "auto":
            metric = next((name for name in self._default_metrics if name in metrics), "loss")
        if metric not in metrics:
            raise UsageError(
                f'The evaluation has no metric "{metric}". Set metric to one of: {", ".join(metrics)}.',
                code="setting.unavailable-metric",
            )
        value = metrics[metric]
        state = dataclasses.replace(state, metric=metric, metrics=metrics, value=value)
        improved, stale = state.judge(value)
        if improved:
            self._best = state.step, evaluations[0]
        summary = "  ".join(f"{name} {number:.4f}" for name, number in metrics.items() if not name.endswith("records"))
        of = "  means of datasets" if any("/" in name for name in metrics) else ""
        say(f"step {state.step:,} evaluated{of}  {summary}{'  best so far' if improved else ''}")
        return dataclasses.replace(state, best=value if improved else state.best, stale=stale), improved

    def exhausted(self, state: State) -> bool:
        """Check whether the run stops because its last `patience` evaluations brought no improvement."""
        return 0 < self._patience <= state.stale

    def of_best(self, step: int, restore: Callable[[], Mapping[str, jax.Array]]) -> Evaluation | None:
        """Return the first dataset's evaluation with its WORST worst answers; None if no dataset has the split.

        step: of the best checkpoint. restore: returns its weights. They are evaluated again only if this process did not judge
        them.
        """
        if not self._evaluators:
            return None
        if self._best and self._best[0] == step:
            return self._best[1]
        return self._evaluators[0](restore(), worst=WORST)


# A count is added up; every other number is averaged.
_COUNTS = ("records",)


def joined(names: Sequence[str], evaluations: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return each number's mean under its own name, and each dataset's number as `DATASET/NUMBER`.

    `names` are the datasets' short names. A single dataset gets neither means nor prefixes. All datasets count equally in
    the mean, whatever their size, as in benchmarks such as GLUE.
    """
    if len(evaluations) == 1:
        return dict(evaluations[0])
    of_dataset = {
        f"{name}/{key}": value
        for name, numbers in zip(names, evaluations, strict=True)
        for key, value in numbers.items()
    }
    return mean(evaluations) | of_dataset


def mean(evaluations: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number that all `evaluations` have; `records` is a sum.

    >>> mean([{"loss": 1.0, "records": 10}, {"loss": 2.0, "records": 30, "em": 0.5}])
    {'loss': 1.5, 'records': 40}
    """
    shared = [name for name in evaluations[0] if all(name in numbers for numbers in evaluations)]
    sums = {name: sum(numbers[name] for numbers in evaluations) for name in shared}
    return {name: value if name in _COUNTS else value / len(evaluations) for name, value in sums.items()}


def names_of(places: Sequence[str]) -> list[str]:
    """Return a short name for each dataset: the fewest last parts of its path that differ from all others.

    >>> names_of(["data/cola", "gs://bucket/sst2/"]), names_of(["a/data", "b/data"])
    (['cola', 'sst2'], ['a-data', 'b-data'])
    """
    parts = [PurePosixPath(folder.rstrip("/")).parts for folder in places]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["-".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name}-{number}" for number, name in enumerate(names)]
