"""Run the stages of preparing on this machine, without an engine: its processes take blocks, then shards, in order.

Nothing here imports Beam, which takes longer to load than a small corpus to prepare.
"""

import itertools
from typing import NamedTuple

from pipelines import earlier_rows, pool, repeat_steps, staging
from pipelines.finish import Finish, JoinRejected
from pipelines.gather import Gathering, SortBlock
from pipelines.worker_steps import Hashed, PrepareBlock, WriteShard, scan
from t5prep.prepare.block_totals import BlockTotals
from t5prep.prepare.memory_budget import Budget
from t5prep.prepare.near_duplicates import repeats, search
from t5prep.prepare.near_duplicates.sketch import Sketch
from t5prep.prepare.shard_totals import ShardTotals
from t5prep.prepare.shard_writer import ShardSpec


class Sorted(NamedTuple):
    """Hold what sorting all blocks leaves: their totals, the shards, the hashes of files, the sketches of near-duplicates."""

    totals: BlockTotals
    specs: list[ShardSpec]
    hashed: list[Hashed]
    sketches: list[Sketch]


def run(work: PrepareBlock, finish: Finish, *, shared: Budget, pool_name: str = "") -> None:
    """Prepare everything that a job names, in the pool of that name ("" for none). Raises T5prepError."""
    totals, specs, hashed, sketches = sort(work, block_bytes=shared.block_bytes, pool_name=pool_name)
    alike = search.of_settings(work.job.settings)
    if alike:
        sketches += earlier_rows.sketch_here(work.job, spool=work.spool, pool_name=pool_name)
    repeated = repeat_steps.find_here(sketches, alike, spool=work.spool, pool_name=pool_name) if alike else None
    write = WriteShard(work.job, finish.out, shared.range_bytes, work.spool)
    written = ShardTotals()
    for shard in pool.each(
        pool_name, write, ((spec, [], repeat_steps.of_shard(spec, repeated or [])) for spec in specs)
    ):
        written.add(shard)
    del specs  # the manifest comes now, which has a line for each shard
    rejected = JoinRejected(work.spool, finish.out)(written)
    counted = None if repeated is None else repeats.merged(repeated)
    finish(None, blocks=totals, written=written, hashed=hashed, rejected=rejected, repeats=counted)


def sort(work: PrepareBlock, *, block_bytes: int, pool_name: str) -> Sorted:
    """Sort all blocks into runs. Raises T5prepError."""
    totals, hashed, sketches = BlockTotals(), list[Hashed](), list[Sketch]()
    gathering = Gathering(SortBlock(work), pool_name)
    scanned = (scan(file, job=work.job, block_bytes=block_bytes) for file in staging.limited_files(work.job))
    elements = itertools.chain.from_iterable(scanned)
    results = itertools.chain.from_iterable(map(gathering.put, elements))
    for result in itertools.chain(results, gathering.finish()):
        if isinstance(result, BlockTotals):
            totals.merge(result)
        elif isinstance(result, Hashed):
            hashed.append(result)
        else:
            sketches.append(result)
    return Sorted(totals, gathering.specs, hashed, sketches)
