"""Estimate from a sample that is timed here what a preparation will take: time, bytes on disk, bytes shuffled, money."""

import collections
import dataclasses
import os
import re
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

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

# Reading, shuffling, writing and starting workers, beside tokenizing.
OVERHEAD = 2.0
# Files of one source differ: so many of them are sampled, or one of each split, and so many places of a file.
SAMPLED_FILES, SAMPLED_PLACES = 4, 8
# So many bytes that what each block costs, however small, is little of its time: of 30 GB, a sixteenth of them said a quarter of
# the speed, and a sixth less disk. Of a file a sixteenth is enough, but not less than the least.
SAMPLED_BYTES, LEAST_SAMPLED, SAMPLED_PART = 16 << 20, 256 << 10, 16
# A file with a longer line is sampled where it begins: it may be one line, a JSON array of any size.
_LONGEST_LINE = 1 << 20
# On an engine rows lie beside the shards three times: as blocks left them, in ranges of positions, and cut into shards
# (t5prep.preparation.shards). Only what near-duplicates are searched in is shuffled.
STORED = 3
_PRICE = re.compile(r"(\d*\.?\d+)(?:\+(\d*\.?\d+))?")


class Price(NamedTuple):
    """The price of an engine: a vCPU-hour with its memory, and a gigabyte shuffled."""

    vcpu_hour: float
    shuffled_gigabyte: float = 0.0


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Say what a preparation will read and write, from a `sample` of its blocks that was timed here.

    `files`, `rows` and `bytes` (as they are stored) are those of the source; `records` and `record_bytes` those of each split,
    before duplicates go; `spilled` are the bytes of rows on their way into shards, `sketched` those in which near-duplicates
    are searched, `rate` the bytes of text that one core prepares in a second, and `hours` those of one core for all, with
    reading, shuffling and writing.
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
        """Return the bytes of disk that a run here needs.

        Spills are merged into new ones before the old ones go, and shards are written before the spills go. Shards in a
        bucket need no disk, but what sorts them does.
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
        """Return all of it on a few lines. `memory` (bytes) and `workers` are those of a run here, `price` is an engine's."""
        sample, size = self.sample, byte_sizes.text
        rejections = "".join(f", {reason} {number:,}" for reason, number in sample.reasons.most_common())
        became = f"{sum(sample.records.values()):,} examples{rejections}" + (
            f", blank {sample.blank:,}" if sample.blank else ""
        )
        specs = collections.Counter(
            spec.split
            for spec in shards.plan_shards(
                self.records, self.record_bytes, shards=settings.shards, drawn=bool(settings.splits)
            )
        )
        splits = ", ".join(
            f"{name} {size(self.record_bytes[name])} in {progress.number_of(specs[name], 'shard')}"
            for name in sorted(specs)
        )
        lines = {
            "reads": f"{progress.number_of(self.files, 'file')} of {size(self.bytes)}, about {self.rows:,} rows",
            "a sample": f"{sample.read:,} rows became {became}",
            "writes": f"about {size(sum(self.record_bytes.values()))} into {out}: {splits or 'no example'}",
        }
        if runner == "local":
            scratch_folder = scratch_place(out)
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
    """Return the price that a user gives: of a vCPU-hour, and after a `+` of a gigabyte shuffled. Raises UsageError.

    >>> parse_price("0.07+0.011")
    Price(vcpu_hour=0.07, shuffled_gigabyte=0.011)
    """
    match = _PRICE.fullmatch(text.strip())
    if not match:
        raise UsageError(
            f'--price "{text}": it is the price of a vCPU-hour, and after a + that of a gigabyte shuffled: 0.07+0.011'
        )
    return Price(float(match[1]), float(match[2] or 0))


