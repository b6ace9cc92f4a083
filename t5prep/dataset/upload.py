"""A prepared dataset into a bucket: every object checked end to end, nothing sent twice, the manifest last."""

import concurrent.futures
import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

from t5prep.dataset import manifest, shard_names
from t5prep.dataset.verify import verify
from t5prep.errors import DatasetError, OutputError
from t5prep.io import gcs, lock
from t5prep.io.resumable_upload import Conflict, Upload

# What a dataset's directory holds besides its shards and its manifest.
_BESIDE = ("rejected.jsonl", "report.html")


@dataclasses.dataclass(frozen=True)
class Uploaded:
    """What an upload did, by the names of objects. `stale` are shards of another dataset that are still there."""

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
    started: Callable[[int], None] = lambda total: None,
    progress: Callable[[int], None] = lambda sent: None,
) -> Uploaded:
    """Uploads a dataset that verifies; what is there already with the same CRC32C is not sent again.

    `started` hears how many bytes are to be sent, `progress` every few megabytes that the server has (from many
    threads). `delete_stale` removes shards under the prefix that the manifest does not name.
    Raises DatasetError for a dataset that does not verify, OutputError for a bucket that cannot take it.
    """
    to = to.rstrip("/")
    gcs.split(to)
    if gcs.is_gs(data):
        raise DatasetError(f"{data} is in a bucket already. Copy it there: gcloud storage rsync -r {data} {to}")
    made, folder = verify(data), Path(data)
    shards = [shard.name for split in made.splits.values() for shard in split.shards]
    names = [*shards, *(name for name in _BESIDE if (folder / name).is_file())]
    checksums = {name: _crc32c(folder / name) for name in [*names, manifest.NAME]}

    there = gcs.objects(to)
    missing = [name for name in names if name not in there or there[name].crc32c != checksums[name]]
    stale = shard_names.strays(there, shards)
    whole = manifest.NAME in there and there[manifest.NAME].crc32c == checksums[manifest.NAME] and not missing
    sent = [] if whole else [*missing, manifest.NAME]
    started(sum((folder / name).stat().st_size for name in sent))
    if not whole:
        _claim(to, made, there)
        if manifest.NAME in there:
            # No moment shows a manifest over shards that are not its own.
            gcs.delete(f"{to}/{manifest.NAME}", generation=there[manifest.NAME].generation)
        _send(folder, to, missing, checksums=checksums, there=there, workers=workers, progress=progress)
    if delete_stale:
        for name in stale:
            gcs.delete(f"{to}/{name}", generation=there[name].generation)
    if not whole:
        _check(to, names, checksums)
        _send(folder, to, [manifest.NAME], checksums=checksums, there={}, workers=1, progress=progress)
    if not whole or lock.MARKER in there:
        lock.release(to)
    return Uploaded(
        uri=to,
        digest=made.digest,
        bytes=sum((folder / name).stat().st_size for name in sent),
        sent=sent,
        skipped=[name for name in names if name not in sent] + ([manifest.NAME] if whole else []),
        deleted=stale if delete_stale else [],
        stale=[] if delete_stale else stale,
    )


def _crc32c(path: Path) -> str:
    with open(path, "rb") as file:
        return gcs.crc32c(file)


def _claim(to: str, made: manifest.Manifest, there: dict[str, gcs.Object]) -> None:
    """Refuses a prefix that holds, or is being given, another dataset; else says that this one is on its way."""
    if manifest.NAME in there:
        where = f"{to}/{manifest.NAME}"
        other = manifest.loads(gcs.read(where), where=where)
        if other.settings.task != made.settings.task:
            raise OutputError(
                f"{to} holds another dataset (task {other.settings.task}, digest {other.digest[:12]}…). "
                f"Choose another prefix, or remove it: gcloud storage rm -r {to}"
            )
    lock.claim(to, {"digest": made.digest, "task": made.settings.task})


def _send(
    folder: Path,
    to: str,
    names: list[str],
    *,
    checksums: dict[str, str],
    there: dict[str, gcs.Object],
    workers: int,
    progress: Callable[[int], None],
) -> None:
    """Sends some files side by side; the first that fails stops the others."""
    stop = threading.Event()

    def send(name: str) -> None:
        uri, generation = f"{to}/{name}", there[name].generation if name in there else 0
        try:
            Upload(folder / name, uri, crc32c=checksums[name], generation=generation, sent=progress, stop=stop).run()
        except Conflict:
            # Our own answer may have been lost, or the same dataset is being uploaded twice: then all is well.
            now = gcs.objects(to).get(name)
            if now is None or now.crc32c != checksums[name]:
                raise OutputError(
                    f"{uri} was changed by somebody else while it was uploaded. Make sure that only one upload writes "
                    f"to {to}, then run it again."
                ) from None

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        try:
            for done in concurrent.futures.as_completed([pool.submit(send, name) for name in names]):
                done.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _check(to: str, names: list[str], checksums: dict[str, str]) -> None:
    """What the bucket says it holds, once more, before the manifest vouches for it."""
    there = gcs.objects(to)
    for name in names:
        if name not in there or there[name].crc32c != checksums[name]:
            raise OutputError(f"{to}/{name} was removed or changed while others were uploaded. Run the upload again.")
