"""What a local run has done so far: shown on a terminal, and what it keeps held within its bounds."""

import sys
import time
from pathlib import Path
from typing import Any

from pipelines.work import PrepareBlock
from t5prep import caches, kept
from t5prep.blocks import Block
from t5prep.placing import Run
from t5prep.progress import Progress

# Looking through what is kept takes some milliseconds for ten thousand blocks.
_LOOK_EVERY = 128


class Watch:
    """Hears of each element and its result, in the process that runs the pipeline."""

    def __init__(self, work: PrepareBlock, *, total: int) -> None:
        self._progress = Progress("preparing", total=total)
        self._kept = Path(work.kept) if work.kept else None
        self._limit = caches.limit()
        self._began = time.time()
        self._blocks = self._found = self._bytes_found = 0
        self._bound()

    def __call__(self, element: Any, result: Any) -> None:
        """An element is done."""
        if not (isinstance(element, Block) and isinstance(result, Run)):
            return
        self._progress.add(bytes=element.size, rows=element.rows)
        self._blocks += 1
        self._found += result.found
        self._bytes_found += element.size if result.found else 0
        if self._blocks % _LOOK_EVERY == 0:
            self._bound()

    def close(self) -> None:
        """Says what was found, where anything was."""
        self._progress.close()
        self._bound()
        if self._found:
            print(
                f"{self._found:,} of {self._blocks:,} blocks ({self._bytes_found / 1e6:,.1f} MB) were tokenized by an "
                "earlier run and used again; --fresh tokenizes them anew",
                file=sys.stderr,
            )

    def _bound(self) -> None:
        if self._kept:
            kept.bound(self._kept, limit=self._limit, began=self._began)
