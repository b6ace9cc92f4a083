"""Cache the results of workers of an engine, so that a resubmitted job reuses them. Beam itself resumes no batch job.

The results of one element are a signed file (`io.store`) in a folder beside the shards. The folder's name is a digest
of source, settings, tokenizer and code. Results are pickled, so only files with this user's signature are loaded.
Rows are in separate files, and a result names its parts of them, so that a shard reads only its own rows. Why files:
docs/decisions/028-cache-the-results-of-an-engine.md
"""

import contextlib
import dataclasses
import hashlib
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path

from pipelines import pieces, steps
from pipelines.steps import Job
from t5prep.errors import OutputError
from t5prep.io import gcs, paths, signed_files
from t5prep.io.store import Store
from t5prep.preparation import output_folder, token_cache

# Beam metrics: results that were found in the cache, and results that this run computed.
CACHE_HITS, CACHE_MISSES = "found", "made"
# Suffix of the file with the rows of a result.
_ROWS = ".rows"


@dataclasses.dataclass(frozen=True)
class JobResults:
    """The cached results of one job, in a folder that every worker can reach. `key` signs them; an empty key caches nothing."""

    folder: str = ""
    key: bytes = b""

    def find(self, name: str, *, file: str = "") -> list[object] | None:
        """Return the results cached under `name`, or None if there are none or if their `file` was changed or removed.

        The version of a file of rows is not compared. Two workers may write it, with the same bytes, if an engine
        believed the first one lost. The checksums of its pieces are checked on reading.
        """
        with contextlib.suppress(OSError, OutputError):
            if self.key and (content := Store(self.folder, key=self.key).get(name)) is not None:
                version, results = pickle.loads(content)
                if version == (file and paths.version(file)) or file.endswith(_ROWS):
                    return pieces.relocate(results, file)
        return None

    def rows_of(self, name: str) -> str:
        """Return the path of the file with the rows of the results cached under `name`."""
        return paths.join(self.folder, f"{name}{_ROWS}")

    def keep(self, name: str, outputs: Iterable[object], *, file: str = "") -> None:
        """Cache `outputs` under `name`, with the version of the `file` that belongs to them. Raises OutputError."""
        if self.key:
            content = pickle.dumps((file and paths.version(file), outputs), pickle.HIGHEST_PROTOCOL)
            Store(self.folder, key=self.key).put(name, content)

    @classmethod
    def of(cls, job: Job, out: str, *, earlier: Iterable[str], fresh: bool) -> "JobResults":
        """Return the cache of a job beside its shards. `fresh` empties it first.

        On a disk, the caches of other jobs in `out` are removed, too. `earlier` are the digests of the datasets that
        rows are compared with.
        """
        key = signed_files.job_key()
        if key is None:
            return NOTHING
        hasher = hashlib.blake2b(digest_size=12)
        code = token_cache.digest_of_code(steps.staged_of(job).definition.code)
        for dependency in (job.digest, repr(job.settings), code, *earlier):
            hasher.update(f"{dependency}\0".encode())
        # A change of the code in this package may change the pickled results.
        for path in sorted(Path(__file__).parent.glob("*.py")):
            hasher.update(path.read_bytes() + b"\0")
        folder = paths.join(out, f"{output_folder.CACHE_PREFIX}{hasher.hexdigest()}")
        if not gcs.is_gs(out):
            for results_folder in Path(out).glob(f"{output_folder.CACHE_PREFIX}*"):
                if fresh or results_folder != Path(folder):
                    shutil.rmtree(results_folder, ignore_errors=True)
        elif fresh:
            gcs.delete_all(paths.join(out, output_folder.CACHE_PREFIX))
        return cls(folder, key)


NOTHING = JobResults()
