"""Upload a prepared dataset to a bucket (`upload`), or to the Hugging Face Hub (`push`).

In a bucket, every object is checked end to end, and the manifest is written last: readers see a complete dataset or none.
"""

import concurrent.futures
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from t5prep.dataset import dataset_card, manifest, record_table, shard_files, verify
from t5prep.dataset.prepared import Dataset
from t5prep.errors import DatasetError, OutputError
from t5prep.io import atomic_files, gcs, uploads
from t5prep.io.uploads import Conflict, Upload


@dataclasses.dataclass(frozen=True)
class Uploaded:
    """Hold the result of an upload: the names of sent, skipped and deleted objects, and the `bytes` sent.

    `stale` are shards under the prefix that the manifest does not name, and that remain there.
    """

    uri: str
    digest: str
    bytes: int
    sent: list[str]
    skipped: list[str]
    deleted: list[str]
    stale: list[str]


def upload(
    data: str | Path,
    to: str,
    *,
    workers: int = 8,
    delete_stale: bool = False,
    overwrite: bool = False,
    started: Callable[[int], None] = lambda total: None,
    progress: Callable[[int], None] = lambda sent: None,
) -> Uploaded:
    """Verify the dataset `data`, upload it to the prefix `to`, and return what was done.

    Files that the prefix holds with an equal CRC-32C are skipped.

    * workers: the number of files that are sent at once.
    * delete_stale: whether to remove shards under the prefix that the manifest does not name.
    * overwrite: whether to replace another dataset under the prefix.
    * started: called once with the number of bytes to send.
    * progress: called with the number of bytes that the server gained, every few megabytes, from many threads.

    Raises DatasetError if the dataset does not verify, OutputError if the bucket refuses it or holds another dataset.
    """
    to = to.rstrip("/")
    gcs.split(to)
    if gcs.is_gs(data):
        raise DatasetError(
            f"{data} is already in a bucket, but t5prep upload sends a local dataset. Copy the dataset "
            f"directly: gcloud storage rsync -r {data} {to}",
            code="dataset.remote",
        )
    dataset, folder = verify.verify(data), Path(data)
    shards = [shard.name for shard in dataset.shards]
    names = [*shards, *verify.names_beside(dataset, folder), manifest.NAME]
    checksums = {name: _crc32c(folder / name) for name in names}
    remote_objects = gcs.objects(to)
    sent = _missing(checksums, remote_objects)
    stale = shard_files.strays(remote_objects, shards)
    size = sum((folder / name).stat().st_size for name in sent)
    started(size)
    send = functools.partial(_send, folder, to, checksums=checksums, progress=progress)
    # The order makes the prefix correct at each moment: lock, remove the old manifest, send shards, check, send the manifest.
    if sent:
        _claim(to, dataset, remote_objects, overwrite=overwrite)
        if manifest.NAME in remote_objects:
            # Removed before any shard is replaced, so that a manifest is never beside another dataset's shards.
            _delete(to, [manifest.NAME], remote_objects)
        send([name for name in sent if name != manifest.NAME], existing_objects=remote_objects, workers=workers)
    if delete_stale:
        _delete(to, stale, remote_objects)
    if sent:
        _check(to, checksums)
        send([manifest.NAME], existing_objects={}, workers=1)  # replaces nothing: the old manifest is deleted above
    if sent or gcs.MARKER in remote_objects:  # an interrupted upload, which had sent everything, may have left its lock
        gcs.release(to)
    return Uploaded(
        uri=to,
        digest=dataset.digest,
        bytes=size,
        sent=sent,
        skipped=[name for name in checksums if name not in sent],
        deleted=stale if delete_stale else [],
        stale=[] if delete_stale else stale,
    )


def _missing(checksums: Mapping[str, str], remote_objects: Mapping[str, gcs.Object]) -> list[str]:
    """Return the names of the files that the prefix does not hold with an equal checksum.

    If there are any, the manifest is the last of them, because it is removed first and written last.
    """
    missing = [
        name
        for name, crc32c in checksums.items()
        if name not in remote_objects or remote_objects[name].crc32c != crc32c
    ]
    return [*(name for name in missing if name != manifest.NAME), manifest.NAME] if missing else []


def _delete(to: str, names: Iterable[str], remote_objects: Mapping[str, gcs.Object]) -> None:
    """Delete the objects `names` under `to`, each only in the generation of `remote_objects`: no object written since."""
    for name in names:
        gcs.delete(f"{to}/{name}", generation=remote_objects[name].generation)


