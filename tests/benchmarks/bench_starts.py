"""Starts: what a person waits for before anything happens, beside what is asked for.

    python -m tests.benchmarks.bench_starts [NAME ...]

`plan` compiles for a TPU, the first time for a minute or two, and is left out unless it is named (it needs the extra
`plan`).
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks import processor_time
from tests.benchmarks.processor_time import Line, Seconds

CLI = (sys.executable, "-m", "t5prep.cli")
PLAN = ("plan", "--model", "t5-base", "--batch", "8", "--tpu", "v5e-1")
# Name → seconds of the processors that are asked for.
TARGET_SECONDS = {
    "--help": 0.15,
    "100 rows prepared": 0.6,
    "doctor": 3,
    "first step of a training": 6,
    "predict of one line": 4,
    "plan of T5-base": 90,
    "plan of T5-base, again": 2,
}


def main() -> None:
    processor_time.show(lines(sys.argv[1:] or [name for name in TARGET_SECONDS if "plan" not in name]))


def lines(names: Sequence[str] = ("--help", "100 rows prepared"), *, rounds: int = 2) -> Iterator[Line]:
    """Yield a line for each of some starts; a run of the sample is trained first where one is needed."""
    with tempfile.TemporaryDirectory() as temporary_folder:
        folder = Path(temporary_folder)
        data, run = folder / "data", folder / "run"
        prepare = ("prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out")
        train = ("train", "--recipe", "tiny", "--set", "steps=1", "--set", "warmup=0", "--data", data, "--out")
        of_run = {"first step of a training", "predict of one line"} & set(names)
        if of_run:
            _start_seconds(*prepare, data)
            _start_seconds(*train, run)  # its programs are kept from now on
        (folder / "line.txt").write_text("quality: How do I sort a list?\n")
        for name in names:
            if name.startswith("plan"):  # the first time from an empty cache
                os.environ["T5PREP_CACHE"] = str(folder / "cache")
            timings = []
            for number in range(1 if name == "plan of T5-base" else rounds):
                commands = {
                    "--help": ("--help",),
                    "100 rows prepared": (*prepare, folder / f"data-{number}"),
                    "doctor": ("doctor",),
                    "first step of a training": (*train, folder / f"run-{number}"),
                    "predict of one line": ("predict", folder / "line.txt", "--model", run, "--as-text"),
                }
                timings.append(_start_seconds(*commands.get(name, PLAN)))
            yield Line(
                name,
                "what is asked for",
                [(seconds, Seconds(TARGET_SECONDS[name], TARGET_SECONDS[name])) for seconds in timings],
            )


def _start_seconds(*command: object) -> Seconds:
    return processor_time.of_command([*CLI, *command])


if __name__ == "__main__":
    main()