def forecast(
    work: PrepareBlock, *, source: Resolved, sampled_bytes: int = SAMPLED_BYTES, places: int = SAMPLED_PLACES
) -> Forecast:
    """Return a forecast from some rows of some files (`_sampled`), which are prepared and timed here. Raises SourceError."""
    work = dataclasses.replace(work, kept="", spool="")
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
        # All files of the group are taken to be like these rows.
        times = stored / max(1, _size(file)) / share
        if settings.limit and not settings.splits and len(groups) > 1:  # each split has its limit
            times = min(times, settings.limit / max(1, sum(block.rows for block in sampled_blocks)))
        total += min(stored, times * share * _size(file))
        for block in sampled_blocks:
            work.sort(
                _select_previous_row(block)
            )  # what loads the tokenizer, and decodes a file up to there, is not timed
            began = time.process_time()  # as other work on the machine would be counted by the clock
            sorted_block = work.sort(block)
            took = time.process_time() - began
            sample.merge(sorted_block.totals)
            sampled, timed = sampled + block.size, timed + took
            seconds += times * took
            rows += times * block.rows
            spilled += times * len(sorted_block.spill.data)
            sketched += times * (sorted_block.sketch.size if sorted_block.sketch else 0)
            records.update(
                {split: round(times * (last - first)) for split, (first, last) in sorted_block.spill.splits.items()}
            )
            record_bytes.update(
                {split: round(times * size) for split, size in sorted_block.totals.record_bytes.items()}
            )
    pa.default_memory_pool().release_unused()  # what the sample took, 0.1 GB, this process would keep until its end
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
    """Return rows of a file, about `size` bytes, and what share of it they are.

    They stand at some places, because how long rows are may go with where they stand; or where the file begins, if it cannot be
    read elsewhere without reading all before. `places` are those of a Parquet file, where each costs decoding what is before it.
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
        pieces = list(parts[int(position)].pieces(size // places))  # a part is as large as its row group asks for
        piece = pieces[int(position % 1 * len(pieces))]
        chosen[piece.first_row] = piece
    rows, of_all = (max(1, sum(block.rows for block in block_group)) for block_group in (chosen.values(), parts))
    return list(chosen.values()), rows / of_all


def _of_lines(file: LimitedFile, first: Block, *, size: int) -> Block:
    """Return lines from some places of a file as one block; the `first` block of what is no plain file of lines."""
    raw, lines = blocks.files(file.element)[0], first.format.kind in ("jsonl", "text", "tsv")
    plain = isinstance(file.element, RawFile) and not raw.member and unpacked_name(raw.name) == raw.name
    if not (lines and plain) or first.format.written or raw.bytes < 4 * size:
        return first
    sampled_lines = list[bytes]()
    with sources.open_random(raw) as opened:
        for sample_index in range(SAMPLED_PLACES):
            begin = max(first.begin, raw.bytes * sample_index // SAMPLED_PLACES)
            if sample_index and begin < opened.tell():  # a row was longer than the way to the next place
                continue
            opened.seek(begin)
            # The row in which a place lies is passed over. The last one is whole: else longer rows would be missing.
            remaining_bytes, is_partial = size // SAMPLED_PLACES, sample_index > 0
            while remaining_bytes > 0 and (line := opened.readline(_LONGEST_LINE)):
                if len(line) == _LONGEST_LINE:
                    return first
                if not is_partial:
                    sampled_lines.append(line)
                    remaining_bytes -= len(line)
                is_partial = False
            # A JSON array is a file of lines by its name alone.
            if not sample_index and not blocks.content(first).startswith(sampled_lines[0]):
                return first
    data = b"".join(sampled_lines)
    end, rows, _ = text_rows.of_buffer(data, quoted=False, final=True, delimiter=first.format.delimiter)
    return dataclasses.replace(first, rows=rows, size=end, data=data)


def _select_previous_row(block: Block) -> Block:
    """Return the row before a block, or its own first one where its row group, or its file, begins."""
    if not block.skip:
        return block.head(1)
    return dataclasses.replace(block, first_row=block.first_row - 1, skip=block.skip - 1, rows=1)


def _group_files(files: list[LimitedFile], settings: Settings) -> list[list[LimitedFile]]:
    """Return the files in groups: those of a split, where files are splits themselves, else some that follow each other."""
    groups: dict[Any, list[LimitedFile]] = {}
    for number, file in enumerate(files):
        split = "" if settings.splits else blocks.files(file.element)[0].split
        groups.setdefault(split or number * SAMPLED_FILES // len(files), []).append(file)
    return list(groups.values())


def _size(file: LimitedFile) -> int:
    """Return the bytes of a file or pair as they are stored."""
    return sum(raw_file.bytes for raw_file in blocks.files(file.element))


def _packing(block: Block) -> float:
    """Return the bytes that a file stores for a byte of a block, of a packed file about what gzip makes of the block."""
    if block.data is None:
        return block.packing
    written = block.format.written
    stored = block.data.decode("utf-8", "replace").encode(written, "replace") if written else block.data
    if unpacked_name(block.file.name) != block.file.name:
        stored = zlib.compress(stored)
    return len(stored) / max(1, len(block.data))


# The shortest rows make this many bytes of padded records of one byte of text: a source that fits even then is not sampled.
MOST_BYTES_OUT = 100
# Every run of some size waits for this sample.
DISK_SAMPLED_BYTES = 64 << 10
# All is told from 1 GiB on. A run is refused where 70 % of what it needs is more than is free: a sample may be wrong.
WORTH_TELLING = 1 << 30
DOUBT = 0.7


def check_disk(work: PrepareBlock, *, source: Resolved, out: str, workers: int, memory: int) -> None:
    """Print what a large run will do. Raises OutputError if it needs more of the disk than is free."""
    scratch_folder = scratch_place(out)
    free = free_bytes(Path(scratch_folder))
    if 2 * MOST_BYTES_OUT * sum(file.bytes for file in source.files) <= min(free, WORTH_TELLING):
        return
    estimate = forecast(work, source=source, sampled_bytes=DISK_SAMPLED_BYTES, places=1)
    if estimate.needed < WORTH_TELLING and estimate.needed <= free / 2:
        return
    estimate = forecast(work, source=source)  # so small a sample tells no time, and refuses nothing
    if DOUBT * estimate.needed > free:
        raise OutputError(
            f"no space for all of it: about {byte_sizes.text(sum(estimate.record_bytes.values()))} of records; {scratch_folder} needs "
            f"{byte_sizes.text(estimate.needed)} while they are sorted, and {byte_sizes.text(free)} are free. Free some, choose "
            "another --out, or prepare a part: --limit ROWS"
        )
    print(estimate.text(out=out, settings=work.job.settings, workers=workers, memory=memory), file=sys.stderr)


def scratch_place(out: str) -> str:
    """Return the folder of this machine where a run keeps what it sorts."""
    return tempfile.gettempdir() if gcs.is_gs(out) else out


def free_bytes(folder: Path) -> int:
    """Return how many bytes a user may still write at a place, or where it would be made."""
    existing_path = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    disk = os.statvfs(existing_path)
    return disk.f_bavail * disk.f_frsize
