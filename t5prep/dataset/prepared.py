"""Open a prepared dataset and its splits: tokenizer, records, the files beside the shards, and the rejected rows."""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from t5prep.dataset import manifest, rejected_rows, shard_files, tfrecord
from t5prep.dataset.manifest import Manifest, Split
from t5prep.dataset.settings import Settings
from t5prep.dataset.shard_files import Index, Shard
from t5prep.errors import DatasetError, T5prepError, TokenizerError, did_you_mean
from t5prep.io import gcs, paths
from t5prep.tokens import loading, newlines
from t5prep.tokens.tokenizer import Tokenizer

# The columns of rejected rows, with the names in the lines of `rejected.jsonl`.
REJECTED = pa.schema([("file", pa.string()), ("row", pa.int64()), ("id", pa.string()), ("reason", pa.string())])
_LINES = 4096  # rejected rows in one batch


@dataclasses.dataclass(frozen=True)
class DecodedRecord:
    """Hold a decoded record. `input_ids` and `labels` are as stored, with padding.

    For a packed record, `id` has the ids of all of its examples, joined by commas.
    """

    id: str
    input_ids: list[int]
    labels: list[int]
    inputs: str
    targets: str
    references: list[str]

    @property
    def targeted(self) -> list[int]:
        """Return the labels that the loss does not ignore."""
        return _targeted(self.labels)


def _targeted(labels: list[int]) -> list[int]:
    return [token for token in labels if token != tfrecord.IGNORED_LABEL]


class Dataset:
    """Read a prepared dataset: its `manifest`, in the `folder` or prefix. Everything else is read once, at its first use.

    `data` is the folder or its manifest. `tokenizer` is a path or name of the tokenizer, if the one in the manifest cannot
    be found. `model` is a model that the user named: its tokenizer may be the dataset's. Raises DatasetError.
    """

    def __init__(self, data: str | Path, *, tokenizer: str | None = None, model: str = "") -> None:
        self.manifest, self._tokenizer, self._model = manifest.load(data), tokenizer, model
        self.folder = manifest.folder_of(data) or "."

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer that made the dataset. Raises TokenizerError if it is missing, or has another SHA-256.

        The author of the dataset chose the name in its manifest, and may be a stranger. So the Hub is not asked for a name
        that this user has never used.
        """
        described = self.manifest.tokenizer
        try:
            vocabulary = loading.load(self._tokenizer or described.name, from_manifest=not self._tokenizer)
        except TokenizerError as error:
            if self._model and not self._tokenizer:
                with contextlib.suppress(T5prepError):
                    if (vocabulary := loading.load(self._model)).sha256 == described.sha256:
                        return vocabulary
            if error.code == "dataset.untrusted-tokenizer":
                raise TokenizerError(
                    f"{error} If you trust the author of the dataset, name the tokenizer: --tokenizer "
                    f"{shlex.quote(described.name)}",
                    code=error.code,
                ) from error
            raise TokenizerError(
                f"{error} The dataset needs the tokenizer that prepared it. Name its location: --tokenizer PATH",
                code="dataset.tokenizer-unavailable",
            ) from error
        if vocabulary.sha256 != described.sha256:
            raise TokenizerError(
                f"{vocabulary.name} is not the tokenizer of this dataset (SHA-256 {vocabulary.sha256[:12]}…, "
                f"but the dataset needs {described.sha256[:12]}…). Pass the tokenizer of the dataset: "
                "--tokenizer PATH",
                code="dataset.tokenizer-mismatch",
            )
        return vocabulary

    @property
    def index(self) -> Index:
        """Return the manifest's description of the index. Raises DatasetError if the dataset has none."""
        if self.manifest.index is None:
            raise DatasetError(
                f"{self.folder} has no index of its records. Prepare the dataset again, with another --out.",
                code="dataset.missing-index",
            )
        return self.manifest.index

    @functools.cached_property
    def pages(self) -> dict[str, list[np.ndarray]]:
        """Return the sizes in bytes of the pages of each shard, `uint32[pages]`, by split (see `shard_files.read_index`).

        Raises DatasetError if the index is missing or altered.
        """
        shards = {name: split.shards for name, split in self.manifest.splits.items()}
        return shard_files.read_index(self.folder, self.index, shards)

    @functools.cached_property
    def shard_sizes(self) -> dict[str, int]:
        """Return the actual size in bytes of each shard that exists, by name."""
        if gcs.is_gs(self.folder):  # one listing instead of a request for each shard
            return {name: remote_object.bytes for name, remote_object in gcs.objects(self.folder).items()}
        names = (shard.name for shard in self.manifest.shards)
        return {name: os.path.getsize(path) for name in names if os.path.isfile(path := self.path_of(name))}

    @functools.cached_property
    def origins(self) -> dict[str, np.ndarray]:
        """Return the origins of the records of each split (see `shard_files.read_origins`), where they are stored."""
        return shard_files.read_origins(self.folder, self.manifest.origins) if self.manifest.origins else {}

    def split(self, name: str) -> "DatasetSplit":
        """Return the split `name`. Raises DatasetError if there is none."""
        if name not in (splits := self.manifest.splits):
            raise DatasetError(
                f'{self.folder} has no split "{name}".{did_you_mean(name, splits)} Choose one of: '
                f"{', '.join(splits)}. Or prepare the dataset again with --splits.",
                code="split.unknown",
            )
        return DatasetSplit(self, name)

    def path_of(self, name: str) -> str:
        """Return the path of the dataset's file `name`."""
        return paths.join(self.folder, name)

    def records(self, *shards: str) -> Iterator[bytes]:
        """Yield the serialized records of the files `shards`. Raises DatasetError."""
        return read(self.folder, *shards)

    def decoded(self, record: bytes) -> DecodedRecord:
        """Return a serialized record with its texts decoded. Raises TokenizerError.

        Call it inside `decoding`, which converts the exceptions of malformed bytes.
        """
        features = tfrecord.parse(record)
        ids, references = (
            [value.decode() for value in values if isinstance(value, bytes)]
            for values in (features["id"], features.get("references", []))
        )
        inputs, labels = ([int(token) for token in features[name]] for name in ("input_ids", "labels"))
        target = self.manifest.target.text(_targeted(labels), self._decode)
        return DecodedRecord(", ".join(ids), inputs, labels, self._decode(inputs), target, references)

    def _decode(self, ids: Sequence[int]) -> str:
        return newlines.decode(ids, tokenizer=self.tokenizer, keep_newlines=self.manifest.settings.keep_newlines)

    def rejected(self, *needles: bytes) -> Iterator[pa.RecordBatch]:
        """Yield batches of rejected rows, with the columns of REJECTED. Raises DatasetError.

        With `needles`, only lines that contain one of these byte strings are parsed: a search by id is quicker.
        """
        file = self.manifest.rejected_file
        for path in map(self.path_of, rejected_rows.names_of(file.name) if file else ()):
            with self.reading(path), paths.opened(path) as opened:
                lines = (line for line in opened if not needles or any(needle in line for needle in needles))
                while batch := [json.loads(line) for line in itertools.islice(lines, _LINES)]:
                    rows = pa.RecordBatch.from_pylist(batch, schema=REJECTED)
                    if any(rows[name].null_count for name in ("file", "row", "reason")):
                        raise ValueError("a line names no row, or no reason")
                    yield rows

    def decoding(self, record: str) -> contextlib.AbstractContextManager[None]:
        """Return a context that converts exceptions of decoding to DatasetError. `record` names the record in the error."""
        return _explain_errors(f"{record} was not written by t5prep", self.folder)

    def reading(self, subject: str) -> contextlib.AbstractContextManager[None]:
        """Return a context that converts exceptions of reading to DatasetError. `subject`, a path or so, begins the error."""
        return _explain_errors(f"{subject} cannot be read", self.folder)


