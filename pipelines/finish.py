"""End a preparation: write the index, the cards, and then the manifest that makes a directory of shards a dataset.

Nothing here imports Beam.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

from pipelines import staging
from pipelines.staging import Job
from pipelines.steps import Hashed, RejectedPart
from t5prep import sources
from t5prep.dataset import card, manifest, rejected_rows, shard_files
from t5prep.dataset.manifest import Manifest
from t5prep.dataset.settings import Settings
from t5prep.dataset.shard_files import Index, Lengths
from t5prep.errors import SourceError
from t5prep.io import paths
from t5prep.prepare import build_manifest
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.shards import ShardTotals
from t5prep.prepare.sort_blocks import BlockTotals
from t5prep.sources import Resolved


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
        staged = staging.of(self.job)
        staged.bring_filter_files()
        dataset = build_manifest.assemble(
            self.job.settings,
            staged.task,
            facts=build_manifest.task_facts(staged.definition, staged.task),
            source=self.source,
            files=source_files(hashed),
            tokenizer=staged.tokenizer,
            written=written,
            blocks=blocks,
            rejected_file=rejected_rows.together([part.file for part in parts]),
            leaks=staged.evaluation_sets,
            rejected_for=sum((collections.Counter(part.reasons) for part in parts), collections.Counter[str]()),
            index=write_index(written, self.out),
            lengths=write_lengths(written, self.out, settings=self.job.settings),
            repeats=repeats,
            earlier=self.earlier,
        )
        if dataset.task.file:
            paths.write(paths.at(self.out, manifest.TASK_FILE), staged.definition.code)
        write_cards(dataset, self.out)
        paths.write_pieces(paths.at(self.out, manifest.NAME), dataset.pieces())
        return dataset


def write_cards(dataset: Manifest, out: str) -> None:
    """Write what people and catalogues read of a dataset; a README of the user's own stays. Raises OutputError."""
    paths.write_pieces(paths.at(out, card.CROISSANT), card.croissant(dataset))
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
    return shard_files.write_index(out, blocks, every={name: own.every for name, own in splits.items()})


def write_lengths(written: ShardTotals, out: str, *, settings: Settings) -> Lengths | None:
    """Write the lengths of all records, and return what the manifest says of them; None where none were kept.

    Raises OutputError.
    """
    measured = {name: own for name, own in written.splits.items() if own.measured}
    if not any(own.counts.records for own in measured.values()):
        return None
    splits = {name: own.lengths() for name, own in measured.items()}
    return shard_files.write_lengths(out, splits, longest=max(settings.input_length, settings.target_length))


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
