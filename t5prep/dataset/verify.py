"""Verify every file of a dataset against its manifest."""

import collections
import concurrent.futures
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from t5prep._native import decode_rows
from t5prep.dataset import dataset_card, manifest, rejected_rows, shard_files, tfrecord
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.shard_files import REPAIR_ADVICE
from t5prep.errors import DatasetError
from t5prep.io import paths

# Threads. Hashing releases the interpreter's lock, and a bucket answers many requests at once.
_SIDE_BY_SIDE = 8
# Bytes of one read.
_PIECE = 1 << 20
# Files that a dataset may have beside its shards, its rejected rows and copies of filters' files.
_OF_SHARDS = (shard_files.INDEX, shard_files.LENGTHS, shard_files.ORIGINS)
SIDE_FILES = ("report.html", *_OF_SHARDS, dataset_card.NAME, manifest.TASK_FILE)


def verify(
    data: str | Path,
    *,
    started: Callable[[int], None] = lambda total: None,
    progress: Callable[[int], None] = lambda read: None,
) -> manifest.Manifest:
    """Check all files of the dataset `data`, in a directory or under gs://, against its manifest, and return the manifest.

    All shards are read: their sizes, their SHA-256 and their token ids are checked. `started` is called with the number of
    bytes to read, and `progress` with the bytes of each piece, from many threads. Raises DatasetError, which names the
    first file that differs, OutputError if a bucket cannot be read.
    """
    opened = Dataset(data)
    check(opened, started=started, progress=progress)
    return opened.manifest


def check(
    opened: Dataset,
    *,
    started: Callable[[int], None] = lambda total: None,
    progress: Callable[[int], None] = lambda read: None,
) -> None:
    """Check all files of an opened dataset, as `verify` does. Cheap checks come before reading all shards."""
    dataset, folder = opened.manifest, opened.folder
    files = paths.names(folder)
    shards = dataset.shards
    stray = shard_files.strays(files, (shard.name for shard in shards))
    if stray:
        raise DatasetError(
            f"The manifest does not name the shard {opened.path_of(stray[0])}. Remove the file, or prepare the "
            "dataset again.",
            code="dataset.stray-shard",
        )
    check_rows(opened)
    if dataset.task.file and manifest.TASK_FILE in files:
        path = opened.path_of(manifest.TASK_FILE)
        dataset.task.check_code(paths.read(path), path=path)
    for file, name in dataset.filter_names.items():
        if name in files:
            path = opened.path_of(name)
            dataset.check_filter(paths.read(path), file=file, path=path)
    pages: dict[str, list[tuple[int, int]]] = {}
    if dataset.index:
        for name, sizes in opened.pages.items():
            every, of_split = dataset.index.every[name], dataset.splits[name].shards
            pages |= {
                shard.name: list(_pieces(shard, page_sizes, every))
                for shard, page_sizes in zip(of_split, sizes, strict=True)
            }
    records = {name: split.records for name, split in dataset.splits.items()}
    if dataset.lengths:
        shard_files.read_lengths(
            folder, dataset.lengths, records={name: records[name] for name in dataset.lengths.records}
        )
    for name, entries in opened.origins.items():
        least = records[name]
        if len(entries) < least or (len(entries) > least and not dataset.settings.is_packed):
            path = opened.path_of(shard_files.ORIGINS)
            raise DatasetError(
                f"{path} has {len(entries):,} origins for the split {name}, but the split has {least:,} "
                f"records. {REPAIR_ADVICE}",
                code="dataset.altered",
            )
    started(sum(shard.bytes for shard in shards))
    check_shards(opened, pages=pages, progress=progress)
    _check_features(opened)


