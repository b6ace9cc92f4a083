"""A line of progress for a library function that says first how many bytes there are, and then each that is done."""

import threading
from types import TracebackType

from t5prep.io.progress import Progress


class Line:
    """`started` and `progress` are for the function, from any of its threads; the line is cleared at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown: Progress | None = None
        self._lock = threading.Lock()

    def started(self, total: int) -> None:
        """There are so many bytes."""
        self._shown = Progress(self._what, total=total)

    def progress(self, done: int) -> None:
        """So many more bytes are done."""
        with self._lock:
            if self._shown:
                self._shown.add(bytes=done)

    def __enter__(self) -> "Line":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._shown.close()
