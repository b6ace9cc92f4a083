"""Describe a prepared dataset in its manifest, the only thing that preparing and training share.

It is written last, so a directory without one is not a dataset. Its digest covers everything that decides the shards'
bytes and the shards themselves, so a manifest edited by hand is refused.
"""

import collections
import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from t5prep.dataset import manifest_checks
from t5prep.dataset.rejected_rows import RejectedFile, Rows
from t5prep.dataset.settings import Settings
from t5prep.dataset.shard_files import Index, Lengths, Origins, Shard
from t5prep.errors import DatasetError
from t5prep.io import gcs, paths
from t5prep.tasks.targets import Target, target_of
from t5prep.version import __version__

if TYPE_CHECKING:  # only what reads a manifest needs it: workers read none
    import cattrs
    from _typeshed import DataclassInstance

# 2: the settings as they were given, in one place; the task's metrics and classes.
SCHEMA = 2
NAME = "manifest.json"
# This many of the JSON encoder's pieces, a name or a number each, are joined into one.
_JOINED_PIECES = 4096
TASK_FILE = "task.py"  # the user's own file of a task, kept beside the dataset that it made
_FILTER_FILE = re.compile(r"filter-\d+\.(py|txt)")


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
    """The facts about a task that training and evaluation need, so that they need no registry of tasks.

    `metrics` are those that its answers are scored by, `classes` the words of a classification in the order of a confusion
    matrix, and `hides_spans` says that rows are cut out of joined texts, in which spans or tokens are hidden. `file` is the
    name of the user's own file that defines the task, and `sha256` its checksum; both are "" for an installed task.
    """

    metrics: list[str]
    classes: list[str]
    hides_spans: bool = False
    file: str = ""
    sha256: str = ""

    def check_code(self, code: bytes, *, path: str) -> None:
        """Raise DatasetError if the content of `path` is not the user's own file that made the dataset."""
        if problem := _altered(code, self.sha256, path=path, original=f"{self.file} that made the dataset"):
            raise DatasetError(f"{problem}, or remove this one: rows are then inputs as they stand.")


class TruncatedRow(TypedDict):
    """Name a row of a split that lost tokens of its `tokens`."""

    id: str
    tokens: int
    lost: int
    split: str


class Cut(TypedDict):
    """Say what truncation cost one side. Of inputs, `tokens_before` are percentiles: p50, p90, p95, p99, max."""

    rows_cut: int
    tokens_lost: int
    worst: list[TruncatedRow]
    tokens_before: NotRequired[dict[str, int]]


class Ledger(TypedDict):
    """Say what truncation cost; of rows that were split, how many and into how many examples."""

    inputs: Cut
    targets: Cut
    split: NotRequired[dict[str, int]]


class Packed(TypedDict):
    """Say how many examples the rows of a split hold, and what share of them is padding."""

    examples: int
    padding_before: float
    padding_after: float


class Histogram(TypedDict):
    """Count the records of each length: (input, target) tokens kept, in steps of `step`, and inputs as they were."""

    step: tuple[int, int]
    joint: list[tuple[int, int, int]]
    inputs_before: list[tuple[int, int]]
    packed: NotRequired[Packed]
    documents: NotRequired[int]  # that rows with hidden spans were made of


class Sides(TypedDict):
    """Count the tokens of both sides."""

    inputs: int
    targets: int


@dataclasses.dataclass(frozen=True)
class Split:
    """Describe one split. `lengths` are for planning."""

    records: int
    tokens: Sides
    lengths: Histogram
    unk_rate: float
    labels: dict[str, int]
    rejected: dict[str, int]
    shards: list[Shard]
    examples: int = 0  # rows of the source that its records were made of

    @property
    def tokens_of_record(self) -> float:
        """Return how many tokens of both sides a record has on average."""
        return (self.tokens["inputs"] + self.tokens["targets"]) / max(1, self.records)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Rows that are nearly the same text, named by the one that was kept: its id, its file, its row; `rows` counts it too."""

    rows: int
    id: str
    file: str
    row: int


@dataclasses.dataclass(frozen=True)
class NearDuplicates:
    """The result of the search for near-duplicates: clusters, the largest of them, and leaks.

    `across_splits` counts the rows left out that would have stood in another split than the row that was kept.
    """

    clusters: int
    across_splits: int
    largest: list[Cluster]


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Count the rows that repeat another row, and those of them that repeat a row of another split.

    Rows repeat each other if the ids of their inputs and of their labels are equal. `exact` is false if they are
    estimated from a sample, because there are more different rows than are counted.
    """

    rows: int
    across_splits: int
    exact: bool


