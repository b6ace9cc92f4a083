"""Estimate the time, disk, shuffled bytes and cost of a preparation, from a sample that is prepared and timed here."""

import collections
import dataclasses
import os
import re
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from pipelines import steps
from pipelines.steps import PrepareBlock
from t5prep import sources
from t5prep.dataset.settings import Settings
from t5prep.errors import OutputError, UsageError
from t5prep.io import byte_sizes, gcs, progress
from t5prep.preparation import row_limit, shards
from t5prep.preparation.row_limit import LimitedFile
from t5prep.preparation.sort_blocks import BlockTotals
from t5prep.reading import blocks, text_rows
from t5prep.reading.blocks import Block
from t5prep.sources import RawFile, Resolved
from t5prep.sources.opening import unpacked_name
from t5prep.tasks.task import Corpus

# Processor time of a whole preparation as a multiple of that of tokenizing: reading, shuffling, writing and starting
# workers come to it.
OVERHEAD = 2.0
# Files of one source differ, so a sample takes rows of several files, or of one file for each split, and from several
# positions in each file.
SAMPLED_FILES, SAMPLED_PLACES = 4, 8
# The sample must be large, because each block has a fixed cost. For 30 GB of text, a sixteenth of SAMPLED_BYTES
# predicted a quarter of the real speed and a sixth less disk. A sixteenth of a file (SAMPLED_PART) suffices, but not
# less than LEAST_SAMPLED.
SAMPLED_BYTES, LEAST_SAMPLED, SAMPLED_PART = 16 << 20, 256 << 10, 16
# A file with a longer line may be a single line (a JSON array of any size), so it is sampled only at its beginning.
_LONGEST_LINE = 1 << 20
# On an engine, rows are stored three times beside the shards: as prepared blocks, in ranges of positions, and cut
# into shards (t5prep.preparation.shards). Only the data for the search for near-duplicates is shuffled.
STORED = 3
_PRICE = re.compile(r"(\d*\.?\d+)(?:\+(\d*\.?\d+))?")


