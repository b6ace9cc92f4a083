"""Let processes that prepare blocks sort them without reading or tokenizing: imported where that is to hold (bench_scale)."""

from collections import Counter
from typing import Any

import numpy as np

from pipelines import steps
from t5prep.preparation import placement, spills
from t5prep.preparation.block_tokenizer import TokenizedBlock
from t5prep.preparation.sort_blocks import BlockTotals, SortedBlock
from t5prep.preparation.spills import ENTRY, Columns, Spill
from t5prep.reading.blocks import Block
from t5prep.tokens.ragged import Names, Ragged


def sorted_block(_: Any, block: Block) -> SortedBlock:
    """Return what a block becomes without reading it: each row is the same, of few tokens, at a position of its own."""
    rows, count = range(block.first_row, block.first_row + block.rows), block.rows
    entries = np.zeros(count, ENTRY)
    digests = placement.digests((f"{block.file.name}:{row}" for row in rows), seed=0)
    entries["high"], entries["row"] = np.sort(placement.positions(digests)["high"]), rows
    entries["tokens"] = entries["target_tokens"] = 2
    two = Ragged(np.tile(np.array([9, 1], np.uint16), count), 2 * np.arange(count + 1))
    columns = Columns(Names.of(["r0000000000" + 100 * "x"] * count), two, two, Names.of([""] * count))
    packed = spills.join(columns, entries, np.arange(count))
    data, size = packed.entries.tobytes() + packed.data.tobytes(), len(packed.data)
    spill = Spill(count, {"train": (0, count)}, {"train": size}, data=data)
    totals = BlockTotals(read=count, records=Counter(train=count), record_bytes=Counter(train=size))
    totals.rows.add(block.file.name, read=count, examples=count)
    return SortedBlock(block.file.name, block.first_row, spill, totals)


steps._loaded = lambda _: (lambda block: TokenizedBlock(None, False), sorted_block)  # type: ignore[assignment,return-value]
