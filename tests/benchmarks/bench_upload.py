"""Uploading against google-cloud-storage in sequence, to the same emulator in one run, as a ratio.

    python -m tests.benchmarks.bench_upload --delay 0.05

The emulator answers at once, a bucket far away does not: `--delay` is added to every request of both (a round trip and
the service's own time). Rounds alternate; the median of their ratios is printed. gcloud and gsutil are not compared
with: they are not Python packages, so a run could not count on them. Checked here as well: the bytes that arrived.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))


def bare(folder: Path, to: str) -> None:
    """What a user of google-cloud-storage writes first."""
    from t5prep.io import gcs

    for path in sorted(folder.iterdir()):
        gcs.blob(f"{to}/{path.name}").upload_from_filename(str(path))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shards", type=int, default=32)
    options.add_argument("--records", type=int, default=400, help="in each shard, of about 2 kB")
    options.add_argument("--delay", type=float, default=0.05, help="seconds")
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()

    from servers import gcs_emulator
    from toy_dataset import write

    from t5prep.dataset.upload import upload
    from t5prep.io import gcs

    try:
        gcs_emulator.binary()
    except pytest.skip.Exception as missing:
        sys.exit(f"uploading is not measured: {missing}")
    with gcs_emulator.running() as port, tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write(data, {"train": [given.records] * given.shards}, length=1000)
        size = sum(path.stat().st_size for path in data.iterdir())
        front = gcs_emulator.Front(port)
        front.delay = given.delay
        os.environ["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{front.port}"
        os.environ["T5PREP_CACHE"] = f"{folder}/cache"
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        gcs_emulator.make_bucket(port, bucket)
        ratios = []
        for number in range(given.rounds):
            begun = time.perf_counter()
            bare(data, f"gs://{bucket}/bare-{number}")
            between = time.perf_counter()
            upload(data, f"gs://{bucket}/ours-{number}")
            ratios.append((between - begun) / (time.perf_counter() - between))
            ours, theirs = (gcs.objects(f"gs://{bucket}/{who}-{number}") for who in ("ours", "bare"))
            assert {name: item.crc32c for name, item in ours.items()} == {n: i.crc32c for n, i in theirs.items()}
    said = {"upload_ratio": round(statistics.median(ratios), 2), "ratios": [round(ratio, 2) for ratio in ratios]}
    print(json.dumps(said | {"objects": given.shards + 1, "bytes": size, "delay_seconds": given.delay}))


if __name__ == "__main__":
    main()
