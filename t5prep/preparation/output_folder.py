"""Claim the folder that a dataset is prepared into: one run at a time, never over other files, another dataset only when asked."""

import contextlib
import dataclasses
import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from t5prep.dataset import card, manifest, rejected_rows, settings, shard_files, verify
from t5prep.dataset.settings import Settings
from t5prep.errors import DatasetError, OutputError, UsageError
from t5prep.io import atomic_files, gcs

# While this file is there, a run has begun and not ended; while it is locked, that run is alive.
MARKER = gcs.MARKER
SPOOL = f"{atomic_files.UNFINISHED}spool"
# How the folder begins in which an engine's job keeps what it made, for the same job again.
CACHE_PREFIX = f"{atomic_files.UNFINISHED}kept-"


class Identity(NamedTuple):
    """The facts that make two preparations the same dataset, as far as they are known before running one.

    `tokenizer` is its SHA-256, `task_sha256` that of the user's own task file, and `files` are names and bytes.
    """

    settings: Settings
    tokenizer: str
    task_sha256: str
    files: list[tuple[str, int]]


def resolved(out: str) -> Path:
    """Return a folder without links. Raises OutputError for a link that leads back to itself."""
    folder = Path(os.path.realpath(out))  # leaves such a link as it is
    if any(os.path.islink(path) for path in (folder, *folder.parents)):
        raise OutputError(f"{out} is a link that leads back to itself. Choose another --out.")
    return folder


def refuse_inside(out: str, *, source: str) -> None:
    """Raise OutputError for a place inside the folder that is read, where the next run would read what this one writes.

    And for the root of the disk, which cannot be replaced as a whole.
    """
    if gcs.is_gs(out):
        return
    if not resolved(out).name:
        raise OutputError(f"{out} is the root of the disk. Choose a folder in it: --out {os.path.join(out, 'data')}")
    if not os.path.isdir(source):
        return
    if resolved(out).is_relative_to(Path(source).resolve()):
        raise OutputError(
            f"--out {out} lies inside the source {source}, and the next run would read what this one writes. Choose a "
            "place beside it."
        )


@contextlib.contextmanager
def claimed_folder(out: str | Path, *, new_identity: Identity, goes_on: bool = False) -> Iterator[None]:
    """Yield a directory or prefix that is claimed and cleaned of an earlier run; a dataset there is compared with `new_identity`.

    A finished dataset is prepared again in place only if it is the same one (same choices, same source). What an
    unfinished run left behind is swept away, but shards and what is kept where this run `goes_on` with them. Raises
    OutputError for a place that holds anything else.
    """
    if "://" in str(out) and not gcs.is_gs(out):
        scheme = str(out).partition("://")[0]
        raise OutputError(f"--out {scheme}://…: a dataset is written into a directory or into gs://BUCKET/NAME.")
    with _bucket(str(out), new_identity) if gcs.is_gs(out) else _directory(Path(out), new_identity, goes_on=goes_on):
        yield


def refuse_another(out: str, *, new_identity: Identity) -> None:
    """Raise OutputError for a place that holds another dataset or anything else; nothing is made there."""
    existing_names = set(gcs.objects(out)) if gcs.is_gs(out) else set()
    if not gcs.is_gs(out) and Path(out).is_dir():
        existing_names = {path.name for path in Path(out).iterdir()}
    _refuse_foreign(out if gcs.is_gs(out) else Path(out), existing_names, new_identity)


@contextlib.contextmanager
def scratch(out: str | Path) -> Iterator[str]:
    """Yield a directory of this machine for scratch files: beside the shards, where these are in a directory."""
    if not gcs.is_gs(out):
        yield str(Path(out) / SPOOL)
        return
    with atomic_files.temporary_folder() as folder:
        yield folder


