"""Keep what the workers of an engine made, so that a job that is submitted again takes it: Beam itself keeps nothing of a batch.

What a step made of an element is a signed file beside the shards (`io.store`), in a folder whose name says everything
that it depends on: source, settings, tokenizer and code. It is pickled, so only what this user signed is read. Rows lie in
files beside, of which a result says the parts: they are no more read than their shards need.
"""

import contextlib
import dataclasses
import hashlib
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipelines import pieces, steps
from pipelines.steps import Job
from t5prep.errors import OutputError
from t5prep.io import gcs, paths, signed_files
from t5prep.io.store import Store
from t5prep.preparation import output_folder, token_cache

# Counters of results that an earlier run had kept, and of those that this one makes.
FOUND, MADE = "found", "made"
# How the file ends that has the rows of a result.
_ROWS = ".rows"


@dataclasses.dataclass(frozen=True)
class JobResults:
    """The results of one job, in a folder that every worker can reach; `key` signs them. Without a key nothing is kept."""

    folder: str = ""
    key: bytes = b""

    def find(self, name: str, *, file: str = "") -> list[Any] | None:
        """Return the results of that name; None if there are none, or if the `file` that goes with them is another now, or gone.

        Rows may be written twice, with the same bytes, where a worker was thought to be lost: their pieces have checksums.
        """
        with contextlib.suppress(OSError, OutputError):
            if self.key and (content := Store(self.folder, key=self.key).get(name)) is not None:
                version, results = pickle.loads(content)
                if version == (file and paths.version(file)) or file.endswith(_ROWS):
                    return pieces.relocate(results, file)
        return None

    def rows_of(self, name: str) -> str:
        """Return where the rows are stored that go with what is kept under a name."""
        return paths.join(self.folder, f"{name}{_ROWS}")

    def keep(self, name: str, outputs: Iterable[Any], *, file: str = "") -> None:
        """Keep results, and which version of a `file` goes with them. Raises OutputError."""
        if self.key:
            content = pickle.dumps((file and paths.version(file), outputs), pickle.HIGHEST_PROTOCOL)
            Store(self.folder, key=self.key).put(name, content)

    @classmethod
    def of(cls, job: Job, out: str, *, earlier: Iterable[str], fresh: bool) -> "JobResults":
        """Return what is kept of a job beside its shards; results of any other one, or all if it is `fresh`, are removed there.

        `earlier` are the digests of the datasets that rows are compared with.
        """
        key = signed_files.derived_key("kept results")
        if key is None:
            return NOTHING
        hasher = hashlib.blake2b(digest_size=12)
        code = token_cache.digest_of_code(steps.staged_of(job).definition.code)
        for dependency in (job.digest, repr(job.settings), code, *earlier):
            hasher.update(f"{dependency}\0".encode())
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
