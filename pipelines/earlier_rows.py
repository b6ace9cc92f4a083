"""Sketch the rows of earlier datasets (`--dedup-against`) for the search for near-duplicates. Nothing here imports Beam."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import pool, staging
from pipelines.staging import Job
from t5prep.dataset import manifest
from t5prep.prepare import earlier_records
from t5prep.prepare.near_duplicates import search
from t5prep.prepare.near_duplicates.repeats import EARLIER
from t5prep.prepare.near_duplicates.shingles import shingles
from t5prep.prepare.near_duplicates.sketch import ROWS, Sketch, sketch

# So many records are in one sketch.
ROWS_OF_SKETCH = 4096


class EarlierShard(NamedTuple):
    """Name a shard of an earlier dataset."""

    data: str
    name: str


def shards_of(data: str) -> list[EarlierShard]:
    """Return the shards of a dataset. Raises DatasetError."""
    return [EarlierShard(data, name) for name in earlier_records.shards(manifest.load(data))]


def sketch_here(job: Job, *, spool: str, pool_name: str) -> Iterator[Sketch]:
    """Yield the sketches of all records of the earlier datasets that a job compares with; their bytes are on this disk."""
    shards = itertools.chain.from_iterable(map(shards_of, job.settings.dedup_against))
    yield from itertools.chain.from_iterable(pool.each(pool_name, SketchShard(job, spool), shards))


@dataclasses.dataclass(frozen=True)
class SketchShard:
    """Write the sketches of a shard into files of this machine."""

    job: Job
    spool: str

    def __call__(self, shard: EarlierShard) -> list[Sketch]:
        """Return the sketches, which are read from their files. Raises DatasetError."""
        name = hashlib.blake2b("\0".join(shard).encode(), digest_size=12).hexdigest()
        paths = (Path(self.spool) / "earlier" / f"{name}-{number}.sketch" for number in itertools.count())
        return [one.spooled(path) for one, path in zip(sketches_of(shard, job=self.job), paths, strict=False)]


def sketches_of(shard: EarlierShard, *, job: Job) -> Iterator[Sketch]:
    """Yield the sketches of a shard's records. Raises DatasetError."""
    wanted = search.of_settings(job.settings)
    if wanted is None:
        return
    records = earlier_records.records(shard.data, shard.name, staging.tokenizer(job))
    while batch := list(itertools.islice(records, ROWS_OF_SKETCH)):
        hashed = shingles([record.text for record in batch], words=job.settings.near_words)
        columns = {
            "row": [record.number for record in batch],
            "id": [record.id for record in batch],
            "split": [EARLIER] * len(batch),
            "high": np.zeros(len(batch), np.uint64),
            "low": np.zeros(len(batch), np.uint64),
            "shingles": pa.ListArray.from_arrays(pa.array(hashed.begins.astype(np.int32)), pa.array(hashed.hashes)),
        }
        table = pa.table([pa.array(column, ROWS.field(name).type) for name, column in columns.items()], schema=ROWS)
        name = f"{shard.data.rstrip('/')}/{shard.name}"
        yield sketch(table, file=name, first_row=batch[0].number, bands=wanted.bands)