class Price(NamedTuple):
    """The prices of an engine: for a vCPU-hour including its memory, and for a shuffled gigabyte."""

    vcpu_hour: float
    shuffled_gigabyte: float = 0.0


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The expected reads, writes and hours of a preparation, extrapolated from a `sample` of blocks that were timed here.

    * `files`, `rows`, `bytes`: of the source; bytes as stored, so compressed files count compressed.
    * `records`, `record_bytes`: for each split, before duplicates are removed.
    * `spilled`: bytes of the rows while they are sorted into shards.
    * `sketched`: bytes that the search for near-duplicates reads.
    * `rate`: bytes of text that one core prepares in a second.
    * `hours`: hours of one core for everything, including reading, shuffling and writing.
    """

    files: int
    rows: int
    bytes: int
    sample: BlockTotals
    records: dict[str, int]
    record_bytes: dict[str, int]
    spilled: int
    sketched: int
    rate: float
    hours: float

    @property
    def needed(self) -> int:
        """The bytes of disk that a run on this machine needs.

        Spills are merged into new files before the old ones are removed, and shards are written before spills are
        removed. Shards in a bucket take no local disk, but spills still do.
        """
        return self.spilled + self.sketched + max(self.spilled, sum(self.record_bytes.values()))

    def text(
        self,
        *,
        out: str,
        settings: Settings,
        runner: str = "local",
        workers: int = 0,
        memory: int = 0,
        price: Price | None = None,
    ) -> str:
        """Return the forecast as some lines of text.

        `memory` (bytes) and `workers` are those of a run on this machine; `price` is an engine's.
        """
        sample, size = self.sample, byte_sizes.text
        rejections = "".join(f", {reason} {number:,}" for reason, number in sample.reasons.most_common())
        became = f"{progress.number_of(sum(sample.records.values()), 'example')}{rejections}" + (
            f", blank {sample.blank:,}" if sample.blank else ""
        )
        specs = collections.Counter(
            spec.split
            for spec in shards.plan_shards(
                self.records, self.record_bytes, shards=settings.shards, drawn_by_id=bool(settings.splits)
            )
        )
        splits = ", ".join(
            f"{name} {size(self.record_bytes[name])} in {progress.number_of(specs[name], 'shard')}"
            for name in sorted(specs)
        )
        lines = {
            "reads": f"{progress.number_of(self.files, 'file')} of {size(self.bytes)}, about {progress.number_of(self.rows, 'row')}",
            "a sample": f"{progress.number_of(sample.read, 'row')} became {became}",
            "writes": f"about {size(sum(self.record_bytes.values()))} into {out}: {splits or 'no example'}",
        }
        if runner == "local":
            scratch_folder = scratch_place(out)
            # From tokenizing alone to all of the estimated overhead.
            least, max_duration = (
                progress.duration(3600 * self.hours / part / max(1, workers)) for part in (OVERHEAD, 1)
            )
            lines["disk"] = (
                f"{scratch_folder} needs {size(self.needed)} while records are sorted, and "
                f"{size(free_bytes(Path(scratch_folder)))} are free"
            )
            lines["memory"] = f"at most {size(memory)} for all processes"
            of_workers = progress.number_of(workers or 1, "worker")
            lines["time"] = f"{least} to {max_duration} with {of_workers}; one core prepares {self.rate / 1e6:.1f} MB/s"
        else:
            lines[runner] = (
                f"{self.hours:,.2f} vCPU-hours (one core here: {self.rate / 1e6:.1f} MB/s; twice that for the rest); "
                f"{size(STORED * self.spilled)} more in {out} until the end; {size(self.sketched)} shuffled"
            )
            if price:
                cost = self.hours * price.vcpu_hour
                gigabytes = self.sketched / 1e9 * price.shuffled_gigabyte
                lines["cost"] = f"{cost / OVERHEAD + gigabytes:,.2f} to {cost + gigabytes:,.2f}"
        return "\n".join(f"  {name:<13} {line}" for name, line in lines.items())


def parse_price(text: str) -> Price:
    """Return the price that a user gave as VCPU_HOUR or VCPU_HOUR+GB_SHUFFLED. Raises UsageError.

    >>> parse_price("0.07+0.011")
    Price(vcpu_hour=0.07, shuffled_gigabyte=0.011)
    """
    match = _PRICE.fullmatch(text.strip())
    if not match:
        raise UsageError(
            f'--price "{text}" is not a price. Write the price of a vCPU-hour, optionally with that of a '
            "gigabyte shuffled: 0.07+0.011",
            code="option.malformed",
        )
    return Price(float(match[1]), float(match[2] or 0))


def forecast(
    work: PrepareBlock, *, source: Resolved, sampled_bytes: int = SAMPLED_BYTES, places: int = SAMPLED_PLACES
) -> Forecast:
    """Return a forecast, made by preparing and timing some rows of some files in this process. Raises SourceError.

    `sampled_bytes` is the size of the whole sample, and `places` the number of positions in a Parquet file.
    """
    work = dataclasses.replace(work, cache_folder="", spool="")
    settings, task = work.job.settings, steps.staged_of(work.job).task
    unlimited = dataclasses.replace(settings, limit=None)
    groups = _group_files(list(row_limit.limited_files(source.files, unlimited, task)), settings)
    sample, sampled, timed = BlockTotals(), 0, 0.0
    rows, total, spilled, sketched, seconds = 0.0, 0.0, 0.0, 0.0, 0.0
    records, record_bytes = collections.Counter[str](), collections.Counter[str]()
    for group in groups:
        file = max(group, key=_size)
        size = min(sampled_bytes // len(groups), max(LEAST_SAMPLED, _size(file) // SAMPLED_PART))
        sampled_blocks, share = _sampled(file, unlimited, task.task.corpus, size=size, places=places)
        if not sampled_blocks:
            continue
        stored = sum(map(_size, group))
        # The factor by which this sample stands for all files of its group, assuming that they resemble it.
        times = stored / max(1, _size(file)) / share
        if settings.limit and not settings.splits and len(groups) > 1:  # here each split has its own limit
            times = min(times, settings.limit / max(1, sum(block.rows for block in sampled_blocks)))
        total += min(stored, times * share * _size(file))
        for block in sampled_blocks:
            # A warm-up, so that loading the tokenizer and decoding a file up to this row are not timed.
            work.sort(_select_previous_row(block))
            began = time.process_time()  # not the clock, which also counts other programs
            sorted_block = work.sort(block)
            processor_seconds = time.process_time() - began
            sample.merge(sorted_block.totals)
            sampled, timed = sampled + block.size, timed + processor_seconds
            seconds += times * processor_seconds
            rows += times * block.rows
            spilled += times * len(sorted_block.spill.data)
            sketched += times * (sorted_block.sketch.size if sorted_block.sketch else 0)
            records.update(
                {split: round(times * (last - first)) for split, (first, last) in sorted_block.spill.splits.items()}
            )
            record_bytes.update(
                {split: round(times * size) for split, size in sorted_block.totals.record_bytes.items()}
            )
    pa.default_memory_pool().release_unused()  # Arrow would hold the sample's 0.1 GB until this process ends
    part = min(1.0, settings.limit / max(1.0, rows)) if settings.limit and settings.splits else 1.0
    return Forecast(
        files=len(source.files),
        rows=round(part * rows),
        bytes=round(part * total),
        sample=sample,
        records={split: round(part * number) for split, number in records.items()},
        record_bytes={split: round(part * size) for split, size in record_bytes.items()},
        spilled=round(part * spilled),
        sketched=round(part * sketched),
        rate=sampled / max(1e-9, timed),
        hours=OVERHEAD * part * seconds / 3600,
    )


def _sampled(
    file: LimitedFile, settings: Settings, corpus: Corpus, *, size: int, places: int
) -> tuple[list[Block], float]:
    """Return blocks of about `size` bytes of a file, and the share of the file that they are.

    The rows come from several positions, because the length of rows may depend on their position. Where the file can
    only be read from its beginning, they come from there. `places` is the number of positions in a Parquet file,
    where each costs decoding its row group up to there.
    """
    scanned_blocks = row_limit.scan(file, settings, corpus, block_bytes=size)
    first = next(scanned_blocks, None)
    if first is None:
        return [], 1.0
    if first.format.kind != "parquet":
        block = _of_lines(file, first, size=size)
        return [block], min(1.0, max(1.0, block.size * _packing(block)) / max(1, _size(file)))
    places = 1 if "://" in first.file.path else places
    parts, chosen = [part for part in (first, *scanned_blocks) if part.rows] or [first], dict[int, Block]()
    for sample_index in range(places):
        position = len(parts) * (sample_index + 0.5) / places if places > 1 else 0.0
        pieces = list(parts[int(position)].pieces(size // places))  # the size of a part depends on its row group
        piece = pieces[int(position % 1 * len(pieces))]
        chosen[piece.first_row] = piece
    rows, of_all = (max(1, sum(block.rows for block in block_group)) for block_group in (chosen.values(), parts))
    return list(chosen.values()), rows / of_all


def _of_lines(file: LimitedFile, first: Block, *, size: int) -> Block:
    """Return lines from several positions of a file as one block, or `first` if the file is not a plain file of lines."""
    raw, lines = blocks.files(file.element)[0], first.format.kind in ("jsonl", "text", "tsv")
    plain = isinstance(file.element, RawFile) and not raw.member and unpacked_name(raw.name) == raw.name
    if not (lines and plain) or first.format.written or raw.bytes < 4 * size:
        return first
    sampled_lines = list[bytes]()
    with sources.open_random(raw) as opened:
        for sample_index in range(SAMPLED_PLACES):
            begin = max(first.begin, raw.bytes * sample_index // SAMPLED_PLACES)
            if sample_index and begin < opened.tell():  # the previous row reached beyond this position
                continue
            opened.seek(begin)
            # A position lies within a row, which is skipped. The last row is read to its end: otherwise long rows
            # would be underrepresented.
            remaining_bytes, is_partial = size // SAMPLED_PLACES, sample_index > 0
            while remaining_bytes > 0 and (line := opened.readline(_LONGEST_LINE)):
                if len(line) == _LONGEST_LINE:
                    return first
                if not is_partial:
                    sampled_lines.append(line)
                    remaining_bytes -= len(line)
                is_partial = False
            # A file named .jsonl may hold one JSON array. The scanned block then differs from the file's first line.
            if not sample_index and not blocks.content(first).startswith(sampled_lines[0]):
                return first
    data = b"".join(sampled_lines)
    end, rows, _ = text_rows.of_buffer(data, quoted=False, final=True, delimiter=first.format.delimiter)
    return dataclasses.replace(first, rows=rows, size=end, data=data)


def _select_previous_row(block: Block) -> Block:
    """Return the row before a block as a block. At the start of a file or row group, return the block's first row."""
    if not block.skip:
        return block.head(1)
    return dataclasses.replace(block, first_row=block.first_row - 1, skip=block.skip - 1, rows=1)