def _pieces(shard: shard_files.Shard, pages: np.ndarray, every: int) -> Iterator[tuple[int, int]]:
    """Yield (bytes, records) of pieces of a shard, each of complete pages with about `_PIECE` bytes.

    `pages` are the bytes of each page, uint32[pages], and `every` the records in a page.
    """
    records = shard_files.page_records(shard, len(pages), every=every)
    edges = np.flatnonzero(np.diff(np.cumsum(pages, dtype=np.int64) // _PIECE)) + 1
    for sizes, counts in zip(np.split(pages, edges), np.split(records, edges), strict=True):
        yield int(sizes.sum(dtype=np.int64)), int(counts.sum())


def check_shards(
    opened: Dataset,
    *,
    pages: Mapping[str, Sequence[tuple[int, int]]] = {},
    progress: Callable[[int], None] = lambda read: None,
) -> None:
    """Read every shard of a dataset. Raises DatasetError, which names the first shard that differs from the manifest.

    `pages` has the (bytes, records) of the pieces of shards by name, as `_pieces` yields them. The token ids of these
    records are checked; without `pages`, only sizes and checksums are.
    """
    shards = opened.manifest.shards
    with concurrent.futures.ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        check = functools.partial(_check, opened, progress=progress)
        # `map` raises in the order of the shards, so the same shard is named in each run.
        for _ in pool.map(check, shards, [pages.get(shard.name, ()) for shard in shards]):
            pass


def _check_features(opened: Dataset) -> None:
    """Raise DatasetError if the first record of a split has other features than the manifest."""
    dataset, manifest_path = opened.manifest, opened.path_of(manifest.NAME)
    for split in dataset.splits.values():
        for shard in (shard for shard in split.shards if shard.records):
            path = opened.path_of(shard.name)
            try:
                with paths.opened(path) as file:
                    record = tfrecord.parse(next(tfrecord.read(file)))
            except OSError as error:
                raise _unreadable(path, error) from error
            except (ValueError, StopIteration):
                raise DatasetError(
                    f"{path} does not contain valid records. {REPAIR_ADVICE}", code="dataset.altered"
                ) from None
            for name, feature in dataset.features.items():
                values = record.get(name, [] if name == "references" else None)
                if (
                    values is None
                    or feature.shape not in ([None], [len(values)])
                    or (values and isinstance(values[0], bytes) != (feature.dtype == "bytes"))
                ):
                    raise DatasetError(
                        f"The feature {name} of {path} does not match {manifest_path}. {REPAIR_ADVICE}",
                        code="dataset.altered",
                    )
            break


def check_rows(opened: Dataset) -> None:
    """Raise BalanceError if the counts of rows do not add up, DatasetError if the rejected rows differ from the manifest."""
    dataset = opened.manifest
    examples = sum(split.examples for split in dataset.splits.values())
    rejected_rows.check(dataset.rows, examples=examples, rejected=sum(dataset.rejected.values()))
    if dataset.rejected_file is None:
        return
    path = opened.path_of(dataset.rejected_file.name)
    with concurrent.futures.ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        names = rejected_rows.names_of(dataset.rejected_file.name)
        read = list(pool.map(functools.partial(_read_rejected, opened), names))
    rejected_file = rejected_rows.merge_parts([part for part, _ in read])
    lines = sum((counts for _, counts in read), collections.Counter[str]())
    if rejected_file != dataset.rejected_file:
        raise DatasetError(
            f"{path} was altered: it has {rejected_file.lines:,} rows and SHA-256 "
            f"{rejected_file.sha256[:12]}…, but the manifest says {dataset.rejected_file.lines:,} rows "
            f"and {dataset.rejected_file.sha256[:12]}…. {REPAIR_ADVICE}",
            code="dataset.altered",
        )
    for name, rows in dataset.rows.items():
        if lines[name] != rows.rejected + rows.duplicates:
            raise DatasetError(
                f"{path} has {lines[name]:,} rows of {name}, but the manifest says "
                f"{rows.rejected + rows.duplicates:,}. {REPAIR_ADVICE}",
                code="dataset.altered",
            )


def _read_rejected(opened: Dataset, name: str) -> tuple[rejected_rows.RejectedFile, collections.Counter[str]]:
    """Return the description of the file `name` of rejected rows, and its number of lines by source file.

    Raises DatasetError if it is missing.
    """
    try:
        with paths.opened(opened.path_of(name)) as file:
            return rejected_rows.read_rejected(file, name=name)
    except OSError as error:
        raise _unreadable(opened.path_of(name), error) from error


def _check(
    opened: Dataset,
    shard: shard_files.Shard,
    pages: Sequence[tuple[int, int]],
    *,
    progress: Callable[[int], None],
) -> None:
    """Check one shard's size, SHA-256 and token ids. `pages` are (bytes, records) of its pieces. Raises DatasetError."""
    path, read, size, wrong = opened.path_of(shard.name), hashlib.sha256(), 0, ""
    try:
        with paths.opened(path) as file:
            for piece_bytes, records in itertools.chain(pages, itertools.repeat((_PIECE, 0))):
                if not (piece := file.read(piece_bytes)):
                    break
                read.update(piece)
                size += len(piece)
                progress(len(piece))
                if records and not wrong:
                    wrong = _wrong_ids(piece, records, opened.manifest)
    except OSError as error:
        raise _unreadable(path, error) from error
    sha256 = read.hexdigest()
    if size != shard.bytes:
        raise DatasetError(
            f"{path} has {size:,} bytes, but the manifest says {shard.bytes:,}. {REPAIR_ADVICE}", code="dataset.altered"
        )
    if sha256 != shard.sha256:
        raise DatasetError(
            f"{path} has SHA-256 {sha256[:12]}…, but the manifest says {shard.sha256[:12]}…. {REPAIR_ADVICE}",
            code="dataset.altered",
        )
    if wrong:
        raise DatasetError(f"{path} {wrong}. {REPAIR_ADVICE}", code="dataset.altered")


def _wrong_ids(piece: bytes, records: int, dataset: manifest.Manifest) -> str:
    """Return a problem with the token ids of the framed `records` in `piece`, or "" if all are ids of the tokenizer."""
    settings, tokens = dataset.settings, dataset.tokenizer.padded_vocab_size
    lengths = {"input_ids": settings.input_length, "labels": settings.target_length}
    if not dataset.target.has_tokens:
        del lengths["labels"]
    ids = {name: np.empty((records, length), np.int32) for name, length in lengths.items()}
    features = tuple((name.encode(), token_ids, token_ids.shape[1], 0, -1) for name, token_ids in ids.items())
    try:
        places = tfrecord.cut_records([piece], np.array([records]))
    except tfrecord.BrokenPageError:
        return "does not contain valid records"
    if decode_rows((piece,), places, features, None, 0) < records:
        return "contains records that t5prep did not write"
    for name, token_ids in ids.items():
        token_ids[(token_ids == tfrecord.IGNORED_LABEL) & (name == "labels")] = 0
        if token_ids.size and not 0 <= token_ids.min() <= token_ids.max() < tokens:
            invalid_id = token_ids.min() if token_ids.min() < 0 else token_ids.max()
            return f"has the token id {invalid_id:,} in {name}, but the tokenizer has only {tokens:,} tokens"
    return ""


def _unreadable(path: str, error: OSError) -> DatasetError:
    return DatasetError(
        f"{path} cannot be read ({error.strerror or 'not found'}), but the manifest names it. {REPAIR_ADVICE}",
        code="dataset.unreadable",
    )


def names_beside(dataset: manifest.Manifest, folder: Path) -> list[str]:
    """Return the names of the files in `folder` that belong to the dataset, besides shards and manifest."""
    rejected = rejected_rows.names_of(dataset.rejected_file.name) if dataset.rejected_file else [rejected_rows.NAME]
    names = (*rejected, *SIDE_FILES, *dataset.filter_names.values())
    return [name for name in names if (folder / name).is_file()]
