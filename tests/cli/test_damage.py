"""Generated command lines on files damaged at random places in every stage: a sentence, no traceback, nobody's files changed.

Every case follows from SEED and its number. The large run, by hand (some minutes; numbers of cases from, to):
python tests/cli/test_damage.py 0 2000
"""

import faulthandler
import random
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this file is run by hand

import damage_kit
from damage_kit import Lines, case
from fuzzed_arguments import SEED

CASES = 12
FAILURES = 10


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "kit"
    damage_kit.make(folder, training=False)
    return folder


@pytest.mark.parametrize("number", range(3))
def test_no_damage_ends_in_a_traceback(number: int, kit: Path, tmp_path: Path) -> None:
    with damage_kit.alone(tmp_path):
        for case_number in range(number * CASES, (number + 1) * CASES):
            if wrong := case(kit, Lines(random.Random(f"{SEED} {case_number}"), training=False), tmp_path):
                pytest.fail(f"case {case_number}: {wrong}", pytrace=False)


def run(first: int, last: int) -> int:
    """Run cases, print each that went wrong, and return how many did."""
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as folder:
        work_folder, wrongs, began = Path(folder), 0, time.monotonic()
        with damage_kit.alone(work_folder):
            damage_kit.make(work_folder / "kit", training=True)
            for case_number in range(first, last):
                started = time.monotonic()
                print(f"case {case_number}", end="\r", flush=True)
                if wrong := case(
                    work_folder / "kit", Lines(random.Random(f"{SEED} {case_number}"), training=True), work_folder
                ):
                    print(f"case {case_number}: {wrong}\n", flush=True)
                    wrongs += 1
                if (seconds := time.monotonic() - started) > 20:
                    print(f"case {case_number} took {seconds:.0f} s", flush=True)
        print(f"{last - first:,} cases in {time.monotonic() - began:.0f} s, {wrongs} of them wrong")
        return wrongs


if __name__ == "__main__":
    sys.exit(min(1, run(int(sys.argv[1]), int(sys.argv[2]))))
