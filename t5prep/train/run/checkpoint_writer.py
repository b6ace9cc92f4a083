"""Write checkpoints beside training: the variables are copied at once, and a thread writes the copy."""

import concurrent.futures
import functools
from typing import Any, Self

from t5prep.train.run import checkpoint as checkpoints
from t5prep.train.run import checkpoint_tensors
from t5prep.train.run.checkpoint import State
from t5prep.train.runtime import hosts
from t5prep.train.runtime.state import Variables


class CheckpointWriter:
    """Write the checkpoints of one run, one after the other. Used as a context: its end waits for the last one.

    A run of several hosts writes at once and waits, because its hosts meet at the beginning and end of each checkpoint
    by a computation on their devices, which must come in the same order on all of them.
    """

    def __init__(self, run: str, *, keep: int) -> None:
        self._run, self._keep = run, keep
        self._thread = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: concurrent.futures.Future[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        """Wait for the checkpoint that is being written; its error is raised unless another one is on its way."""
        try:
            self.wait()
        except Exception:
            if kind is None:
                raise
        finally:
            self._thread.shutdown()

    def save(self, variables: Variables, *, state: State) -> None:
        """Copy the variables and begin to write them as a checkpoint, after an earlier one is complete.

        Raises OutputError where that one could not be written.
        """
        self.wait()
        write = functools.partial(checkpoint_tensors.write, parts=checkpoint_tensors.copied(variables))
        save = functools.partial(checkpoints.save, self._run, write, state=state, keep=self._keep)
        if hosts.count() > 1:
            save()
        else:
            self._writing = self._thread.submit(save)

    def describe(self, state: State) -> None:
        """Add an evaluation to the checkpoint of its step, which is complete then. Raises OutputError."""
        self.wait()
        checkpoints.describe(self._run, state=state, keep=self._keep)

    def check(self) -> None:
        """Raise OutputError where the last checkpoint could not be written; wait for nothing."""
        if self._writing and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the last checkpoint is complete. Raises OutputError where it could not be written."""
        writing, self._writing = self._writing, None
        if writing:
            writing.result()
