"""One line on a terminal that says how far a long run is; nothing anywhere else."""

import sys
import time
from typing import TextIO

# A run that ends sooner needs no line.
PATIENCE_SECONDS = 2.0
INTERVAL_SECONDS = 0.25


class Progress:
    """Counts bytes, and rows where there are any, of a whole that is `total` bytes long (0: not known)."""

    def __init__(self, what: str, *, total: int = 0, stream: TextIO | None = None) -> None:
        self._what = what
        self._total = total
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty()
        self._began = self._last = time.monotonic()
        self._bytes = self._rows = 0

    def add(self, *, bytes: int, rows: int = 0) -> None:
        """So much more is done."""
        self._bytes += bytes
        self._rows += rows
        now = time.monotonic()
        if self._shown and now - self._began > PATIENCE_SECONDS and now - self._last > INTERVAL_SECONDS:
            self._last = now
            self._stream.write(f"\r\x1b[K{self.line(now - self._began)}")
            self._stream.flush()

    def line(self, seconds: float) -> str:
        """What the line says after so many seconds."""
        done = f"{min(1.0, self._bytes / self._total):4.0%}  " if self._total else ""
        rows = f"{self._rows:,} rows  {self._rows / seconds:,.0f} rows/s  " if self._rows else ""
        if self._total and not self._rows:
            rows = f"{self._bytes / 1e6:,.1f} of {self._total / 1e6:,.1f} MB  "
        rate = f"{self._bytes / seconds / 1e6:.1f} MB/s"
        left = ""
        if self._total > self._bytes > 0:
            left = f"  {(self._total - self._bytes) * seconds / self._bytes:,.0f} s left"
        return f"{self._what}  {done}{rows}{rate}{left}"

    def close(self) -> None:
        """Clears the line."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
