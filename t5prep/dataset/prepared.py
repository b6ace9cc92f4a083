"""Open a prepared dataset and its splits: tokenizer, records, the files beside the shards, and the rows that made no record."""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from t5prep.dataset import manifest, rejected_rows, shard_files, tfrecord
from t5prep.dataset.manifest import Manifest, Split
from t5prep.dataset.settings import Settings
from t5prep.dataset.shard_files import Index, Shard
from t5prep.errors import DatasetError, TokenizerError, did_you_mean
from t5prep.io import gcs, paths
from t5prep.tokens import loading
from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.tokenizer import Tokenizer

# A rejected row, as a line of JSON says it.
REJECTED = pa.schema([("file", pa.string()), ("row", pa.int64()), ("id", pa.string()), ("reason", pa.string())])
_LINES = 4096  # of rejected rows that are read at a time


@dataclasses.dataclass(frozen=True)
class DecodedRecord:
    """A decoded record. Ids are as stored, padding included; a packed record has the ids of its examples, joined."""

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
    """Read a prepared dataset: its `manifest`, and the `folder` or prefix that holds it. The rest is read once, at its first use.

    `tokenizer` names the tokenizer, if the name in the manifest does not lead to it. Raises DatasetError.
    """

    def __init__(self, data: str | Path, *, tokenizer: str | None = None) -> None:
        self.manifest, self._tokenizer = manifest.load(data), tokenizer
        self.folder = manifest.folder_of(data) or "."

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the dataset was made with. Raises TokenizerError if it is not there, or another one."""
        described = self.manifest.tokenizer
        try:
            vocabulary = loading.load(self._tokenizer or described.name)
        except TokenizerError as error:
            raise TokenizerError(f"{error} It is the data's tokenizer; say where it lies with --tokenizer.") from error
        if vocabulary.sha256 != described.sha256:
            raise TokenizerError(
                f"{vocabulary.name} is not the tokenizer of these records (SHA-256 {vocabulary.sha256[:12]}…, theirs is "
                f"{described.sha256[:12]}…). Pass theirs: --tokenizer PATH"
            )
        return vocabulary

    @property
    def index(self) -> Index:
        """The description of the index. Raises DatasetError if there is none."""
        if self.manifest.index is None:
            raise DatasetError(f"{self.folder} has no index of its records. Prepare it again, into another --out.")
        return self.manifest.index

    @functools.cached_property
    def pages(self) -> dict[str, list[np.ndarray]]:
        """The bytes of each page of each shard, by split (shard_files.read_index). Raises DatasetError, also if there is no index."""
        shards = {name: split.shards for name, split in self.manifest.splits.items()}
        return shard_files.read_index(self.folder, self.index, shards)

    @functools.cached_property
    def shard_sizes(self) -> dict[str, int]:
        """The bytes of each shard that is there, by name."""
        if gcs.is_gs(self.folder):
            return {name: remote_object.bytes for name, remote_object in gcs.objects(self.folder).items()}
        names = (shard.name for shard in self.manifest.shards)
        return {name: os.path.getsize(path) for name in names if os.path.isfile(path := self.at(name))}

    @functools.cached_property
    def origins(self) -> dict[str, np.ndarray]:
        """Return where the records of each split come from (shard_files.read_origins); none of those that do not say it."""
        return shard_files.read_origins(self.folder, self.manifest.origins) if self.manifest.origins else {}

    def split(self, name: str) -> "DatasetSplit":
        """Return a split. Raises DatasetError if there is none of this name."""
        if name not in (splits := self.manifest.splits):
            raise DatasetError(
                f'{self.folder} has no split "{name}".{did_you_mean(name, splits)} It has {", ".join(splits)}: name one of '
                "these, or prepare it with --splits."
            )
        return DatasetSplit(self, name)

    def at(self, name: str) -> str:
        """Return the path of a file of the dataset."""
        return paths.join(self.folder, name)

    def records(self, *shards: str) -> Iterator[bytes]:
        """Yield the records of shards, undecoded. Raises DatasetError."""
        return read(self.folder, *shards)

    def decoded(self, record: bytes) -> DecodedRecord:
        """Return a record with its texts. To be called within `decoding`, for bytes that are no record. Raises TokenizerError."""
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
        """Yield the rows that made no record (REJECTED), some at a time: with `needles`, of the lines that hold one of these.

        Raises DatasetError.
        """
        file = self.manifest.rejected_file
        for path in map(self.at, rejected_rows.names_of(file.name) if file else ()):
            with self.reading(path), paths.opened(path) as opened:
                lines = (line for line in opened if not needles or any(needle in line for needle in needles))
                while batch := [json.loads(line) for line in itertools.islice(lines, _LINES)]:
                    rows = pa.RecordBatch.from_pylist(batch, schema=REJECTED)
                    if any(rows[name].null_count for name in ("file", "row", "reason")):
                        raise ValueError("a line names no row, or no reason")
                    yield rows

    def decoding(self, record: str) -> contextlib.AbstractContextManager[None]:
        """Raise DatasetError, which names a record, for what decoding it raises."""
        return _explain_errors(f"{record} is none that t5prep wrote", self.folder)

    def reading(self, subject: str) -> contextlib.AbstractContextManager[None]:
        """Raise DatasetError, which names what is read, for what reading it raises."""
        return _explain_errors(f"{subject} cannot be read", self.folder)


@dataclasses.dataclass(frozen=True)
class DatasetSplit:
    """Describe one split of an opened dataset, by its `name`."""

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
        """Return what the manifest says of this split."""
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
        return [self.dataset.at(shard.name) for shard in self.shards]

    @property
    def lengths(self) -> tuple[int, int]:
        """Return the number of tokens in a row of `input_ids`, and in a row of `labels`."""
        return self.settings.input_length, self.settings.target_length


def read(folder: str | Path, *shards: str) -> Iterator[bytes]:
    """Yield the records of shards in the folder or prefix of a dataset, undecoded. Raises DatasetError."""
    for path in (paths.join(folder, name) for name in shards):
        with _explain_errors(f"{path} cannot be read", folder), paths.opened(path) as file:
            yield from tfrecord.read(file)


@contextlib.contextmanager
def _explain_errors(wrong: str, folder: str | Path) -> Iterator[None]:
    """Raise DatasetError, which says what is wrong with a dataset, for an error of the system or of what is read."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        # The texts of other errors are a name or a type, which says nothing alone.
        plain = isinstance(error, OSError | ValueError)
        reason = getattr(error, "strerror", None) or (error if plain else f"{error!r}")
        raise DatasetError(f"{wrong} ({reason}). Find out more: t5prep verify {folder}") from error
