"""Write vectors as files that appear whole, check those that are there, and say what they hold in a manifest.

    OUT/
      vectors-00000.safetensors      the vectors of the first rows; anything that reads safetensors reads them
      vectors-00001.safetensors
      manifest.json                  written last: model, tokenizer, source, and the SHA-256 of each file

A file has `vectors`: [tokens, width] with `starts`, int64[texts + 1], where the vectors of each text begin; or with padding
[texts, length, width] and `mask`, uint8[texts, length]; or [texts, width]. Its metadata have the texts' `ids` and the rows
without a text, `missing`, as JSON. What is known of a finished file stands beside it until the manifest is written, so a
killed run computes no finished file again.
"""

import collections
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from t5prep.errors import OutputError
from t5prep.io import atomic_files, gcs, paths
from t5prep.json_values import JSON, JSONObject
from t5prep.training.published import safetensors_file

MANIFEST, SCHEMA = "manifest.json", 1
_UNFINISHED_MANIFEST = f"{atomic_files.UNFINISHED}{MANIFEST}"
_HASHED_BYTES = 1 << 20  # at a time


def name_of(number: int) -> str:
    """Return the name of a file of vectors, counted from 0."""
    return f"vectors-{number:05d}.safetensors"


class Entry(TypedDict, total=False):
    """What the manifest says of a file: its rows, those with a text, their tokens, texts that were cut, and rows without one."""

    name: str
    rows: int
    texts: int
    tokens: int
    cut: int
    missing: dict[str, int]  # by reason
    bytes: int
    sha256: str


class Folder:
    """A folder of vectors, local or gs://: what it holds already, and what is added. `identity` decides the bytes of all files.

    Raises OutputError if the folder has something else, or vectors of another model or other texts. Of several hosts,
    `writes` is true for the one that writes.
    """

    def __init__(self, folder: str, *, identity: JSONObject, writes: bool = True) -> None:
        self.place, self._writes = folder, writes
        self._identity: JSONObject = json.loads(json.dumps({"schema": SCHEMA, **identity}))
        existing_names = self._there = self._names()
        strange = sorted(
            name for name in existing_names if not name.startswith((MANIFEST, "vectors-", atomic_files.UNFINISHED))
        )
        manifest = (
            self._read(MANIFEST)
            if MANIFEST in existing_names
            else self._read(_UNFINISHED_MANIFEST)
            if _UNFINISHED_MANIFEST in existing_names
            else None
        )
        if strange or (
            existing_names and manifest is None and any(name.startswith("vectors-") for name in existing_names)
        ):
            raise OutputError(
                f"{folder} holds something that is not vectors ({(strange or sorted(existing_names))[0]}). Choose another --out."
            )
        self._known: dict[str, Entry] = {}
        if manifest is not None:
            differs = [key for key, value in self._identity.items() if manifest.get(key) != value]
            if differs:
                raise OutputError(
                    f"{folder} has vectors that were made with another {' and '.join(differs)}. Choose another --out, or "
                    "give the same again to go on."
                )
            self._known = {str(entry["name"]): entry for entry in manifest.get("shards", [])}
        elif writes:
            if not gcs.is_gs(folder):
                try:
                    Path(folder).mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise OutputError(atomic_files.explain(error, Path(folder))) from error
            paths.write(paths.join(folder, _UNFINISHED_MANIFEST), _json(self._identity))
        self._beside = {name for name in existing_names if name.startswith(atomic_files.UNFINISHED)}

    def finished(self, name: str) -> Entry | None:
        """Return what is known of a file that is there and unaltered, else None."""
        entry = self._known.get(name)
        if entry is None and (entry_name := _get_entry_name(name)) in self._beside:
            entry = self._read(entry_name)
        if not entry or entry.get("sha256") != self._sha256(name):
            return None
        return entry

    def write(
        self,
        summary: Entry,
        *,
        tensors: Mapping[str, tuple[str, Sequence[int]]],
        metadata: Mapping[str, str],
        values: Iterable[np.ndarray],
    ) -> Entry:
        """Write the file that is `summary`, and beside it this entry with its size and its SHA-256, which is returned.

        `tensors`: dtype and shape of each, in the order of `values`, which are written as they come.
        """
        if not self._writes:
            collections.deque(values, maxlen=0)  # the host that writes computes the same rows at the same time
            return summary
        name, digest, size = summary["name"], hashlib.sha256(), 0
        if name in self._there:  # altered, or a pipe, into which it would be written
            self._remove(name)
        with paths.open_atomic(paths.join(self.place, name)) as file:
            begin = memoryview(safetensors_file.header(tensors, metadata))
            for piece in itertools.chain([begin], map(_bytes_of, values)):
                file.write(piece)
                digest.update(piece)
                size += len(piece)
        entry: Entry = {**summary, "bytes": size, "sha256": digest.hexdigest()}
        paths.write(paths.join(self.place, _get_entry_name(name)), _json(entry))
        return entry

    def finish(self, shards: Sequence[Entry], **totals: JSON) -> None:
        """Write the manifest, and remove what a run leaves until then."""
        if not self._writes:
            return
        paths.write(paths.join(self.place, MANIFEST), _json({**self._identity, **totals, "shards": list(shards)}))
        for name in self._names():
            if name.startswith(atomic_files.UNFINISHED):
                self._remove(name)

    def _names(self) -> set[str]:
        if not gcs.is_gs(self.place) and not Path(self.place).exists():
            return set()
        try:
            return paths.names(self.place)
        except OSError as error:
            raise OutputError(atomic_files.explain(error, Path(self.place))) from error

    def _read(self, name: str) -> Any | None:
        """Return a JSON object of the folder; None if it is not there, or damaged."""
        try:
            return dict(json.loads(paths.read(paths.join(self.place, name))))
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def _sha256(self, name: str) -> str | None:
        """Return the SHA-256 of a file; None if it is not there."""
        digest = hashlib.sha256()
        try:
            with paths.opened(paths.join(self.place, name)) as file:
                while block := file.read(_HASHED_BYTES):
                    digest.update(block)
        except OSError:
            return None
        return digest.hexdigest()

    def _remove(self, name: str) -> None:
        path = paths.join(self.place, name)
        if gcs.is_gs(path):
            gcs.delete(path)
        else:
            Path(path).unlink(missing_ok=True)


def _get_entry_name(name: str) -> str:
    """Return the name of the file that says what is known of a file, until the manifest does."""
    return f"{atomic_files.UNFINISHED}{name}.json"


def _bytes_of(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _json(value: Mapping[str, object]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
