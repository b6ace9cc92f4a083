"""End a preparation: write the files of rejected rows, and then the manifest that makes a directory of shards a dataset.

Nothing here imports Beam.
"""

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pipelines import gather, staging
from pipelines.staging import Job
from pipelines.worker_steps import Hashed, left_out_path
from t5prep import sources
from t5prep.dataset import block_index, card, croissant, manifest, record_lengths, rejected_files, row_balance
from t5prep.dataset.block_index import Index
from t5prep.dataset.manifest import Manifest
from t5prep.dataset.record_lengths import Lengths
from t5prep.dataset.row_balance import RejectedFile
from t5prep.dataset.settings import Settings
from t5prep.errors import SourceError
from t5prep.io import atomic_files, paths
from t5prep.prepare import build_manifest
from t5prep.prepare.block_totals import BlockTotals
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.shard_totals import ShardTotals
from t5prep.sources import Resolved


class RejectedPart(NamedTuple):
    """Hold what was written into one file of rejected rows: its number, and how often each reason stands in it."""

    number: int
    file: RejectedFile
    reasons: collections.Counter[str]


def write_part(number: int, lines: Iterable[bytes], *, parts: int, out: str) -> RejectedPart:
    """Write one of the files of rejected rows from finished JSON lines. Raises OutputError."""
    name = rejected_files.numbered(number, parts)
    different = row_balance.DIFFERENT_REASONS if parts == 1 else row_balance.DIFFERENT_REASONS // 16
    with paths.whole(paths.at(out, name)) as file:
        return RejectedPart(number, *row_balance.write_rejected(file, lines, name=name, different=different))


@dataclasses.dataclass(frozen=True)
class JoinRejected:
    """Join the rejected rows of blocks and those that shards left out, which are in files of this machine."""

    spool: str
    out: str

    def __call__(self, written: ShardTotals) -> list[RejectedPart]:
        """Return the files that were written. Raises OutputError."""
        rejected = Path(self.spool) / gather.REJECTED
        size = rejected.stat().st_size if rejected.exists() else 0
        size += sum(path.stat().st_size for path in self._left_out(written))
        left_out = itertools.chain.from_iterable(map(_lines, self._left_out(written)))
        lines = itertools.chain(gather.rejected_lines(self.spool), left_out)
        parts = rejected_files.count(size)
        if parts == 1:
            return [write_part(0, lines, parts=1, out=self.out)]
        places = [Path(self.spool) / "rejected-parts" / str(number) for number in range(parts)]
        _distribute(lines, places)
        return [write_part(number, _lines(path), parts=parts, out=self.out) for number, path in enumerate(places)]

    def _left_out(self, written: ShardTotals) -> Iterator[Path]:
        """Yield the files of rows that shards left out, in the order of the shards' names."""
        for name in sorted(shard.name for split in written.splits.values() for shard in split.shards()):
            path = left_out_path(self.spool, name)
            if path.exists():
                yield path


def _lines(path: Path) -> Iterator[bytes]:
    with atomic_files.open_scratch(path) as file:
        yield from file


def _distribute(lines: Iterable[bytes], places: Sequence[Path]) -> None:
    """Write each line into the file of its part; the lines of a part keep their order."""
    places[0].parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(open(path, "wb")) for path in places]
        for some in lines:
            for line in some.splitlines(keepends=True):
                files[rejected_files.part_of(line, parts=len(places))].write(line)


@dataclasses.dataclass(frozen=True)
class Finish:
    """Write the index, the user's own task file, the cards, and the manifest.

    `source` comes without its files: the manifest lists those that were hashed. `earlier` are the digests of the datasets
    that rows were compared with.
    """

    job: Job
    source: Resolved
    out: str
    earlier: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __call__(
        self,
        _: None,
        *,
        blocks: BlockTotals,
        written: ShardTotals,
        hashed: Sequence[Hashed],
        rejected: Sequence[RejectedPart],
        repeats: Repeats | None = None,
    ) -> Manifest:
        """Return the manifest. Raises OutputError where the place cannot be written, SourceError where no row made an example."""
        parts = sorted(rejected, key=lambda part: part.number)
        for hashed_file in hashed:
            sources.check_unchanged(hashed_file.file)
        if not any(blocks.records.values()):
            raise SourceError(no_example(blocks, place=paths.at(self.out, parts[0].file.name)))
        task = staging.task(self.job)
        staging.bring_filter_files(self.job)
        dataset = build_manifest.assemble(
            self.job.settings,
            task,
            facts=build_manifest.task_facts(staging.definition(self.job), task),
            source=self.source,
            files=source_files(hashed),
            tokenizer=staging.tokenizer(self.job),
            written=written,
            blocks=blocks,
            rejected_file=rejected_files.together([part.file for part in parts]),
            leaks=staging.evaluation_sets(self.job),
            rejected_for=sum((part.reasons for part in parts), collections.Counter[str]()),
            index=write_index(written, self.out),
            lengths=write_lengths(written, self.out, settings=self.job.settings),
            repeats=repeats,
            earlier=self.earlier,
        )
        if dataset.task.file:
            paths.write(paths.at(self.out, manifest.TASK_FILE), staging.definition(self.job).code)
        write_cards(dataset, self.out)
        paths.write_pieces(paths.at(self.out, manifest.NAME), dataset.pieces())
        return dataset


def write_cards(dataset: Manifest, out: str) -> None:
    """Write what people and catalogues read of a dataset; a README of the user's own stays. Raises OutputError."""
    paths.write_pieces(paths.at(out, croissant.NAME), croissant.pieces(dataset))
    place = paths.at(out, card.NAME)
    try:
        ours = card.is_ours(paths.read(place))
    except FileNotFoundError:
        ours = True
    if ours:
        paths.write(place, card.text(dataset).encode())


def write_index(written: ShardTotals, out: str) -> Index:
    """Write the index of all shards, and return what the manifest says of it. Raises OutputError."""
    splits = dict(sorted(written.splits.items()))
    blocks = itertools.chain.from_iterable(own.blocks() for own in splits.values())
    return block_index.write(out, blocks, every={name: own.every for name, own in splits.items()})


def write_lengths(written: ShardTotals, out: str, *, settings: Settings) -> Lengths | None:
    """Write the lengths of all records, and return what the manifest says of them; None where none were kept.

    Raises OutputError.
    """
    measured = {name: own for name, own in written.splits.items() if own.measured}
    if not any(own.counts.records for own in measured.values()):
        return None
    splits = {name: own.lengths() for name, own in measured.items()}
    return record_lengths.write(out, splits, longest=max(settings.input_length, settings.target_length))


def no_example(blocks: BlockTotals, *, place: str) -> str:
    """Return why there is no example at all, as a sentence; `place` is where the rejected rows are."""
    if blocks.read == blocks.blank:
        return f"the source has no rows{f' but {blocks.blank:,} blank ones' if blocks.blank else ''}."
    why = ", ".join(f"{' '.join(reason.split())} {number:,}" for reason, number in sorted(blocks.reasons.items()))
    blanks = f", {blocks.blank:,} of them blank" if blocks.blank else ""
    return f"no example could be made: {blocks.read:,} rows read{blanks}, all rejected ({why}). Each row's reason is in {place}"


def source_files(hashed: Iterable[Hashed]) -> list[manifest.SourceFile]:
    """Return what the manifest says of the source's files, in the order of their names."""
    return sorted(
        (manifest.SourceFile(file.name, file.bytes, sha256) for file, sha256 in hashed), key=lambda file: file.name
    )
