"""Show a progress line for a library function that reports its total of bytes first, and then the bytes done."""

import threading
from types import TracebackType

from t5prep.io.progress import Progress


class Line:
    """Show a progress line, which `started` and `progress` update from any thread; it is cleared at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown: Progress | None = None
        self._lock = threading.Lock()

    def started(self, total: int) -> None:
        """Show the line, with the total number of bytes."""
        self._shown = Progress(self._what, total=total)

    def progress(self, done: int) -> None:
        """Add to the number of bytes done."""
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
