"""Make a run's steps, and log, save and evaluate when each is due."""

import dataclasses

from t5prep.train.due import Due
from t5prep.train.evaluate.validation import Validation
from t5prep.train.log import RunLog
from t5prep.train.loop import Stepper
from t5prep.train.profiling import StepProfile
from t5prep.train.run.checkpoint import State
from t5prep.train.run.checkpoint_writer import CheckpointWriter
from t5prep.train.signals import Signals


@dataclasses.dataclass
class TrainingLoop:
    """Hold a run while it trains. `state` is that of its newest checkpoint."""

    state: State
    due: Due
    stepper: Stepper
    evaluations: Validation
    writer: CheckpointWriter
    log: RunLog
    profile: StepProfile
    signals: Signals

    def run(self) -> None:
        """Make steps until the last one, until no evaluation is better for a while, or until a signal; then all is saved.

        A signal that comes while a step is waited for is seen after the next step: a run never ends without saving.
        """
        stepper, due = self.stepper, self.due
        if self.state.step and due.evaluate(self.state.step) and not self.state.metrics:
            self._evaluate(saved_already=True)  # the run stopped between saving and evaluating
        self.log.restart(stepper.number)
        saved_and_stopping = False
        while stepper.number < due.steps and not self.stopped_early and not saved_and_stopping:
            stepper.begin()
            now = stepper.number
            self.profile.step(now, stepper.variables.step)
            self.writer.check()
            pausing = due.save(now) or due.evaluate(now) or now == due.steps or self.signals.stop(now)
            self._log_ended(all_of_them=pausing)
            if pausing:
                saved_and_stopping = self._save_and_evaluate()
                self.log.restart(now)
        self.profile.finish(stepper.variables.step)

    @property
    def stopped_early(self) -> bool:
        """Check whether patience is exhausted."""
        return self.evaluations.exhausted(self.state)

    @property
    def complete(self) -> bool:
        """Check whether the run has made all its steps, or stopped early, and its last evaluation."""
        now = self.stepper.number
        evaluated = not self.due.evaluate(now) or bool(self.state.metrics)
        return evaluated and (now >= self.due.steps or self.stopped_early)

    def _log_ended(self, *, all_of_them: bool) -> None:
        """Log the steps that have ended; with `all_of_them`, wait until every one that was started has."""
        for done in self.stepper.ended(ahead=0) if all_of_them else self.stepper.ended():
            if done.metrics:
                self.log.record(done.number, done.metrics, prefix="")
                loss, learning_rate = done.metrics["loss"], done.metrics["learning_rate"]
                self.log.line(done.number, loss=loss, learning_rate=learning_rate, waited=self.stepper.take_waited())

    def _save_and_evaluate(self) -> bool:
        """Save, and evaluate if it is due. Return whether all is saved and a signal has come, so that the run ends.

        Saving comes first: an evaluation may take longer than a preemption allows.
        """
        now = self.stepper.number
        self.state = dataclasses.replace(self.state, step=now, value=None, metrics={})
        stopping = self.signals.stop(now)
        saving = self.due.save(now) or stopping
        if saving:
            self._save()
        if self.due.evaluate(now) and not stopping:
            self._evaluate(saved_already=saving)
        return saving and self.signals.stop(now)

    def _save(self) -> None:
        self.log.flush()
        self.writer.save(self.stepper.variables, state=self.state)

    def _evaluate(self, *, saved_already: bool) -> None:
        """Evaluate, log it, and write it to this step's checkpoint, or to a new one if it is the best or the last."""
        self.state, improved = self.evaluations.judge(self.state, self.stepper.variables.weights)
        self.log.record(self.state.step, self.state.metrics, prefix=f"{self.evaluations.split}_")
        if saved_already:
            self.writer.describe(self.state)
        elif improved or self.stopped_early:
            self._save()
        self.log.flush()
