"""The directory a dataset is prepared into: claimed by one run at a time, and never somebody else's."""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from t5prep import files, manifest
from t5prep.errors import DatasetError, OutputError

# Its presence says that a run has begun and not ended; the lock on it, that the run is alive.
MARKER = f"{files.UNFINISHED}t5prep"
SPOOL = f"{files.UNFINISHED}spool"
_OURS = re.compile(r".+\.tfrecord-\d{5}-of-\d{5}|rejected\.jsonl|report\.html|manifest\.json")


@contextlib.contextmanager
def claimed(out: Path, *, same: object) -> Iterator[Path]:
    """The directory, swept of an earlier run and locked; `same` is compared with what a finished dataset there says.

    A finished dataset is prepared again in place only if it is the same one (same choices, same source). What an
    unfinished run left behind is swept away. Raises OutputError for a directory that holds anything else.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(out, same)
        marker = os.open(out / MARKER, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutputError(files.explain(error, out)) from error
    try:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(
                f"{out} is being prepared by another t5prep right now. Wait for it, or choose another --out."
            ) from None
        _sweep(out)
        yield out
        shutil.rmtree(out / SPOOL, ignore_errors=True)
        (out / MARKER).unlink(missing_ok=True)
    finally:
        os.close(marker)


def identity(made: manifest.Manifest) -> tuple:
    """What makes two preparations the same dataset, as far as it can be told before running one."""
    return (
        made.task,
        made.options,
        made.tokenizer.sha256,
        made.layout,
        made.lengths,
        (made.truncation.policy, made.truncation.marker),
        made.seed,
        sorted((file.name, file.bytes) for file in made.source.files),
    )


def _refuse_foreign(out: Path, same: object) -> None:
    entries = {path.name for path in out.iterdir()}
    foreign = sorted(name for name in entries if not _OURS.fullmatch(name) and not name.startswith(files.UNFINISHED))
    if manifest.NAME in entries:
        try:
            made = manifest.load(out)
        except DatasetError:
            raise OutputError(
                f"{out} holds a manifest that cannot be read. Choose another --out, or remove it."
            ) from None
        if identity(made) != same:
            raise OutputError(
                f"{out} holds another dataset (task {made.task}, {_records(made):,} records, digest {made.digest[:12]}…). "
                "Choose another --out, or remove it."
            )
    elif entries and (foreign or MARKER not in entries):
        raise OutputError(
            f"{out} is not empty and holds no dataset of t5prep (it holds {(foreign or sorted(entries))[0]}). "
            "Choose another --out."
        )


def _records(made: manifest.Manifest) -> int:
    return sum(split.records for split in made.splits.values())


def _sweep(out: Path) -> None:
    """Removes what an earlier run left: the manifest first, so that no moment shows it over half of its shards."""
    (out / manifest.NAME).unlink(missing_ok=True)
    for path in out.iterdir():
        if path.name == MARKER:
            continue
        if path.is_dir() and path.name.startswith(files.UNFINISHED):
            shutil.rmtree(path)
        elif _OURS.fullmatch(path.name) or path.name.startswith(files.UNFINISHED):
            path.unlink()
