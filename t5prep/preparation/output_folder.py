"""Claim the folder of a dataset: one run at a time, no foreign files overwritten, another dataset replaced only on request."""

import contextlib
import dataclasses
import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from t5prep.dataset import dataset_card, manifest, rejected_rows, settings, shard_files, verify
from t5prep.dataset.settings import Settings
from t5prep.errors import DatasetError, OutputError, UsageError
from t5prep.io import atomic_files, gcs

# This file exists while a run is unfinished. It is locked while that run is alive.
MARKER = gcs.MARKER
SPOOL = f"{atomic_files.UNFINISHED}spool"
# Prefix of the folder with the cached results of an engine's job.
CACHE_PREFIX = f"{atomic_files.UNFINISHED}kept-"


class Identity(NamedTuple):
    """The facts that decide whether two preparations make the same dataset. All are known before a run.

    * `tokenizer`: the SHA-256 of its model.
    * `task_sha256`: the SHA-256 of the user's task file; "" for an installed task.
    * `files`: name and bytes of each source file.
    """

    settings: Settings
    tokenizer: str
    task_sha256: str
    files: list[tuple[str, int]]


def resolved(out: str) -> Path:
    """Return the path of a folder with symbolic links resolved. Raises OutputError for a link that leads back to itself."""
    folder = Path(os.path.realpath(out))  # a circular link is returned unresolved
    if any(os.path.islink(path) for path in (folder, *folder.parents)):
        raise OutputError(f"{out} is a link that leads back to itself. Choose another --out.", code="output.link-loop")
    return folder


def refuse_inside(out: str, *, source: str) -> None:
    """Raise OutputError if `out` is inside the source folder, or is the root of the disk.

    The next run would read the dataset as a part of its source. The root of the disk cannot be renamed.
    """
    if gcs.is_gs(out):
        return
    if not resolved(out).name:
        raise OutputError(
            f"{out} is the root of the disk. Choose a folder: --out {os.path.join(out, 'data')}",
            code="output.root-folder",
        )
    if not os.path.isdir(source):
        return
    if resolved(out).is_relative_to(Path(source).resolve()):
        raise OutputError(
            f"--out {out} is inside the source {source}, so the next run would read the output of this "
            "run. Choose a folder outside the source.",
            code="output.inside-source",
        )


@contextlib.contextmanager
def claimed_folder(out: str | Path, *, new_identity: Identity, resumes: bool = False) -> Iterator[None]:
    """Claim and clean the folder or prefix `out` for the body. `new_identity` is that of the dataset to write.

    A finished dataset is only prepared again if it is the same one. Remains of an unfinished run are removed. With
    `resumes`, its shards and cached results are kept, because this run resumes with them. Raises OutputError if `out`
    holds anything else.
    """
    if "://" in str(out) and not gcs.is_gs(out):
        scheme = str(out).partition("://")[0]
        raise OutputError(
            f"--out {scheme}://… is not supported. Choose a directory, or gs://BUCKET/NAME.",
            code="output.unsupported-scheme",
        )
    with _bucket(str(out), new_identity) if gcs.is_gs(out) else _directory(Path(out), new_identity, resumes=resumes):
        yield


def refuse_another(out: str, *, new_identity: Identity) -> None:
    """Raise OutputError if `out` holds another dataset or foreign files, without creating anything."""
    existing_names = set(gcs.objects(out)) if gcs.is_gs(out) else set()
    if not gcs.is_gs(out) and Path(out).is_dir():
        existing_names = {path.name for path in Path(out).iterdir()}
    _refuse_foreign(out if gcs.is_gs(out) else Path(out), existing_names, new_identity)


@contextlib.contextmanager
def scratch(out: str | Path) -> Iterator[str]:
    """Yield a local folder for scratch files: inside of `out`, or a temporary folder if `out` is on gs://."""
    if not gcs.is_gs(out):
        yield str(Path(out) / SPOOL)
        return
    with atomic_files.temporary_folder() as folder:
        yield folder


