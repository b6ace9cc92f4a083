"""Let a run end at a step of its own after SIGTERM or SIGINT."""

import contextlib
import os
import signal
import threading
from typing import Any, Self

from t5prep.io import signals
from t5prep.train.runtime import hosts


class Signals:
    """Remember SIGTERM and SIGINT while the loop runs, instead of ending the process at once."""

    def __init__(self) -> None:
        self.received = ""
        self._asked = -1
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Several hosts end after the same step: jax tells all of them when one has received a signal.
        if threading.current_thread() is threading.main_thread() and hosts.count() == 1:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._remember)
            # Of a signal that came before, the KeyboardInterrupt may have been raised where it is ignored.
            self.received = signals.received()
            signals.forget()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop(self, step: int) -> bool:
        """Return whether the run ends after this step."""
        if step > self._asked and hosts.count() > 1:
            self._asked = step
            self.received = self.received or ("SIGTERM" if hosts.stopping(step) else "")
        return bool(self.received)

    def _remember(self, number: int, _: object) -> None:
        if self.received:  # asked twice: a checkpoint that is being written counts only when it is whole
            os._exit(1)
        self.received = signal.Signals(number).name
        # Not by print, which a signal may have interrupted.
        said = (
            f"{self.received}: saving after the steps that are under way. A second one ends at once, without saving.\n"
        )
        with contextlib.suppress(OSError):
            os.write(2, said.encode())
