"""Describe a prepared dataset in its manifest, the only thing that preparing and training share.

It is written last, so a directory without one is not a dataset. Its digest covers everything that decides the shards'
bytes and the shards themselves, so a manifest edited by hand is refused.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cattrs

from t5prep import __version__
from t5prep.dataset import strict_json
from t5prep.dataset.block_index import Index
from t5prep.dataset.near_duplicates import NearDuplicates
from t5prep.dataset.record_lengths import Lengths
from t5prep.dataset.row_balance import RejectedFile, Rows
from t5prep.dataset.settings import Settings
from t5prep.errors import DatasetError, OtherVersionError
from t5prep.io import gcs, long_json, paths, suggestions

# 2: the settings as they were given, in one place; the task's metrics and classes.
SCHEMA = 2
NAME = "manifest.json"
TASK_FILE = "task.py"  # the user's own file of a task, kept beside the dataset that it made


@dataclasses.dataclass(frozen=True, slots=True)
class SourceFile:
    """Describe one raw file that rows came from: its name inside the source, its bytes and their SHA-256."""

    name: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Source:
    """Describe where the rows came from, pinned: `uri` as the user gave it, `revision` as it was resolved."""

    uri: str
    revision: str
    files: list[SourceFile]
    licence: str
    citation: str


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """Name the SentencePiece model that made the ids. Its SHA-256 is its identity; the name is for people.

    `vocab_size` counts the model's own pieces (32,000 for T5); `padded_vocab_size` what an embedding holds: the pieces,
    the 100 sentinels, and padding to a multiple of 128 (32,128).
    """

    name: str
    sha256: str
    vocab_size: int
    padded_vocab_size: int
    pad_id: int
    eos_id: int
    unk_id: int


@dataclasses.dataclass(frozen=True)
class Feature:
    """Describe one feature of a record: `int64` or `bytes`, and its shape (`[]` is one value, `[None]` any number of them)."""

    dtype: str
    shape: list[int | None]


@dataclasses.dataclass(frozen=True)
class TaskFacts:
    """Hold what training and evaluation need to know of the task, so that they need no registry of tasks.

    `metrics` are those that its answers are scored by, `classes` the words of a classification in the order of a confusion
    matrix, and `hides_spans` says that sentinels of an input stand for hidden spans. `file` is the name of the user's own
    file that defines the task, and `sha256` its checksum; both are "" for an installed task.
    """

    metrics: list[str]
    classes: list[str]
    hides_spans: bool = False
    file: str = ""
    sha256: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """Describe one TFRecord file: its name beside the manifest, its records, bytes and SHA-256."""

    name: str
    records: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Split:
    """Describe one split. `lengths` is the joint histogram of (input, target) tokens kept, in steps of 16 and 4: for planning."""

    records: int
    tokens: dict[str, int]
    lengths: dict[str, Any]
    unk_rate: float
    labels: dict[str, int]
    rejected: dict[str, int]
    shards: list[Shard]
    examples: int = 0  # rows of the source that its records were made of


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Describe a whole prepared dataset: what was chosen, what it was made of, what came out.

    `ledger` says what truncation cost: rows cut and tokens lost of inputs and of targets, and the rows that lost most.
    """

    schema: int
    created_by: str
    settings: Settings
    task: TaskFacts
    source: Source
    tokenizer: Tokenizer
    features: dict[str, Feature]
    ledger: dict[str, Any]
    splits: dict[str, Split]
    rejected: dict[str, int]
    warnings: list[str]
    # What became of each row of each file, and where those are that made no record (None: the dataset has no such file).
    rows: dict[str, Rows] = dataclasses.field(default_factory=dict)
    rejected_file: RejectedFile | None = None
    # Tokens of inputs that were rejected after they were tokenized, by reason; rows that each filter changed; the SHA-256 of
    # each file of the user's that filters read.
    rejected_tokens: dict[str, int] = dataclasses.field(default_factory=dict)
    changed: dict[str, int] = dataclasses.field(default_factory=dict)
    filter_files: dict[str, str] = dataclasses.field(default_factory=dict)
    evaluation_sets: dict[str, str] = dataclasses.field(default_factory=dict)  # a digest of each set to keep apart from
    earlier: dict[str, str] = dataclasses.field(default_factory=dict)  # the digest of each dataset of --dedup-against
    near_duplicates: NearDuplicates | None = None  # None where they were not looked for
    index: Index | None = None  # None where an older version prepared the dataset
    lengths: Lengths | None = None  # None there too, and where rows are packed
    digest: str = ""

    @property
    def class_names(self) -> list[str]:
        """Return the names of the classes whose numbers are the targets; none where targets are texts."""
        return self.task.classes if self.settings.target == "class" else []

    def sealed(self) -> "Manifest":
        """Return the same manifest with its digest filled in."""
        return dataclasses.replace(self, digest=digest(self))

    def dumps(self) -> str:
        """Return the manifest as JSON, the same bytes for the same manifest."""
        return b"".join(self.pieces()).decode()

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of `dumps` in pieces: a dataset of 100,000 shards has a manifest of 20 MB."""
        yield from long_json.pieces(self, indent=2, ensure_ascii=False)
        yield b"\n"


_MANY = (Shard, SourceFile)  # parts of which there may be 100,000
_NAMES = {field.name for field in dataclasses.fields(Manifest)}
# What every version of a manifest says: without these it is not an older one but a broken one.
_ALWAYS_PRESENT = {"schema", "task", "created_by", "source", "tokenizer", "splits", "digest"}
# What a manifest of this schema may lack, because an earlier version did not write it.
_MAY_BE_MISSING = {"index", "lengths", "earlier"}
_OLDER = "Prepare the dataset again, into another --out: what is kept of its tokens is used again."


def digest(manifest: Manifest) -> str:
    """Return the SHA-256 (hex) of all that decides the records: not of who wrote them, nor of the names of what was read.

    The number of shards that was asked for is left out too: the shards themselves are in it.
    """
    facts = long_json.fields_of(manifest)
    facts |= {name: long_json.fields_of(facts[name]) for name in ("source", "tokenizer")}
    del facts["digest"], facts["created_by"], facts["source"]["uri"], facts["tokenizer"]["name"]
    facts["settings"] = manifest.settings.for_digest()
    for name in _MAY_BE_MISSING:
        if not facts[name]:
            del facts[name]
    sha256 = hashlib.sha256()
    for piece in long_json.pieces(facts, sort_keys=True, separators=(",", ":")):
        sha256.update(piece)
    return sha256.hexdigest()


def loads(text: str | bytes, *, where: str) -> Manifest:
    """Return a manifest from its JSON; `where` is named in errors.

    Raises DatasetError when it is not JSON, not a manifest, of a newer schema, or altered since it was written.
    """
    try:
        facts = strict_json.parse(text, many=_MANY)
        if not isinstance(facts, dict) or "schema" not in facts:
            raise ValueError("it says no schema")
        schema = facts["schema"]
    except (ValueError, RecursionError) as error:
        why = "it is not JSON" if isinstance(error, json.JSONDecodeError) else error
        raise DatasetError(f"{where} is not a t5prep manifest ({why}). Prepare the dataset again.") from error
    if schema in range(1, SCHEMA):
        raise OtherVersionError(
            f"{where} was written by an older t5prep ({str(facts.get('created_by'))[:40]}, schema {schema}; this is "
            f"{__version__}, schema {SCHEMA}). {_OLDER}"
        )
    if schema != SCHEMA:
        raise DatasetError(
            f"{where} has schema {schema!r}; this t5prep reads schema {SCHEMA}. "
            "Upgrade t5prep, or prepare the dataset again."
        )
    if (others := sorted(_NAMES ^ (facts.keys() | _MAY_BE_MISSING))) and facts.keys() >= _ALWAYS_PRESENT:
        lacks = [name for name in others if name in _NAMES]
        what = (
            f"it does not say {' and '.join(lacks)}"
            if lacks
            else f"it says {' and '.join(others)}, which this one does not know"
        )
        raise OtherVersionError(
            f"{where} was written by another version of t5prep ({str(facts['created_by'])[:40]}; this is {__version__}): "
            f"{what}. {_OLDER}"
        )
    try:
        manifest = strict_json.converter(many=_MANY).structure(facts, Manifest)
    except cattrs.BaseValidationError as error:
        reason = "; ".join(cattrs.transform_error(error)[:3])
        raise DatasetError(f"{where} is not a whole manifest: {reason}. Prepare the dataset again.") from error
    if manifest.digest != digest(manifest):
        raise DatasetError(
            f"{where} was altered: its digest says {manifest.digest[:12]}…, its content gives {digest(manifest)[:12]}…. "
            "Restore the file, or prepare the dataset again."
        )
    return manifest


def load(data: str | Path) -> Manifest:
    """Read the manifest of a prepared dataset: source, settings, counts, and every shard with its checksum.

    Args:
        data: The dataset's directory or gs:// prefix, or its manifest.json.

    Returns:
        The manifest, checked against its own digest. The shards are not read.

    Raises:
        DatasetError: There is no manifest, or it was altered or written by another version.
        OutputError: The bucket may not be read.

    Example:
        print(t5prep.load("data/sample").splits["train"].records)
    """
    folder = folder_of(data)
    where = paths.at(folder or ".", NAME)
    try:
        return loads(paths.read(paths.at(folder or ".", NAME)), where=where)
    except FileNotFoundError:
        again = (
            f"Upload it (again): t5prep upload DATA {folder}"
            if gcs.is_gs(folder)
            else f"Prepare it (again): t5prep prepare TASK --out {folder} ..."
        )
        if not gcs.is_gs(folder) and folder and not Path(folder).exists():
            raise DatasetError(f"{folder} does not exist.{suggestions.mistyped(folder)} {again}") from None
        inside = "" if gcs.is_gs(folder) else _inside(Path(folder or "."))
        if inside:
            raise DatasetError(
                f"{folder} has no {NAME}, so it is not a prepared dataset; but {inside} is one."
            ) from None
        raise DatasetError(
            f"{folder} has no {NAME}, so it is not a prepared dataset, or preparing did not finish. {again}"
        ) from None
    except NotADirectoryError:
        raise DatasetError(f"{folder} is a file. A prepared dataset is the directory with {NAME} in it.") from None
    except OSError as error:
        raise DatasetError(f"{where} cannot be read ({error.strerror}).") from error


def folder_of(data: str | Path) -> str:
    """Return the directory of a dataset that may be named by its manifest; "" for the working directory.

    >>> folder_of("data/sample/manifest.json"), folder_of("manifest.json"), folder_of("data/sample")
    ('data/sample/', '', 'data/sample')
    """
    name = str(data)
    return name.removesuffix(NAME) if name == NAME or name.endswith("/" + NAME) else name


def _inside(folder: Path) -> str:
    """Return the first dataset right below a directory, or ""."""
    try:
        return next((str(path.parent) for path in sorted(folder.glob(f"*/{NAME}"))), "")
    except OSError:
        return ""
