"""Is memory flat? Corpora of several sizes, prepared in the default budget: the peak of all processes together.

    python -m tests.benchmarks.bench_memory 50MB 500MB [--memory 2GiB] [--tokenizer spiece.model] [--rows-of FILE.csv]

A corpus is made by repetition with ids of its own for every row, in CSV files of 64 MB each. With --linked, files after the
first gigabyte are further links to those, so that twenty gigabytes fit on a small disk: file and row are the ids then, and
what is tokenized once is found in the cache.
"""

import contextlib
import csv
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from t5prep.dataset.manifest import load
from t5prep.io import byte_sizes, store
from t5prep.sources import sample

FILE_BYTES = 64_000_000
LINKED_AFTER = 1_000_000_000


def rows_to_repeat(rows_of: str) -> list[list[str]]:
    """Header and rows to repeat: of a CSV file, or of the built-in sample."""
    path = Path(rows_of) if rows_of else sample.write(store.root() / "sample" / "questions.csv")
    encoding = "cp1252" if "cp1252" in path.name else "utf-8"
    csv.field_size_limit(1 << 30)
    with open(path, newline="", encoding=encoding) as file:
        return list(csv.reader(file))


def linked(folder: Path, *, size: int, rows: list[list[str]]) -> int:
    """Write a gigabyte of CSV, and link its files until there are `size` bytes; return how many rows they have together."""
    total_rows = corpus(folder, size=min(size, LINKED_AFTER), rows=rows)
    files = sorted(folder.iterdir())
    counts = [count_rows(file) for file in files]
    assert sum(counts) == total_rows
    written = sum(file.stat().st_size for file in files)
    for part in itertools.count(len(files)):
        if written >= size:
            return total_rows
        source_file = files[part % len(files)]
        os.link(source_file, folder / f"part-{part:04d}.csv")
        written += source_file.stat().st_size
        total_rows += counts[part % len(files)]
    raise AssertionError


def count_rows(path: Path) -> int:
    """Return how many rows a CSV file has below its header."""
    with open(path, newline="", encoding="utf-8") as file:
        return sum(1 for _ in csv.reader(file)) - 1


def corpus(folder: Path, *, size: int, rows: list[list[str]]) -> int:
    """Writes about `size` bytes of CSV; returns how many rows."""
    header, *data_rows = rows
    id_index, written, number = header.index("Id"), 0, 0
    repeated_rows = itertools.cycle(data_rows)
    for part in range(-(-size // FILE_BYTES)):
        with open(folder / f"part-{part:04d}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            while file.tell() < FILE_BYTES and written + file.tell() < size:
                for row in itertools.islice(repeated_rows, 500):
                    writer.writerow([*row[:id_index], f"r{number}", *row[id_index + 1 :]])
                    number += 1
            written += file.tell()
    return number


def tree(pid: int) -> Iterator[int]:
    """Yield a process and everything below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            for child in task.read_text().split():
                yield from tree(int(child))


def resident(pid: int) -> int:
    """Bytes that a process and everything below it hold together: proportional, so that shared pages count once."""
    total = 0
    for process_id in tree(pid):
        try:
            rollup = Path(f"/proc/{process_id}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        total += sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def peak(command: list[str]) -> tuple[int, float]:
    """The most that a command's processes held together at any time, and how long it took."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak_bytes = 0
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            peak_bytes = max(peak_bytes, resident(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(process.returncode)
    return peak_bytes, time.monotonic() - began


@click.command()
@click.argument("sizes", nargs=-1, required=True)
@click.option("--memory", default="2GiB")
@click.option("--tokenizer", default="sample:")
@click.option("--rows-of", default="")
@click.option("--layout", default="padded", help="With ragged records, twenty gigabytes of long documents take two.")
@click.option("--linked", "as_links", is_flag=True, help="Files after the first gigabyte are links to those.")
@click.option("--scratch", default="", help="Where corpora and datasets go; removed afterwards.")
def main(
    sizes: tuple[str, ...], memory: str, tokenizer: str, rows_of: str, layout: str, as_links: bool, scratch: str
) -> None:
    """Prints a line for each size."""
    rows = rows_to_repeat(rows_of)
    budget = byte_sizes.parse(memory, name="--memory")
    click.echo(f"{'corpus':>10} {'rows':>12} {'peak, all processes':>20} {'of budget':>10} {'seconds':>8} {'MB/s':>6}")
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=scratch or None) as folder:
            bytes_ = byte_sizes.parse(size, name="size")
            (Path(folder) / "rows").mkdir()
            total_rows = (linked if as_links else corpus)(Path(folder) / "rows", size=bytes_, rows=rows)
            os.environ["T5PREP_CACHE"] = str(Path(folder) / "cache")
            out = str(Path(folder) / "out")
            task = ["text2text", "--inputs-column", "Body", "--targets-column", "Y"] if as_links else ["so_quality"]
            command = [sys.executable, "-m", "t5prep.cli", "prepare", *task, "--source", f"{folder}/rows"]
            command += ["--tokenizer", tokenizer, "--out", out, "--memory", memory, "--layout", layout]
            peak_bytes, seconds = peak(command)
            manifest = load(out)
            assert (
                sum(split.records for split in manifest.splits.values()) + sum(manifest.rejected.values()) == total_rows
            )
            click.echo(
                f"{size:>10} {total_rows:>12,} {peak_bytes / 2**20:>16,.0f} MiB {peak_bytes / budget:>9.0%} {seconds:>8.0f}"
                f" {bytes_ / 1e6 / seconds:>6.1f}"
            )


if __name__ == "__main__":
    main()
