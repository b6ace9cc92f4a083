"""Say at which steps a run evaluates, saves and logs."""

import dataclasses

from t5prep.train.settings.config import TrainConfig


@dataclasses.dataclass(frozen=True)
class Due:
    """Hold after how many steps each thing happens; 0: never. After the last step each happens that is not 0."""

    steps: int
    evaluate_every: int
    save_every: int
    log_every: int

    @classmethod
    def by(cls, config: TrainConfig, *, steps: int, in_epoch: int, evaluates: bool) -> "Due":
        """Return what the settings say. By default a run evaluates after each epoch, and saves when it evaluates."""
        evaluate_every = (config.eval_every or min(in_epoch, steps)) if evaluates else 0
        return cls(steps, evaluate_every, config.save_every or evaluate_every or min(in_epoch, steps), config.log_every)

    def evaluate(self, step: int) -> bool:
        """Check whether the run is evaluated after this step."""
        return self._due(step, self.evaluate_every)

    def save(self, step: int) -> bool:
        """Check whether a checkpoint is saved after this step."""
        return self._due(step, self.save_every)

    def log(self, step: int) -> bool:
        """Check whether the metrics of this step are logged."""
        return self._due(step, self.log_every)

    def _due(self, step: int, every: int) -> bool:
        return bool(every) and (step % every == 0 or step == self.steps)
