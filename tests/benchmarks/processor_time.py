"""Count the time of commands and calls, by the clock and of the processors, and print ratios as one table."""

import ctypes
import os
import platform
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class Seconds(NamedTuple):
    """Seconds by the clock, and of all processors."""

    clock: float
    processor: float


class Line(NamedTuple):
    """What was measured, beside what, and rounds of (ours, the other's): above 1 we are faster."""

    description: str
    baseline: str
    rounds: Sequence[tuple[Seconds, Seconds]]


def adopt_orphans() -> None:
    """Make processes whose parent ends children of this one: the fork server of `prepare` outlives the command."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def of_orphans() -> float:
    """Wait for all children of this process, and return the seconds (user and system) that they took."""
    seconds = 0.0
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return seconds
        seconds += of_usage(usage)


def of_usage(usage: resource.struct_rusage) -> float:
    """Return the seconds (user and system) of a process and the children that it waited for."""
    return usage.ru_utime + usage.ru_stime


def of_command(command: Sequence[object]) -> Seconds:
    """Return what a command takes with all that it starts. Its modules may be kept compiled, as pip leaves a user's."""
    adopt_orphans()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    words = [*map(str, command)]
    with tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        process = subprocess.Popen(words, stdout=output, stderr=output, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        clock, process.returncode = time.perf_counter() - began, status
        if status:
            output.seek(0)
            raise SystemExit(f"{' '.join(words)}: {output.read()[-2000:]}")
    return Seconds(clock, of_usage(usage) + of_orphans())


def of_call(work: Callable[[], object]) -> Seconds:
    """Return what a call takes in this process."""
    began = time.perf_counter(), time.process_time()
    work()
    return Seconds(time.perf_counter() - began[0], time.process_time() - began[1])


def show(lines: Iterable[Line]) -> None:
    """Print lines as a table in Markdown, each as soon as it is there, below what is to be known of the machine."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    versions = (f"{name} {metadata.version(name)}" for name in ("sentencepiece", "pyarrow", "numpy", "tensorflow-cpu"))
    print(
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores ({model.partition(': ')[2]}), load {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}, {', '.join(versions)}.\nOur speed in parts of the other's, medians: above 1 we are "
        "faster. Seconds are ours.\n\n| | beside | by the clock | by processor time | seconds, and of the processors |\n"
        "|---|---|---|---|---|",
        flush=True,
    )
    for description, baseline, rounds in lines:
        ratios = [[theirs[side] / ours[side] for ours, theirs in rounds] for side in (0, 1)]
        ratio_texts = [_format_ratios(side_ratios) for side_ratios in ratios]
        seconds = [statistics.median(ours[side] for ours, _ in rounds) for side in (0, 1)]
        print(
            f"| {description} | {baseline} | {ratio_texts[0]} | {ratio_texts[1]} | {seconds[0]:.2f}, {seconds[1]:.2f} |",
            flush=True,
        )


def _format_ratios(ratios: Sequence[float]) -> str:
    """Return the median of some ratios, with the least and the most of them where they are several."""
    spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{statistics.median(ratios):.2f}{spread}"
