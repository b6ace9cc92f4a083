"""Write vectors to files that appear atomically, verify existing files, and describe all files in a manifest.

    OUT/
      vectors-00000.safetensors      the vectors of the first rows; anything that reads safetensors reads them
      vectors-00001.safetensors
      manifest.json                  written last: model, tokenizer, source, and the SHA-256 of each file

The tensors of a file depend on the options:

    vectors of tokens             vectors [tokens, width], starts int64[texts + 1]: where the vectors of each text begin
    vectors of tokens, padded     vectors [texts, length, width], mask uint8[texts, length]
    one vector for each text      vectors [texts, width]

Its metadata hold, as JSON, the `ids` of the texts, and `missing`, the rows without a text. Until the manifest is written,
each finished file has a small JSON file beside it with its manifest entry. A killed run therefore computes no finished
file again.
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
_HASHED_BYTES = 1 << 20  # bytes that are read at a time when a file is hashed


def name_of(number: int) -> str:
    """Return the name of file `number` of vectors, counted from 0."""
    return f"vectors-{number:05d}.safetensors"


class Entry(TypedDict, total=False):
    """The manifest's entry of a file: counts of its rows, texts, tokens, cut texts, and rows without a text."""

    name: str
    rows: int
    texts: int
    tokens: int
    cut: int
    missing: dict[str, int]  # by reason
    bytes: int
    sha256: str


class Folder:
    """A folder of vectors, local or gs://, to which an interrupted run can add.

    `identity` holds everything that the bytes of the files depend on. Raises OutputError if the folder has other files, or
    vectors with another identity. With several hosts, `writes` is true on the single host that writes.
    """

    def __init__(self, folder: str, *, identity: JSONObject, writes: bool = True) -> None:
        self.place, self._writes = folder, writes
        self._identity: JSONObject = json.loads(json.dumps({"schema": SCHEMA, **identity}))
        existing_names = self._existing_names = self._names()
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
                f"{folder} contains files that t5prep embed cannot identify "
                f"({(strange or sorted(existing_names))[0]}). Choose another --out.",
                code="output.foreign-file",
            )
        self._known: dict[str, Entry] = {}
        if manifest is not None:
            differs = [key for key, value in self._identity.items() if manifest.get(key) != value]
            if differs:
                raise OutputError(
                    f"{folder} contains vectors that were made with a different {' and '.join(differs)}. Choose "
                    "another --out, or use the earlier options to resume.",
                    code="output.different-settings",
                )
            self._known = {str(entry["name"]): entry for entry in manifest.get("shards", [])}
        elif writes:
            if not gcs.is_gs(folder):
                try:
                    Path(folder).mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise atomic_files.write_error(error, Path(folder)) from error
            paths.write(paths.join(folder, _UNFINISHED_MANIFEST), _json(self._identity))
        self._beside = {name for name in existing_names if name.startswith(atomic_files.UNFINISHED)}

    def finished(self, name: str) -> Entry | None:
        """Return the entry of file `name` if it exists and has the recorded SHA-256, else None."""
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
        """Write the file that `summary` names, and its entry beside it; return the entry, with size and SHA-256.

        `tensors`: dtype and shape of each tensor, in the order of `values`. These are written as they are computed, so a
        file may be larger than the memory.
        """
        if not self._writes:
            collections.deque(values, maxlen=0)  # computes and discards them: each step needs the devices of all hosts
            return summary
        name, digest, size = summary["name"], hashlib.sha256(), 0
        if name in self._existing_names:  # an altered file; or a pipe, which an atomic write would write into
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
        """Write the manifest with the entries `shards` and the `totals`, and remove the temporary files of entries."""
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
            raise atomic_files.write_error(error, Path(self.place)) from error

    def _read(self, name: str) -> Any | None:
        """Return the JSON object in the file `name` of the folder; None if it is missing or damaged."""
        try:
            return dict(json.loads(paths.read(paths.join(self.place, name))))
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def _sha256(self, name: str) -> str | None:
        """Return the SHA-256 of the file `name` of the folder; None if it is missing."""
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
    """Return the name of the file that holds the entry of file `name` until the manifest is written."""
    return f"{atomic_files.UNFINISHED}{name}.json"


def _bytes_of(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _json(value: Mapping[str, object]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
