"""Choose the files that a preparation reads, and with `--limit` their first rows: of each split, or of all files."""

import dataclasses
from collections.abc import Iterator, Sequence

from t5prep.dataset.settings import Settings
from t5prep.reading import blocks, source_files
from t5prep.reading.blocks import BLOCK_BYTES, Block, Pair
from t5prep.sources import RawFile, Resolved
from t5prep.tasks.task import ChosenTask, Corpus


def select_files(source: Resolved, task: ChosenTask, settings: Settings) -> source_files.Selection:
    """Return the files of a source that a preparation reads, with their splits and messages."""
    return source_files.select(
        source,
        kind=settings.format or task.task.corpus.format,
        split_files=settings.split_files,
        skip_files=settings.skip_files,
        draw_splits=bool(settings.splits or settings.split_column),
        any_format=bool(task.pairs),
    )


@dataclasses.dataclass(frozen=True)
class LimitedFile:
    """A file or a pair of files, and the number of its rows to read (None: all)."""

    element: RawFile | Pair
    rows: int | None = None


def limited_files(files: Sequence[RawFile], settings: Settings, task: ChosenTask) -> Iterator[LimitedFile]:
    """Yield the files, paired, each with its number of rows. With a limit, files are scanned until it is reached.

    Raises SourceError for a file that cannot be read or that has no partner.
    """
    elements = blocks.match(files, task.pairs)
    if settings.limit is None:
        yield from map(LimitedFile, elements)
        return
    file_splits = {} if settings.splits else source_files.splits_of(files)
    remaining_rows = dict.fromkeys(file_splits.values(), settings.limit) or {"": settings.limit}
    for element in elements:
        split = file_splits.get(blocks.files(element)[0].name, "")
        rows = 0
        for block in scan(LimitedFile(element, remaining_rows[split]), settings, task.task.corpus):
            rows += block.rows
        remaining_rows[split] -= rows
        yield LimitedFile(element, rows)


def scan(
    file: LimitedFile,
    settings: Settings,
    corpus: Corpus,
    *,
    block_bytes: int = BLOCK_BYTES,
    content: bytes | None = None,
) -> Iterator[Block]:
    """Yield the blocks of a file or pair (blocks.scan_element) up to its row limit. Raises SourceError."""
    remaining_rows = file.rows
    if remaining_rows == 0:
        return
    for block in blocks.scan_element(
        file.element, settings.file_options, otherwise=corpus.format, block_bytes=block_bytes, content=content
    ):
        if remaining_rows is None:
            yield block
            continue
        yield block.head(remaining_rows)
        remaining_rows -= min(block.rows, remaining_rows)
        if not remaining_rows:
            return