def _crc32c(path: Path) -> str:
    """Return the CRC-32C of a file in the format of Google Cloud Storage."""
    with open(path, "rb") as file:
        return gcs.crc32c(file)


def _claim(to: str, dataset: manifest.Manifest, remote_objects: dict[str, gcs.Object], *, overwrite: bool) -> None:
    """Lock the prefix `to` for this dataset. Raises OutputError if it holds another dataset, or one is being written there."""
    if manifest.NAME in remote_objects and not overwrite:
        manifest_path = f"{to}/{manifest.NAME}"
        existing_dataset = manifest.loads(gcs.read(manifest_path), location=manifest_path)
        if existing_dataset.digest != dataset.digest:
            raise OutputError(
                f"{to} holds another dataset (task {existing_dataset.settings.task}, {existing_dataset.records:,} records, "
                f"digest {existing_dataset.digest[:12]}…). Choose another prefix, or replace it: --overwrite",
                code="output.different-settings",
            )
    gcs.claim(to, {"digest": dataset.digest, "task": dataset.settings.task})


def _send(
    folder: Path,
    to: str,
    names: list[str],
    *,
    checksums: dict[str, str],
    existing_objects: dict[str, gcs.Object],
    workers: int,
    progress: Callable[[int], None],
) -> None:
    """Send the files `names` from `folder` to `to` in `workers` threads. The first failure stops all.

    `existing_objects` has the objects under `to`, by name: a file replaces exactly this generation.
    """
    stop = threading.Event()

    def send(name: str) -> None:
        """Send one file. A conflict is an error unless the object has this file's bytes."""
        uri, generation = f"{to}/{name}", existing_objects[name].generation if name in existing_objects else 0
        try:
            Upload(folder / name, uri, crc32c=checksums[name], generation=generation, sent=progress, stop=stop).run()
        except Conflict:
            # No conflict if the object has our bytes: the server's answer was lost and the request repeated, or another
            # process uploads the same dataset.
            now = gcs.objects(to).get(name)
            if now is None or now.crc32c != checksums[name]:
                raise OutputError(
                    f"Another program changed {uri} during the upload. Make sure that only one upload writes to "
                    f"{to}, and run the upload again.",
                    code="output.concurrent-change",
                ) from None

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        try:
            for future in concurrent.futures.as_completed([pool.submit(send, name) for name in names]):
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _check(to: str, checksums: Mapping[str, str]) -> None:
    """Raise OutputError unless the prefix holds every file except the manifest, each with its checksum.

    Called just before the manifest is sent: another process may have removed files that this upload skipped.
    """
    remote_objects = gcs.objects(to)
    for name, crc32c in checksums.items():
        if name != manifest.NAME and (name not in remote_objects or remote_objects[name].crc32c != crc32c):
            raise OutputError(
                f"{to}/{name} was removed or changed during the upload. Run the upload again.",
                code="output.concurrent-change",
            )


def push(data: str, *, repo: str, private: bool = False, tokenizer: str | None = None) -> str:
    """Verify the dataset `data`, upload all its files to the Hub's `repo` in one commit, and return the repository's URL.

    First, a table of each split as texts and a card (README.md) are written beside the shards: the Hub shows both. A README
    of the user is not replaced. `tokenizer` decodes the texts, if the one in the manifest cannot be found. Raises
    DatasetError if the dataset does not verify; TokenizerError, UsageError, OutputError.
    """
    folder = manifest.folder_of(data) or "."
    if gcs.is_gs(folder):
        raise DatasetError(
            f"{data} is in a bucket. Copy it here first: gcloud storage cp -r {data} FOLDER", code="dataset.remote"
        )
    opened = Dataset(folder, tokenizer=tokenizer)
    verify.check(opened)
    dataset = opened.manifest
    shards = [shard.name for shard in dataset.shards]
    tables = {name: dataset_card.table_of(name) for name, split in dataset.splits.items() if split.records}
    for split, file in tables.items():
        rows = record_table.records(opened, splits=[split])
        record_table.write(rows, Path(folder) / file, compression="zstd")  # uploading takes longer than compressing
    readme = Path(folder) / dataset_card.NAME
    if not readme.exists() or dataset_card.is_ours(readme.read_bytes()):
        atomic_files.write_whole(readme, dataset_card.text(dataset).encode())
    names = [*shards, *tables.values(), *verify.names_beside(dataset, Path(folder)), manifest.NAME]
    message = f"Dataset prepared by {dataset.created_by}"
    return uploads.upload_to_hub(folder, repo=repo, kind="dataset", private=private, message=message, names=names)
