"""What datatrove drops: MinHash near-duplicates, or Gopher's filters. Run by bench_datatrove.py in an environment of its own.

PYTHON peer_datatrove.py near|gopher CORPUS.jsonl FOLDER   (pip install "datatrove[io,processing]" spacy)
Writes FOLDER/clusters.json (id → cluster) or FOLDER/rejected.json (id → reason).
"""

import gzip
import json
import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
)
from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.hashing import HashConfig


def near(corpus: Path, folder: Path) -> None:
    """Find near-duplicates as FineWeb does: 14 buckets of 8 hashes of 5-grams."""
    config = MinhashConfig(hash_config=HashConfig(precision=64), num_buckets=14, hashes_per_bucket=8, n_grams=5)
    reader = JsonlReader(str(corpus.parent), glob_pattern=corpus.name)
    steps = [
        [reader, MinhashDedupSignature(output_folder=str(folder / "signatures"), config=config)],
        [MinhashDedupBuckets(str(folder / "signatures"), str(folder / "buckets"), config=config)],
        [MinhashDedupCluster(str(folder / "buckets"), str(folder / "clusters"), config=config, save_cluster_id=True)],
        [
            reader,
            MinhashDedupFilter(
                str(folder / "clusters"),
                load_cluster_ids=True,
                exclusion_writer=JsonlWriter(str(folder / "dropped")),
            ),
            JsonlWriter(str(folder / "kept")),
        ],
    ]
    tasks = (1, config.num_buckets, 1, 1)
    for number, (pipeline, count) in enumerate(zip(steps, tasks, strict=True)):
        logs = str(folder / f"logs{number}")
        LocalPipelineExecutor(pipeline=pipeline, tasks=count, workers=1, logging_dir=logs).run()
    clusters = {one["id"]: one["metadata"].get("minhash_cluster_id", -1) for one in written(folder, "kept", "dropped")}
    dropped = [one["id"] for one in written(folder, "dropped")]
    (folder / "clusters.json").write_text(json.dumps({"clusters": clusters, "dropped": dropped}))


def gopher(corpus: Path, folder: Path) -> None:
    """Apply Gopher's rules for quality and against repetition."""
    pipeline = [
        JsonlReader(str(corpus.parent), glob_pattern=corpus.name),
        GopherQualityFilter(exclusion_writer=JsonlWriter(str(folder / "quality"))),
        GopherRepetitionFilter(exclusion_writer=JsonlWriter(str(folder / "repetition"))),
        JsonlWriter(str(folder / "kept")),
    ]
    LocalPipelineExecutor(pipeline=pipeline, tasks=1, workers=1, logging_dir=str(folder / "logs")).run()
    rejected = {one["id"]: one["metadata"].get("filter_reason", "") for one in written(folder, "quality", "repetition")}
    (folder / "rejected.json").write_text(json.dumps(rejected))


def written(folder: Path, *names: str) -> list[dict]:
    """Return the documents that were written into folders."""
    lines = []
    for name in names:
        for path in sorted((folder / name).glob("*.jsonl.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                lines += [json.loads(line) for line in file]
    return lines


if __name__ == "__main__":
    {"near": near, "gopher": gopher}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
