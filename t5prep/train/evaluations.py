"""Evaluate a run on each dataset of its mixture, and judge whether the run is better than before."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t5prep.errors import UsageError
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.train import mixture_metrics
from t5prep.train.checkpoint import State
from t5prep.train.config import TrainConfig
from t5prep.train.data.opening import Opened, open_split
from t5prep.train.evaluate import Evaluation, Evaluator
from t5prep.train.model.architecture import Config
from t5prep.train.model.generation import Generation
from t5prep.train.progress import say
from t5prep.train.runtime.layout import Layout
from t5prep.train.step_parts import dtype_of


class Evaluations:
    """Evaluate weights on every dataset that has the evaluation split. False where none has it."""

    def __init__(
        self,
        opened: Sequence[Opened],
        config: TrainConfig,
        *,
        shape: Config,
        layout: Layout,
        tokenizer: Tokenizer,
        place: str,
    ) -> None:
        split = config.eval_split
        evaluated = [open_split(one, split=split) for one in opened if split in one.manifest.splits]
        self.split, self._patience = split, config.patience
        self._names = mixture_metrics.names_of([one.data for one in evaluated]) if evaluated else []
        self._evaluators = [
            Evaluator(
                shape,
                layout=layout,
                data=one,
                split=split,
                batch=config.eval_batch or config.batch,
                limit=config.eval_rows,
                tokenizer=tokenizer,
                dtype=dtype_of(config.dtype, platform=layout.platform),
                generating=config.generate,
                generation=Generation(beams=config.beams),
                place=place,
            )
            for one in evaluated
        ]

    def __bool__(self) -> bool:
        return bool(self._evaluators)

    def judge(self, state: State, weights: Mapping[str, Any]) -> tuple[State, bool]:
        """Return the state with its evaluation (of a mixture: the mean decides), and whether it is the best so far.

        Raises UsageError where the evaluation has not the metric that the settings name.
        """
        metrics = mixture_metrics.joined(self._names, [evaluator(weights).numbers() for evaluator in self._evaluators])
        metric = state.metric
        if metric == "auto":
            metric = "accuracy" if "accuracy" in metrics else "loss"
        if metric not in metrics:
            raise UsageError(f'metric is "{metric}", and the evaluation has {", ".join(metrics)}.')
        value = metrics[metric]
        state = dataclasses.replace(state, metric=metric, metrics=metrics, value=value)
        improved, stale = state.judge(value)
        shown = "  ".join(f"{name} {number:.4f}" for name, number in metrics.items() if not name.endswith("records"))
        of = "  means of datasets" if any("/" in name for name in metrics) else ""
        say(f"step {state.step:,} evaluated{of}  {shown}{'  best so far' if improved else ''}")
        return dataclasses.replace(state, best=value if improved else state.best, stale=stale), improved

    def exhausted(self, state: State) -> bool:
        """Check whether so many evaluations in a row were not better that the run stops."""
        return 0 < self._patience <= state.stale

    def of_best(self, weights: Mapping[str, Any]) -> Evaluation | None:
        """Return the first dataset's evaluation with its 20 worst answers; None where no dataset has the split."""
        return self._evaluators[0](weights, worst=20) if self._evaluators else None