def _group_files(files: list[LimitedFile], settings: Settings) -> list[list[LimitedFile]]:
    """Return the files in groups of which one file each is read: a group for each split, or SAMPLED_FILES without splits."""
    groups: dict[int | str, list[LimitedFile]] = {}
    for number, file in enumerate(files):
        split = "" if settings.splits else blocks.files(file.element)[0].split
        groups.setdefault(split or number * SAMPLED_FILES // len(files), []).append(file)
    return list(groups.values())


def _size(file: LimitedFile) -> int:
    """Return the stored bytes of a file, or of both files of a pair."""
    return sum(raw_file.bytes for raw_file in blocks.files(file.element))


def _packing(block: Block) -> float:
    """Return stored bytes of the file for each byte of a block. For compressed files, gzip of the block is the approximation."""
    if block.data is None:
        return block.packing
    written = block.format.written
    stored = block.data.decode("utf-8", "replace").encode(written, "replace") if written else block.data
    if unpacked_name(block.file.name) != block.file.name:
        stored = zlib.compress(stored)
    return len(stored) / max(1, len(block.data))


# With the shortest rows, one byte of text becomes this many bytes of padded records. If a source fits on the disk
# even then, it is not sampled.
MOST_BYTES_OUT = 100
# This first sample is small, because every larger run waits for it.
DISK_SAMPLED_BYTES = 64 << 10
# The forecast is printed for runs that need 1 GiB or more. A run is refused only if 70 % of its need exceeds the free
# space, because samples err.
WORTH_TELLING = 1 << 30
DOUBT = 0.7


def check_disk(work: PrepareBlock, *, source: Resolved, out: str, workers: int, memory: int) -> None:
    """Print the forecast of a large run. Raises OutputError if the run needs more disk than is free."""
    scratch_folder = scratch_place(out)
    free = free_bytes(Path(scratch_folder))
    if 2 * MOST_BYTES_OUT * sum(file.bytes for file in source.files) <= min(free, WORTH_TELLING):
        return
    estimate = forecast(work, source=source, sampled_bytes=DISK_SAMPLED_BYTES, places=1)
    if estimate.needed < WORTH_TELLING and estimate.needed <= free / 2:
        return
    estimate = forecast(work, source=source)  # the small sample is too inexact for times and refusals
    if DOUBT * estimate.needed > free:
        raise OutputError(
            f"The disk is too small for about {byte_sizes.text(sum(estimate.record_bytes.values()))} of "
            f"records: {scratch_folder} needs {byte_sizes.text(estimate.needed)} for sorting, but has "
            f"{byte_sizes.text(free)} free. Free some space, choose another --out, or prepare a part: "
            "--limit ROWS",
            code="output.no-space",
        )
    print(estimate.text(out=out, settings=work.job.settings, workers=workers, memory=memory), file=sys.stderr)


def scratch_place(out: str) -> str:
    """Return the local folder in which a run sorts its rows: `out`, or the folder for temporary files if `out` is on gs://."""
    return tempfile.gettempdir() if gcs.is_gs(out) else out


def free_bytes(folder: Path) -> int:
    """Return the bytes that the user may still write into a folder, which need not exist yet."""
    existing_path = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    disk = os.statvfs(existing_path)
    return disk.f_bavail * disk.f_frsize
