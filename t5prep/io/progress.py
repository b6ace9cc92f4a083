"""Show the progress of a long run: one line that is redrawn on a terminal, or a new line every 30 s elsewhere."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Self, TextIO

# A run that ends sooner shows no line.
PATIENCE_SECONDS = 2.0
# Between two drawings on a terminal.
INTERVAL_SECONDS = 0.25
# Between two lines elsewhere (nohup, CI, notebooks).
LOG_SECONDS = 30.0


class Progress:
    """Count bytes, and optionally rows, out of `total` bytes (0: unknown). The end of `with` clears the line.

    Threads may call `add`. `label` begins the line. With `is_shown` True, the line is always drawn; with False, never.
    With None, it is drawn if `stream` (default: stderr) is a terminal, else printed every 30 s.
    """

    def __init__(
        self, label: str, *, total: int = 0, stream: TextIO | None = None, is_shown: bool | None = None
    ) -> None:
        self._what = label
        self._total = total
        self._stream = stream or sys.stderr
        self._logged = is_shown is None and not self._stream.isatty()
        self._shown = not self._logged if is_shown is None else is_shown
        self._began = self._last = time.monotonic()
        self._bytes = self._rows = self._skipped = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, *, bytes: int, rows: int = 0) -> None:
        """Add to the counts of processed bytes and rows, and redraw the line if it is time."""
        with self._lock:
            self._bytes += bytes
            self._rows += rows
            now = time.monotonic()
            if self._shown and now - self._began > PATIENCE_SECONDS and now - self._last > INTERVAL_SECONDS:
                self._last = now
                self._stream.write(f"\r\x1b[K{self.line(now - self._began)}")
                self._stream.flush()
            elif self._logged and now - self._last > LOG_SECONDS:
                self._last = now
                print(self.line(now - self._began), file=self._stream, flush=True)

    def expect(self, total: int) -> None:
        """Set the total number of bytes, and the count to 0."""
        self.restart(bytes=0, total=total)

    def read(self, bytes: int) -> None:
        """Add to the count of processed bytes."""
        self.add(bytes=bytes)

    def restart(self, *, bytes: int, total: int) -> None:
        """Set the number of processed bytes, which the speed leaves out, and the total (0: unknown)."""
        self._bytes, self._skipped, self._total = bytes, bytes, total

    def line(self, seconds: float) -> str:
        """Return the text of the line when the run has taken `seconds`."""
        percent = f"{min(1.0, self._bytes / self._total):4.0%}  " if self._total else ""
        rows = f"{self._rows:,} rows  {self._rows / seconds:,.0f} rows/s  " if self._rows else ""
        if self._total and not self._rows:
            rows = f"{self._bytes / 1e6:,.1f} of {self._total / 1e6:,.1f} MB  "
        speed = (self._bytes - self._skipped) / seconds
        rate = f"{speed / 1e6:.1f} MB/s"
        remaining_time = ""
        if self._total > self._bytes and speed:
            remaining_time = f"  {duration((self._total - self._bytes) / speed)} left"
        return f"{self._what}  {percent}{rows}{rate}{remaining_time}"

    def close(self) -> None:
        """Clear the line."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def number_of(count: int, thing: str) -> str:
    """Return a count with its noun.

    >>> number_of(1, "row"), number_of(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def list_names(names: Sequence[str], *, most: int = 5) -> str:
    """Return names as a list in a sentence: the first `most`, and the number of the others.

    >>> list_names(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, by its length.

    >>> duration(6.2), duration(482), duration(7900)
    ('6 s', '8 min', '2 h 12 min')
    """
    if seconds < 90:
        return f"{seconds:,.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60:,} h {minutes % 60} min"