@contextlib.contextmanager
def _bucket(out: str, new_identity: Identity) -> Iterator[None]:
    """Claim a prefix. No object is read before the manifest, so shards are replaced in place and stale ones go last."""
    out = out.rstrip("/")
    existing_objects = gcs.objects(out)
    _refuse_foreign(out, set(existing_objects), new_identity)
    gcs.claim(out, {"identity": _digest(new_identity)})
    if manifest.NAME in existing_objects:
        gcs.delete(f"{out}/{manifest.NAME}", generation=existing_objects[manifest.NAME].generation)
    yield
    for name in _strays(out, gcs.objects(out)):
        gcs.delete(f"{out}/{name}")
    for folder in (SPOOL, CACHE_PREFIX):
        gcs.delete_all(f"{out}/{folder}")
    gcs.release(out)


def _strays(out: str | Path, names: Iterable[str]) -> list[str]:
    """Return the shards that the finished dataset does not name: another run left them."""
    shard_names = {shard.name for shard in manifest.load(out).shards}
    return shard_files.strays(names, shard_names)


@contextlib.contextmanager
def _directory(out: Path, new_identity: Identity, *, goes_on: bool) -> Iterator[None]:
    try:
        out.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(out, {path.name for path in out.iterdir()}, new_identity)
        marker = os.open(out / MARKER, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutputError(atomic_files.explain(error, out)) from error
    try:
        busy = f"{out} is being prepared by another t5prep right now. Wait for it, or choose another --out."
        atomic_files.lock(marker, busy=busy)
        _sweep(out, goes_on=goes_on)
        yield
        _sweep_unfinished(out)
        if goes_on:
            for name in _strays(out, os.listdir(out)):
                (out / name).unlink()
        (out / MARKER).unlink(missing_ok=True)
    finally:
        os.close(marker)


def identity(dataset: manifest.Manifest) -> Identity:
    """Return the identity of a prepared dataset."""
    files = sorted((file.name, file.bytes) for file in dataset.source.files)
    return Identity(dataset.settings, dataset.tokenizer.sha256, dataset.task.sha256, files)


def _digest(new_identity: Identity) -> str:
    """Return the digest of an identity: equal for identities that are equal."""
    chosen = dataclasses.replace(new_identity.settings, shards=None)
    return hashlib.sha256(repr(new_identity._replace(settings=chosen)).encode()).hexdigest()


def _refuse_foreign(out: str | Path, entries: set[str], new_identity: Identity) -> None:
    foreign = sorted(
        name for name in entries if not is_of_dataset(name) and not name.startswith(atomic_files.UNFINISHED)
    )
    if manifest.NAME in entries:
        try:
            dataset = manifest.load(out)
        except DatasetError:
            raise OutputError(
                f"{out} holds a manifest that cannot be read. Choose another --out, or remove it."
            ) from None
        existing_identity = identity(dataset)
        facts = {"tokenizer": "another tokenizer", "task_sha256": "another file of the task", "files": "another source"}
        differences = [
            words for name, words in facts.items() if getattr(existing_identity, name) != getattr(new_identity, name)
        ]
        if differences := [*settings.differences(existing_identity.settings, new_identity.settings), *differences]:
            instead = (
                "remove it." if gcs.is_gs(out) else "replace it: --overwrite"
            )  # nothing in a bucket can be renamed
            raise OutputError(
                f"{out} holds another dataset (task {dataset.settings.task}, {dataset.records:,} records), prepared with "
                f"{', '.join(differences)}. Choose another --out, or {instead}"
            )
    elif entries and (foreign or MARKER not in entries):
        raise OutputError(
            f"{out} is not empty and holds no dataset of t5prep (it holds {(foreign or sorted(entries))[0]}). "
            "Choose another --out."
        )


def is_of_dataset(name: str) -> bool:
    """Return whether a file of this name is part of a dataset."""
    is_side_file = name in (*verify.BESIDE, manifest.NAME) or manifest.is_filter_file(name)
    return is_side_file or shard_files.is_shard(name) or rejected_rows.is_rejected(name)


def _sweep(out: Path, *, goes_on: bool) -> None:
    """Remove what an earlier run left, the manifest first: it never stands over half of its shards."""
    (out / manifest.NAME).unlink(missing_ok=True)
    _sweep_unfinished(out, but=CACHE_PREFIX if goes_on else MARKER)
    for path in out.iterdir():
        if goes_on and shard_files.is_shard(path.name):
            continue
        if is_of_dataset(path.name) and (path.name != card.NAME or card.is_ours(path.read_bytes())):
            path.unlink()


def _sweep_unfinished(out: Path, *, but: str = MARKER) -> None:
    """Remove the spool, and what a worker had begun to write when it was killed, `but` what begins so."""
    with os.scandir(out) as entries:
        unfinished = [entry for entry in entries if entry.name.startswith(atomic_files.UNFINISHED)]
    for entry in unfinished:
        if entry.name.startswith(but):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name != MARKER:
            os.unlink(entry.path)


# Replace a prepared dataset by another one, and move the old one away only when the new one is whole.

# Endings of the folders beside the dataset's: where the new one is prepared, and where the old one goes.
NEW, OLD = ".t5prep-new", ".replaced"


@contextlib.contextmanager
def claimed(out: str, *, new_identity: Identity, overwrite: bool, goes_on: bool = False) -> Iterator[str]:
    """Yield the place where a dataset is written: `out` itself, or a folder beside it where `out` holds another dataset.

    With `overwrite`, another dataset in `out` is replaced: the new one is written beside it, and when it is whole, the
    old folder is renamed to `OUT.replaced` and the new one takes its place. A run that is killed before that leaves the
    old dataset as it is, and the same command goes on (`goes_on`: see `claimed_folder`). Without `overwrite`, another
    dataset is refused. Raises OutputError for a folder that holds files of anyone else, and UsageError for a bucket.
    """
    if overwrite and gcs.is_gs(out):
        raise UsageError(f"--overwrite: {out} is in a bucket, where nothing can be renamed. Choose another --out")
    final = resolved(out)
    new = final.with_name(final.name + NEW)
    if overwrite and not final.exists() and (new / manifest.NAME).is_file():
        _move(new, final)  # an earlier run was killed between its two renamings
    if not (overwrite and _holds_another(final, out, new_identity)):
        with claimed_folder(out, new_identity=new_identity, goes_on=goes_on):
            yield out
        return
    with claimed_folder(new, new_identity=new_identity, goes_on=goes_on):
        yield str(new)
    old = _free(final)
    _move(final, old)
    _move(new, final)
    print(f"{out}: the dataset that was here is now in {old}. Remove it when it is not needed.", file=sys.stderr)


def _holds_another(final: Path, out: str, new_identity: Identity) -> bool:
    """Check whether a folder holds another dataset, and nothing else. Raises OutputError if it holds more."""
    if not (final / manifest.NAME).is_file():
        return False
    try:
        if identity(manifest.load(final)) == new_identity:
            return False
    except DatasetError:
        return False  # whose manifest it is cannot be told: it is refused as a stranger's
    entries = sorted(path.name for path in final.iterdir())
    if MARKER in entries:
        raise OutputError(f"--overwrite: {out} is being prepared by another t5prep, or one was killed there.")
    if strangers := [name for name in entries if not is_of_dataset(name)]:
        raise OutputError(
            f"--overwrite: {out} also holds {strangers[0]}, which is not part of a dataset. Move it away, or choose "
            "another --out."
        )
    return True


def _free(final: Path) -> Path:
    """Return a name beside a folder that nothing has yet: `data.replaced`, `data.replaced-2`, and so on."""
    number, old = 1, final.with_name(final.name + OLD)
    while os.path.lexists(old):
        number += 1
        old = final.with_name(f"{final.name}{OLD}-{number}")
    return old


def _move(source: Path, to: Path) -> None:
    """Rename a folder. Raises OutputError that says where the new dataset is."""
    try:
        source.rename(to)
    except OSError as error:
        raise OutputError(f"{source} cannot be renamed to {to} ({error.strerror}). Nothing was removed.") from error
