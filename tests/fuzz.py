"""Draw inputs that no test has drawn, for some seconds: `make fuzz SECONDS=60`, or `make fuzz SECONDS=3600 FIRST=7000`.

What is in C (tests/native/fuzz, where clang is), and beside it the tests with the marker `fuzz`, a round of seeds after the other
from FIRST on; without it, each day begins with others. A round also draws a hundred new examples of each property that
Hypothesis tests. No round begins when the time is over. The line that is printed before a round repeats it.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
IN_C = 10  # targets of tests/native/fuzz, each for its part of the time
COUNT = 15  # seeds of a round
MARKERS = "fuzz or hypothesis"  # the second is set by Hypothesis itself


def main(seconds: int, first: int) -> int:
    """Return the exit code of the round that found something, 0 where none did."""
    end = time.monotonic() + seconds
    in_c = (
        subprocess.Popen(["tests/native/fuzz", str(max(1, seconds // IN_C))], cwd=ROOT)
        if shutil.which("clang")
        else None
    )
    files = [
        path
        for path in sorted(ROOT.glob("tests/**/test_*.py"))
        if re.search(r"mark\.fuzz|@(hypothesis\.)?given", path.read_text(encoding="utf-8"))
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", MARKERS, *map(str, files)]
    code = 0
    while not code and time.monotonic() < end:
        print(f"T5PREP_SEEDS={first}:{COUNT} pytest -m '{MARKERS}' --hypothesis-seed {first}", flush=True)
        code = subprocess.call(
            [*command, "--hypothesis-seed", str(first)],
            cwd=ROOT,
            env={**os.environ, "T5PREP_SEEDS": f"{first}:{COUNT}"},
        )
        first += COUNT
    return (in_c.wait() if in_c else 0) or code


if __name__ == "__main__":
    today = int(time.time()) // 86_400 * 10_000
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else today))