@dataclasses.dataclass(frozen=True)
class DatasetSplit:
    """Hold the split `name` of an opened dataset: its facts, shards and paths."""

    dataset: Dataset
    name: str

    @property
    def folder(self) -> str:
        """Return the folder or prefix of the dataset."""
        return self.dataset.folder

    @property
    def manifest(self) -> Manifest:
        """Return the manifest of the dataset."""
        return self.dataset.manifest

    @property
    def settings(self) -> Settings:
        """Return the settings of the dataset."""
        return self.dataset.manifest.settings

    @property
    def facts(self) -> Split:
        """Return the manifest's description of this split."""
        return self.manifest.splits[self.name]

    @property
    def records(self) -> int:
        """Return the number of records."""
        return self.facts.records

    @functools.cached_property
    def shards(self) -> list[Shard]:
        """Return the shards that hold records."""
        return [shard for shard in self.facts.shards if shard.records]

    @functools.cached_property
    def paths(self) -> list[str]:
        """Return the paths of `shards`."""
        return [self.dataset.path_of(shard.name) for shard in self.shards]

    @property
    def lengths(self) -> tuple[int, int]:
        """Return the maximum number of tokens of `input_ids`, and of `labels`."""
        return self.settings.input_length, self.settings.target_length


def read(folder: str | Path, *shards: str) -> Iterator[bytes]:
    """Yield the serialized records of the files `shards` in the dataset's `folder` or prefix. Raises DatasetError."""
    for path in (paths.join(folder, name) for name in shards):
        with _explain_errors(f"{path} cannot be read", folder), paths.opened(path) as file:
            yield from tfrecord.read(file)


@contextlib.contextmanager
def _explain_errors(wrong: str, folder: str | Path) -> Iterator[None]:
    """Convert exceptions of the system and of malformed data to DatasetError, whose message begins with `wrong`."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        # The text of a KeyError or an AttributeError is a bare name, so its `repr` is shown.
        plain = isinstance(error, OSError | ValueError)
        reason = getattr(error, "strerror", None) or (error if plain else f"{error!r}")
        raise DatasetError(
            f"{wrong} ({reason}). Check the dataset: t5prep verify {folder}", code="dataset.damaged"
        ) from error
