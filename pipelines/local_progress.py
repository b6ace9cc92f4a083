"""Show on a terminal what a local run has done so far, and hold its token cache within its bound."""

import math
import sys
import time
from pathlib import Path
from typing import Any

from pipelines.worker_steps import PrepareBlock
from t5prep.io import cache_folder
from t5prep.io.progress import Progress
from t5prep.prepare import token_cache
from t5prep.prepare.block_sorter import SortedSpill
from t5prep.prepare.shard_writer import WrittenShard
from t5prep.reading.blocks import Block

# The kept table of a block has at most about this many times the bytes of its text. The whole cache is looked through again
# when what may have been added fills a quarter of the room that was left, or a 64th of the limit: so seldom that the work is
# linear in blocks.
_KEPT_OF_TEXT = 2


class LocalProgress:
    """Take each element and its result, in the process that runs the pipeline."""

    def __init__(self, work: PrepareBlock, *, total: int) -> None:
        self._progress = Progress("preparing", total=total)
        self._kept = Path(work.kept) if work.kept else None
        self._limit = cache_folder.limit()
        self._began = time.time()
        self._blocks = self._found = self._bytes_found = self._placed = 0
        self._writing: Progress | None = None
        self._room, self._since = math.inf, 0
        self._bound()

    def __call__(self, element: Any, result: Any) -> None:
        """Count an element that is done."""
        if isinstance(result, WrittenShard):
            self._written(result)
        if not (isinstance(element, Block) and isinstance(result, SortedSpill)):
            return
        self._progress.add(bytes=element.size, rows=element.rows)
        self._placed += sum(result.sizes.values())
        self._blocks += 1
        self._found += result.found
        self._bytes_found += element.size if result.found else 0
        self._since += element.size
        if _KEPT_OF_TEXT * self._since >= max(self._room / 4, self._limit / 64):
            self._bound()

    def close(self) -> None:
        """Print how many blocks were found in the token cache, where any was."""
        (self._writing or self._progress).close()
        self._bound()
        if self._found:
            print(
                f"{self._found:,} of {self._blocks:,} blocks ({self._bytes_found / 1e6:,.1f} MB) were tokenized by an "
                "earlier run and used again; --fresh tokenizes them anew",
                file=sys.stderr,
            )

    def _written(self, written: WrittenShard) -> None:
        """Show a written shard on a line of its own. Its time begins after the first shard, when all is read."""
        if self._writing is None:
            self._progress.close()
            self._writing = Progress("writing shards", total=self._placed - written.spec.bytes)
        else:
            self._writing.add(bytes=written.spec.bytes, rows=written.counts.records)

    def _bound(self) -> None:
        if self._kept:
            self._room = token_cache.bound(self._kept, limit=self._limit, began=self._began)
        self._since = 0
