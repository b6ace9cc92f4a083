"""Commands that meet a fault of the disk or of a bucket, and are given again: 73 seeds of `faults`, which says what must hold."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import Harness
from random_seeds import seeds
from servers.gcs_emulator import Front

from t5prep.io import gcs

pytestmark = [pytest.mark.extra("fake-gcs-server"), pytest.mark.slow]

# `train` and `eval` compile, so they meet few.
SEEDS = {"train": 1, "eval": 2}
DEFAULT_SEEDS = 10


@pytest.fixture(scope="module")
def harness(emulator: int, lowered_once: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    front = Front(emulator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{front.port}")
        gcs.client_of.cache_clear()
        # In memory where that is: every command waits for the disk otherwise.
        memory = Path("/dev/shm")
        folder = (memory if os.access(memory, os.W_OK) else tmp_path_factory.mktemp("f")) / f"faults-{os.getpid()}"
        try:
            harness = Harness(folder, training=True, front=front)
            yield harness
            harness.run.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            gcs.client_of.cache_clear()
            front.close()


@pytest.mark.parametrize(
    "name",
    [
        *("prepare", "prepare near", "prepare overwrites", "prepare to a bucket", "upload"),
        *("table csv", "table parquet", "train", "eval"),
    ],
)
def test_a_fault_leaves_nothing_false(harness: Harness, name: str) -> None:
    """Faults at any call of any library or request, by seed; other tests put a fault at a known place."""
    scenario = next(candidate for candidate in harness.scenarios() if candidate.name == name)
    numbers = seeds(SEEDS.get(name, DEFAULT_SEEDS))
    wrong = [failure for number in numbers if (failure := harness.seed(scenario, number))]
    assert not wrong, "\n\n".join(wrong)
    assert len(harness.codes) < 3 * DEFAULT_SEEDS or {0, 1, -9} <= set(harness.codes)  # each kind of end was met