@dataclasses.dataclass(frozen=True)
class TextFacts:
    """Count, of the `rows` that made examples, what matters of their texts: unknown characters, HTML, repeated rows.

    `characters` are the unknown characters and how often they stand in these rows, the most frequent first;
    `repeats` is None if repeated rows are left out anyway (--dedup).
    """

    rows: int
    inputs_unknown: int
    targets_unknown: int
    characters: list[tuple[str, int]]
    with_markup: int
    repeats: Repeats | None


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Describe a whole prepared dataset: what was chosen, what it was made of, what came out."""

    schema: int
    created_by: str
    settings: Settings
    task: TaskFacts
    source: Source
    tokenizer: Tokenizer
    features: dict[str, Feature]
    ledger: Ledger
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
    near_duplicates: NearDuplicates | None = None  # None if they were not looked for
    texts: TextFacts | None = None  # None if it was written before there were any
    index: Index | None = None
    lengths: Lengths | None = None  # None if rows are packed, or all splits are very large
    origins: Origins | None = None  # None if all splits are very large, or it was written before there were any
    digest: str = ""

    @property
    def target(self) -> Target:
        """Return what its targets are, with the task's classes."""
        return target_of(self.settings.target, self.task.classes)

    @property
    def shards(self) -> list[Shard]:
        """Return the shards of all splits."""
        return [shard for split in self.splits.values() for shard in split.shards]

    @property
    def records(self) -> int:
        """Return the number of records of all splits."""
        return sum(split.records for split in self.splits.values())

    @property
    def labels(self) -> list[str]:
        """Return the targets that are counted, of all splits, the most frequent first."""
        counts = sum((collections.Counter(split.labels) for split in self.splits.values()), collections.Counter[str]())
        return sorted(counts, key=lambda label: (-counts[label], label))

    @property
    def marked(self) -> bool:
        """Check whether a sentinel in an input marks its cut-out middle. In span corruption it marks a hidden span."""
        return self.settings.marked and not self.task.hides_spans

    @property
    def filter_names(self) -> dict[str, str]:
        """Return the names, beside the dataset, of the copies of the files that its filters read, by the files' paths."""
        return {
            path: f"filter-{number}{'.py' if path.endswith('.py') else '.txt'}"
            for number, path in enumerate(self.filter_files)
        }

    def check_filter(self, content: bytes, *, file: str, path: str) -> None:
        """Raise DatasetError if the content of `path` is not that of the `file` that its filters read."""
        original = f"{file} that filtered the texts"
        if problem := _altered(content, self.filter_files[file], path=path, original=original):
            raise DatasetError(f"{problem}.")

    def sealed(self) -> "Manifest":
        """Return the same manifest with its digest filled in."""
        return dataclasses.replace(self, digest=digest(self))

    def dumps(self) -> str:
        """Return the manifest as JSON, the same bytes for the same manifest."""
        return b"".join(self.pieces()).decode()

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of `dumps` in pieces: a dataset of 100,000 shards has a manifest of 20 MB."""
        yield from json_pieces(self, indent=2, ensure_ascii=False)
        yield b"\n"


def _altered(content: bytes, sha256: str, *, path: str, original: str) -> str:
    """Return that the content of `path` is not that of the original file, and what to do, without a full stop; "" if it is."""
    actual_sha256 = hashlib.sha256(content).hexdigest()
    if actual_sha256 == sha256:
        return ""
    return (
        f"{path} is altered: it has the SHA-256 {actual_sha256[:12]}…, and the file {original} had {sha256[:12]}…. "
        "Put that one there"
    )


def fields_of(described: "DataclassInstance") -> dict[str, Any]:
    """Return the fields of a dataclass by name, their values as they are."""
    return {field.name: getattr(described, field.name) for field in dataclasses.fields(described)}


def json_pieces(facts: object, **options: Any) -> Iterator[bytes]:
    """Yield the JSON of `facts` in UTF-8, some tens of kilobytes at a time.

    Of a dataclass, its fields. `options` are options of json.dumps.

    >>> b"".join(json_pieces([1, {"a": 2}], separators=(",", ":")))
    b'[1,{"a":2}]'
    """
    # In pieces, the encoder asks for each object when it reaches it.
    encoded = json.JSONEncoder(default=fields_of, **options).iterencode(facts)
    while part := "".join(itertools.islice(encoded, _JOINED_PIECES)):
        yield part.encode()


def digest(manifest: Manifest) -> str:
    """Return the SHA-256 (hex) of all that decides the records: not of who wrote them, nor of the names of what was read.

    The number of shards that was asked for is left out too: the shards themselves are in it.
    """
    facts = fields_of(manifest)
    return _digest(facts | {name: fields_of(facts[name]) for name in ("source", "tokenizer", "settings")})


def _digest(facts: Mapping[str, Any]) -> str:
    """Return the digest of a manifest as its file says it, with fields that this version does not know (docs/format.md)."""
    left_out = {"source": "uri", "tokenizer": "name", "settings": "shards"}
    digested_facts = {name: value for name, value in facts.items() if name not in ("digest", "created_by")}
    digested_facts |= {
        name: {key: value for key, value in facts[name].items() if key != key_out} for name, key_out in left_out.items()
    }
    sha256 = hashlib.sha256()
    for piece in json_pieces(digested_facts, sort_keys=True, separators=(",", ":")):
        sha256.update(piece)
    return sha256.hexdigest()


def record_features(settings: Settings, *, references: bool) -> dict[str, Feature]:
    """Return the features of a record of this preparation, as the manifest names them."""
    inputs, targets = settings.input_length, settings.target_length
    if settings.is_packed:
        lengths = {"input_ids": inputs, "input_positions": inputs, "input_segment_ids": inputs}
        lengths |= {"label_positions": targets, "label_segment_ids": targets, "labels": targets}
        return {"id": Feature("bytes", [None]), **{name: Feature("int64", [n]) for name, n in lengths.items()}}
    ragged = settings.layout == "ragged"
    spec = {
        "id": Feature("bytes", [1]),
        "input_ids": Feature("int64", [None if ragged else inputs]),
        "labels": Feature("int64", [None if ragged else targets]),
    }
    if settings.masks:
        spec["attention_mask"] = Feature("int64", [inputs])
        if mask := target_of(settings.target).mask:
            spec[mask] = Feature("int64", [inputs if mask == "token_type_ids" else targets])
    if references:
        spec["references"] = Feature("bytes", [None])
    return dict(sorted(spec.items()))


def loads(text: str | bytes, *, location: str) -> Manifest:
    """Return a manifest from its JSON; `location` is named in errors.

    Raises DatasetError when it is not JSON, not a manifest, of a newer schema, or altered since it was written.
    """
    import cattrs

    try:
        facts = manifest_checks.parse(text)
    except ValueError as error:
        raise DatasetError(f"{location} is not a t5prep manifest ({error}). Prepare the dataset again.") from error
    schema = facts["schema"]
    if schema != SCHEMA:
        raise DatasetError(
            f"{location} has schema {str(schema)[:40]!r} ({str(facts.get('created_by'))[:40]}); t5prep {__version__} reads schema "
            f"{SCHEMA}. Prepare the dataset again, or read it with the t5prep that wrote it."
        )
    try:
        manifest = converter().structure(facts, Manifest)
    except cattrs.BaseValidationError as error:
        problem = manifest_checks.reasons(error)
        raise DatasetError(f"{location} is not a whole manifest: {problem}. Prepare the dataset again.") from error
    if manifest.digest != (actual_digest := _digest(facts)):
        raise DatasetError(
            f"{location} was altered: its digest says {manifest.digest[:12]}…, its content gives {actual_digest[:12]}…. "
            "Restore the file, or prepare the dataset again."
        )
    problem = manifest_checks.problem(manifest)
    if not problem and manifest.features != record_features(
        manifest.settings, references="references" in manifest.features
    ):
        problem = "it has other features than its settings make"
    if problem:
        raise DatasetError(f"{location} is not a whole manifest: {problem}. Prepare the dataset again.")
    return manifest


def converter() -> "cattrs.Converter":
    """Return a converter that takes no choice that it does not know, and no value of another type: a guess would train on wrong data.

    Other fields that a later version says beside those of this schema are passed over.
    """
    import cattrs
    from cattrs.gen import make_dict_structure_fn

    # Of the settings, the seed may be negative; all other whole numbers of a manifest are counts.
    strict, of_settings = cattrs.Converter(), cattrs.Converter()
    for new_converter in (strict, of_settings):
        for kind in (bool, int, float, str):
            new_converter.register_structure_hook(kind, _plain)
        new_converter.register_structure_hook(
            int | None, lambda value, _: None if value is None else _plain(value, int)
        )
        manifest_checks.stop_at_the_first_error(new_converter)
    strict.register_structure_hook(int, lambda value, _: manifest_checks.count(value))
    settings_hook = make_dict_structure_fn(Settings, of_settings, _cattrs_forbid_extra_keys=True)
    strict.register_structure_hook(Settings, settings_hook)
    return strict


def _plain(value: Any, kind: type) -> object:
    """Return a value that is of the kind: a finite number that 64 bits hold, or a text that can be written. Raises ValueError."""
    number = kind in (int, float) and isinstance(value, int | kind) and not isinstance(value, bool)
    if not (-(1 << 63) <= value < 1 << 63 if number else type(value) is kind):  # no NaN is
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    if kind is str:
        value.encode()
    return value


def load(data: str | Path) -> Manifest:
    """Read the manifest of a prepared dataset: source, settings, counts, and every shard with its checksum.

    Args:
        data: The dataset's directory or gs:// prefix, or its manifest.json.

    Returns:
        The manifest, checked against its own digest. The shards are not read.

    Raises:
        DatasetError: There is no manifest, or it was altered or has another schema.
        OutputError: The bucket may not be read.

    Example:
        print(t5prep.load("data/sample").splits["train"].records)
    """
    folder = folder_of(data)
    manifest_path = paths.join(folder or ".", NAME)
    try:
        return loads(paths.read(paths.join(folder or ".", NAME)), location=manifest_path)
    except FileNotFoundError:
        advice = (
            f"Upload it (again): t5prep upload DATA {folder}"
            if gcs.is_gs(folder)
            else f"Prepare it (again): t5prep prepare TASK --out {folder} ..."
        )
        if not gcs.is_gs(folder) and folder and not Path(folder).exists():
            raise DatasetError(f"{folder} does not exist.{paths.mistyped(folder)} {advice}") from None
        if not gcs.is_gs(folder) and (Path(folder or ".") / "train.json").is_file():
            raise DatasetError(
                f"{folder} is a training run, and not a prepared dataset. To look at a run: t5prep report {folder}"
            ) from None
        inside = "" if gcs.is_gs(folder) else _inside(Path(folder or "."))
        if inside:
            raise DatasetError(
                f"{folder} has no {NAME}, so it is not a prepared dataset; but {inside} is one."
            ) from None
        raise DatasetError(
            f"{folder} has no {NAME}, so it is not a prepared dataset, or preparing did not finish. {advice}"
        ) from None
    except NotADirectoryError:
        raise DatasetError(f"{folder} is a file. A prepared dataset is the directory with {NAME} in it.") from None
    except OSError as error:
        raise DatasetError(f"{manifest_path} cannot be read ({error.strerror}).") from error
    except ValueError:  # of the system's call
        raise DatasetError(f"{str(data)!r} is not a dataset: a name of a folder holds no NUL character.") from None


def is_filter_file(name: str) -> bool:
    """Check whether a file of this name is a copy of one that a dataset's filters read."""
    return _FILTER_FILE.fullmatch(name) is not None


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