@contextlib.contextmanager
def _bucket(out: str, new_identity: Identity) -> Iterator[None]:
    """Claim a prefix of a bucket.

    Readers open the manifest first. So without a manifest, shards may be replaced in place, and stale ones are
    deleted last.
    """
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
    """Return the names of shards that are not in the manifest of the finished dataset, because another run left them."""
    shard_names = {shard.name for shard in manifest.load(out).shards}
    return shard_files.strays(names, shard_names)


@contextlib.contextmanager
def _directory(out: Path, new_identity: Identity, *, resumes: bool) -> Iterator[None]:
    """Claim a folder by locking its marker file. The lock ends with the process, even if it is killed.

    `run.lock_run` and `predict.AnswerFile` share only `atomic_files.lock`, because here the marker also shows later that
    the files are those of a dataset, and what a killed run left is removed by the rules of a dataset.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(out, {path.name for path in out.iterdir()}, new_identity)
        marker = os.open(out / MARKER, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise atomic_files.write_error(error, out) from error
    try:
        busy = f"Another t5prep is preparing {out}. Wait for it, or choose another --out."
        atomic_files.lock(marker, busy=busy)
        # After locking: another run's files must not be removed.
        _sweep(out, resumes=resumes)
        yield
        _sweep_unfinished(out)
        if resumes:
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
    """Return a digest of an identity, which is equal for equal identities."""
    # The number of shards is excluded, because `settings.differences` ignores it, too.
    chosen = dataclasses.replace(new_identity.settings, shards=None)
    return hashlib.sha256(repr(new_identity._replace(settings=chosen)).encode()).hexdigest()


def _refuse_foreign(out: str | Path, entries: set[str], new_identity: Identity) -> None:
    """Raise OutputError if the names `entries` in `out` show another dataset or foreign files."""
    foreign = sorted(
        name for name in entries if not is_of_dataset(name) and not name.startswith(atomic_files.UNFINISHED)
    )
    if manifest.NAME in entries:
        try:
            dataset = manifest.load(out)
        except DatasetError:
            raise OutputError(
                f"{out} contains a manifest that cannot be read. Choose another --out, or move {out} away.",
                code="output.damaged-dataset",
            ) from None
        existing_identity = identity(dataset)
        facts = {"tokenizer": "another tokenizer", "task_sha256": "another file of the task", "files": "another source"}
        differences = [
            words for name, words in facts.items() if getattr(existing_identity, name) != getattr(new_identity, name)
        ]
        if differences := [*settings.differences(existing_identity.settings, new_identity.settings), *differences]:
            # A folder in a bucket cannot be renamed, so --overwrite cannot replace it.
            instead = "remove the dataset." if gcs.is_gs(out) else "replace the dataset: --overwrite"
            raise OutputError(
                f"{out} holds another dataset (task {dataset.settings.task}, {dataset.records:,} records), prepared with "
                f"{', '.join(differences)}. Choose another --out, or {instead}",
                code="output.different-settings",
            )
    elif entries and (foreign or MARKER not in entries):
        raise OutputError(
            f"{out} is not empty and not a dataset of t5prep: it contains "
            f"{(foreign or sorted(entries))[0]}. Choose another --out.",
            code="output.foreign-file",
        )


def is_of_dataset(name: str) -> bool:
    """Check whether a file name belongs to a dataset."""
    is_side_file = name in (*verify.SIDE_FILES, manifest.NAME) or manifest.is_filter_file(name)
    return is_side_file or shard_files.is_shard(name) or rejected_rows.is_rejected(name)


def _sweep(out: Path, *, resumes: bool) -> None:
    """Remove the remains of an earlier run. The manifest goes first, so that it never describes missing shards."""
    (out / manifest.NAME).unlink(missing_ok=True)
    _sweep_unfinished(out, but=CACHE_PREFIX if resumes else MARKER)
    for path in out.iterdir():
        if resumes and shard_files.is_shard(path.name):
            continue
        if is_of_dataset(path.name) and (path.name != dataset_card.NAME or dataset_card.is_ours(path.read_bytes())):
            path.unlink()


def _sweep_unfinished(out: Path, *, but: str = MARKER) -> None:
    """Remove the scratch folder and unfinished files of killed workers, except for names that begin with `but`."""
    with os.scandir(out) as entries:
        unfinished = [entry for entry in entries if entry.name.startswith(atomic_files.UNFINISHED)]
    for entry in unfinished:
        if entry.name.startswith(but):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name != MARKER:
            os.unlink(entry.path)


# Replacement of a dataset (`--overwrite`): the old one is moved away only when the new one is complete.

# Suffixes of the folders beside `out`: of the new dataset until it is complete, and of the old one afterwards.
NEW, OLD = ".t5prep-new", ".replaced"


@contextlib.contextmanager
def claimed(out: str, *, new_identity: Identity, overwrite: bool, resumes: bool = False) -> Iterator[str]:
    """Yield the folder to write to: `out`, or a folder beside it if `out` holds another dataset and `overwrite` is set.

    When the new dataset is complete, the old folder is renamed to `OUT.replaced`, and the new one takes its place. A
    run that is killed earlier leaves the old dataset unchanged, and the same command resumes. Without `overwrite`,
    another dataset is refused. `resumes` is that of `claimed_folder`. Raises OutputError for a folder with foreign
    files, and UsageError for a bucket.
    """
    if overwrite and gcs.is_gs(out):
        raise UsageError(
            f"--overwrite cannot replace {out}, because a bucket cannot rename folders. Choose another --out.",
            code="output.unsupported-overwrite",
        )
    final = resolved(out)
    new = final.with_name(final.name + NEW)
    if overwrite and not final.exists() and (new / manifest.NAME).is_file():
        _move(new, final)  # an earlier run was killed between its two renames
    if not (overwrite and _holds_another(final, out, new_identity)):
        with claimed_folder(out, new_identity=new_identity, resumes=resumes):
            yield out
        return
    with claimed_folder(new, new_identity=new_identity, resumes=resumes):
        yield str(new)
    old = _free_path(final)
    _move(final, old)
    _move(new, final)
    print(f"The earlier dataset of {out} was moved to {old}. Remove {old} when you no longer need it.", file=sys.stderr)


def _holds_another(final: Path, out: str, new_identity: Identity) -> bool:
    """Check whether `final` holds another dataset. Raises OutputError if it also holds other files.

    `out` is the folder as the user named it.
    """
    if not (final / manifest.NAME).is_file():
        return False
    try:
        if identity(manifest.load(final)) == new_identity:
            return False
    except DatasetError:
        return False  # an unreadable manifest: `claimed_folder` refuses it
    entries = sorted(path.name for path in final.iterdir())
    if MARKER in entries:
        raise OutputError(
            f"--overwrite cannot replace {out}, because another t5prep is preparing it or was killed "
            "there. Wait for it, or choose another --out.",
            code="output.locked",
        )
    if foreign_files := [name for name in entries if not is_of_dataset(name)]:
        raise OutputError(
            f"--overwrite cannot replace {out}, because it contains {foreign_files[0]}, which is not part of "
            f"a dataset. Move {foreign_files[0]} away, or choose another --out.",
            code="output.foreign-file",
        )
    return True


def _free_path(final: Path) -> Path:
    """Return a free path beside a folder: `data.replaced`, `data.replaced-2`, and so on."""
    number, old = 1, final.with_name(final.name + OLD)
    while os.path.lexists(old):
        number += 1
        old = final.with_name(f"{final.name}{OLD}-{number}")
    return old


def _move(source: Path, to: Path) -> None:
    """Rename a folder. Raises OutputError with both paths."""
    try:
        source.rename(to)
    except OSError as error:
        raise OutputError(
            f"{source} cannot be renamed to {to} ({error.strerror}). Nothing was removed.", code="output.rename-failure"
        ) from error
