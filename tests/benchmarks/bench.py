"""All that README and docs/speed.md say of speed and memory on this machine: `make bench`, ten minutes of two quiet cores.

T5PREP_CORPORA=FOLDER make bench       with texts of open vocabulary (`python -m tests.benchmarks.open_corpora FOLDER`)
make bench ARGS="reader step"          some parts of it
T5PREP_SST2=FOLDER make bench ARGS=real    a published model on SST-2, which is no part of the ten minutes: a quarter of an hour
"""

import argparse
import importlib
import os
import sys
from collections.abc import Iterator

from tests.benchmarks import bench_memory, processor_time
from tests.benchmarks.processor_time import Line

PARTS = ("prepare", "counts", "reader", "step", "starts", "memory")
SIZES = ("50MB", "200MB")  # of the corpora whose preparation is watched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"which of {', '.join(PARTS)}, or real")
    parts = list(parser.parse_args().parts)
    processor_time.show(lines([part for part in parts if part != "memory"]))
    if "memory" in parts:
        bench_memory.main(SIZES, standalone_mode=False)


def lines(parts: list[str]) -> Iterator[Line]:
    """Yield the lines of some parts, and say on stderr what each took; one that lacks a package (PyTorch) is left out."""
    for part in parts:
        began = os.times()
        try:
            yield from importlib.import_module(f"tests.benchmarks.bench_{part}").lines()
        except ImportError as error:
            print(f"| {part} | left out: {error} | | | |", flush=True)
        *spent, clock = (end - start for end, start in zip(os.times(), began, strict=True))
        print(f"{part} took {clock:.0f} s by the clock, {sum(spent):.0f} s of the processors", file=sys.stderr)


if __name__ == "__main__":
    main()
