"""Keep what the workers of an engine made, so that a job that is submitted again takes it: Beam itself keeps nothing of a batch.

What a step made of an element is a signed file beside the shards (`io.store`), in a folder whose name says everything
that it depends on: source, settings, tokenizer and code. It is pickled, so only what this user signed is read. Rows lie in
files beside, of which a result says the parts: they are no more read than their shards need.
"""

import contextlib
import dataclasses
import functools
import hashlib
import pickle
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import google_crc32c

from pipelines import steps
from pipelines.steps import Job, Piece
from t5prep.errors import OutputError
from t5prep.io import gcs, paths, signed_files
from t5prep.io.store import Store
from t5prep.preparation import output_folder, token_cache
from t5prep.preparation.near_duplicates.sketches import Sketch
from t5prep.preparation.spills import Spill

# Counters of results that an earlier run had kept, and of those that this one makes.
FOUND, MADE = "found", "made"
# How the file ends that has the rows of a result.
_ROWS = ".rows"


@dataclasses.dataclass(frozen=True)
class Stored:
    """A spill, sketch or piece of which the `data` is a part of a file that every worker reads; `crc` is its CRC-32C."""

    about: Spill | Sketch | Piece
    path: str
    begin: int
    size: int
    crc: int

    def read(self) -> Any:
        """Return the spill or sketch with its data, or the bytes of a piece. Raises OutputError if they are gone or damaged."""
        with contextlib.suppress(OSError):
            data = paths.read_range(self.path, self.begin, self.size)
            if len(data) == self.size and google_crc32c.value(data) == self.crc:
                return data if isinstance(self.about, Piece) else dataclasses.replace(self.about, data=data)
        raise OutputError(_gone(self.path))


def store(pieces: Iterable[tuple[Any, Spill | Sketch | Piece]], file: str) -> list[tuple[Any, Stored]]:
    """Write what spills, sketches or pieces hold into one file, and return where each is, with its key. Raises OutputError."""
    stored, begin = list[tuple[Any, Stored]](), 0
    with paths.scratch(file) as opened:
        for key, piece in pieces:
            data = bytes(piece.data)
            opened.write(data)
            about = dataclasses.replace(piece, data=b"")
            stored.append((key, Stored(about, file, begin, len(data), google_crc32c.value(data))))
            begin += len(data)
    return stored


def _at(made: Any, path: str) -> Any:
    """Return what a step made, its rows at a path: the folder may have been moved, or be named from another one now."""
    if type(made) is tuple:
        return tuple(_at(one, path) for one in made)
    return dataclasses.replace(made, path=path) if isinstance(made, Stored) else made


def _gone(path: str) -> str:
    return f"{path} was removed, changed or damaged since it was written. Start this with --fresh"


@dataclasses.dataclass(frozen=True)
class Kept:
    """The results of one job, in a folder that every worker can reach; `key` signs them. Without a key nothing is kept.

    The file `found` there lists the groups and shards that were done when the run began: what only they need is left out.
    """

    folder: str = ""
    key: bytes = b""
    found: str = ""

    def find(self, name: str, *, file: str = "") -> list[Any] | None:
        """Return the results of that name; None if there are none, or if the `file` that goes with them is another now, or gone.

        Rows may be written twice, with the same bytes, where a worker was thought to be lost: their pieces have checksums.
        Raises OutputError for results of a group or shard that was done when the run began.
        """
        if not self.key:
            return None
        with contextlib.suppress(OSError, OutputError):
            if (content := Store(self.folder, key=self.key).get(name)) is not None:
                version, made = pickle.loads(content)
                if version == (file and paths.version(file)) or file.endswith(_ROWS):
                    return [_at(one, file) for one in made]
        if name in self.done():
            raise OutputError(_gone(file or paths.at(self.folder, name)))
        return None

    def done(self) -> frozenset[str]:
        """Return the names of the groups and shards that were done when the run began. Raises OutputError."""
        return _listed(self) if self.found else frozenset()

    def rows_of(self, name: str) -> str:
        """Return where the rows are stored that go with what is kept under a name."""
        return paths.at(self.folder, f"{name}{_ROWS}")

    def keep(self, name: str, made: Iterable[Any], *, file: str = "") -> None:
        """Keep results, and which version of a `file` goes with them. Raises OutputError."""
        if self.key:
            content = pickle.dumps((file and paths.version(file), made), pickle.HIGHEST_PROTOCOL)
            Store(self.folder, key=self.key).put(name, content)

    @classmethod
    def of(cls, job: Job, out: str, *, earlier: Iterable[str], fresh: bool) -> "Kept":
        """Return what is kept of a job beside its shards; results of any other one, or all if it is `fresh`, are removed there.

        `earlier` are the digests of the datasets that rows are compared with.
        """
        key = signed_files.derived_key("kept results")
        if key is None:
            return NOTHING
        hasher = hashlib.blake2b(digest_size=12)
        code = token_cache.digest_of_code(steps.staged_of(job).definition.code)
        for told in (job.digest, repr(job.settings), code, *earlier):
            hasher.update(f"{told}\0".encode())
        for path in sorted(Path(__file__).parent.glob("*.py")):
            hasher.update(path.read_bytes() + b"\0")
        folder = paths.at(out, f"{output_folder.KEPT}{hasher.hexdigest()}")
        if not gcs.is_gs(out):
            for other in Path(out).glob(f"{output_folder.KEPT}*"):
                if fresh or other != Path(folder):
                    shutil.rmtree(other, ignore_errors=True)
        elif fresh:
            gcs.delete_all(paths.at(out, output_folder.KEPT))
        names = paths.names(folder) if gcs.is_gs(out) or Path(folder).is_dir() else ()
        if not names:
            return cls(folder, key)
        done = sorted(name for name in names if "-" in name and not name.endswith(_ROWS))
        made = cls(folder, key, f"found.{uuid.uuid4().hex}")
        made.keep(made.found, done)
        return made


NOTHING = Kept()


@functools.lru_cache(maxsize=2)
def _listed(kept: Kept) -> frozenset[str]:
    if (done := dataclasses.replace(kept, found="").find(kept.found)) is None:
        raise OutputError(_gone(paths.at(kept.folder, kept.found)))
    return frozenset(done)
