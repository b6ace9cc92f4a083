"""Let processes that prepare blocks sort them without reading or tokenizing: imported where that is to hold (bench_scale)."""

from typing import Any

import numpy as np

from pipelines import worker_steps
from t5prep.dataset import tfrecord
from t5prep.prepare import placement
from t5prep.prepare.block_sorter import SortedSpill
from t5prep.prepare.block_tokenizer import TokenizedBlock
from t5prep.prepare.sorted_runs import INDEX_ENTRY
from t5prep.reading.blocks import Block


def short_record() -> bytes:
    """Return a framed record of few tokens."""
    ids = tfrecord.bytes_feature("id", [b"r0000000000"])
    values = [tfrecord.int64_feature(name, tfrecord.varints(np.array([9, 1]))[0]) for name in ("input_ids", "labels")]
    return tfrecord.frame(tfrecord.example(b"".join([ids, *values, tfrecord.bytes_feature("text", [bytes(100)])])))


RECORD = short_record()


def spill_of(_: Any, block: Block) -> SortedSpill:
    """Return a spill of a block without reading it: each row is the same record at a position of its own."""
    rows = range(block.first_row, block.first_row + block.rows)
    entries = np.zeros(block.rows, INDEX_ENTRY)
    digests = placement.digests((f"{block.file.name}:{row}" for row in rows), seed=0)
    entries["high"], entries["row"] = np.sort(placement.positions(digests)["high"]), rows
    entries["size"], entries["begin"] = len(RECORD), len(RECORD) * np.arange(block.rows)
    entries["inputs"] = entries["tokens"] = entries["targets"] = entries["target_tokens"] = 2
    splits, size = {"train": (0, block.rows)}, block.rows * len(RECORD)
    data = entries.tobytes() + block.rows * RECORD
    return SortedSpill(
        block.file.name, block.first_row, block.rows, block.rows, splits, {"train": size}, b"", {}, data=data
    )


worker_steps._loaded = lambda _: (lambda block: TokenizedBlock(None, False), spill_of)  # type: ignore[assignment,return-value]
