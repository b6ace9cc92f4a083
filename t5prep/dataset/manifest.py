"""Define the manifest of a prepared dataset: its settings, source, counts and shards. docs/format.md describes the file.

The manifest is the only connection between preparing and training. It is written last, so a directory without one is no
dataset. Its digest covers the shards and everything that decides their bytes. A manifest edited by hand is refused.
"""

import collections
import dataclasses
import functools
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

if TYPE_CHECKING:  # imported where a manifest is read: workers read none, and start sooner without
    import cattrs
    from _typeshed import DataclassInstance

# Schema 2 has the settings as the user chose them in one place, and the task's metrics and classes.
SCHEMA = 2
NAME = "manifest.json"
# The JSON encoder yields a piece for each name and number. This many are joined, because each write costs a call.
_JOINED_PIECES = 4096
TASK_FILE = "task.py"  # the copy, beside the dataset, of the user's Python file that defines the task
_FILTER_FILE = re.compile(r"filter-\d+\.(py|txt)")


@dataclasses.dataclass(frozen=True, slots=True)
class SourceFile:
    """Describe one raw file of the source: its name inside the source, its size in bytes and its SHA-256 (hex)."""

    name: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Source:
    """Describe the source of the rows: `uri` as the user passed it, `revision` as resolved when the files were read."""

    uri: str
    revision: str
    files: list[SourceFile]
    licence: str
    citation: str


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """Describe the tokenizer that made the ids. Its SHA-256 is its identity, and its name is for people.

    `vocab_size` is the number of the model's own pieces (32,000 for T5). `padded_vocab_size` is the number of rows of an
    embedding (32,128): the pieces, 100 sentinels, and padding to a multiple of 128.
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
    """Describe one feature of a record: `dtype` is "int64" or "bytes", and `shape` `[n]`, or `[None]` for any number of values."""

    dtype: str
    shape: list[int | None]


@dataclasses.dataclass(frozen=True)
class TaskFacts:
    """Hold the facts about a task that training and evaluation need, so that neither needs the registry of tasks.

    * metrics: the metrics that score its answers.
    * classes: the labels of a classification, in the order of their numbers.
    * hides_spans: True for pre-training, where rows are cut from joined texts, and spans or tokens are hidden in them.
    * file, sha256: the name and checksum of the user's Python file that defines the task; "" for an installed task.
    """

    metrics: list[str]
    classes: list[str]
    hides_spans: bool = False
    file: str = ""
    sha256: str = ""

    def check_code(self, code: bytes, *, path: str) -> None:
        """Raise DatasetError unless `code`, the content of `path`, is the user's file of the task that made the dataset."""
        if problem := _altered(code, self.sha256, path=path, original=f"{self.file} that made the dataset"):
            raise DatasetError(
                f"{problem}, or remove the altered file to use rows as inputs without changes.", code="dataset.altered"
            )


class TruncatedRow(TypedDict):
    """Describe a truncated row of a split: its id, its `tokens` before the cut, and the `lost` ones."""

    id: str
    tokens: int
    lost: int
    split: str


class Cut(TypedDict):
    """Count what truncation removed from inputs, or from targets. `worst` are the rows that lost most.

    `tokens_before` are percentiles of the lengths of inputs before cutting: p50, p90, p95, p99, max. Targets have none.
    """

    rows_cut: int
    tokens_lost: int
    worst: list[TruncatedRow]
    tokens_before: NotRequired[dict[str, int]]


class Ledger(TypedDict):
    """Count what truncation removed. `split` counts the `rows` that were split, and the `examples` made from them."""

    inputs: Cut
    targets: Cut
    split: NotRequired[dict[str, int]]


class Packed(TypedDict):
    """Count the examples in the packed records of a split. `padding_before` and `padding_after` are shares of all tokens."""

    examples: int
    padding_before: float
    padding_after: float


class Histogram(TypedDict):
    """Count records by length in tokens, rounded up to multiples of `step`, which is (16, 4) for inputs and targets.

    `joint` has (input length, target length, records). `inputs_before` has (length before cutting, inputs).
    """

    step: tuple[int, int]
    joint: list[tuple[int, int, int]]
    inputs_before: list[tuple[int, int]]
    packed: NotRequired[Packed]
    documents: NotRequired[int]  # in pre-training: documents from which the rows were cut


class Sides(TypedDict):
    """Count the tokens of inputs and of targets."""

    inputs: int
    targets: int


@dataclasses.dataclass(frozen=True)
class Split:
    """Describe one split: counts, and its shards in order.

    `lengths` is the histogram that `t5prep plan` reads. `unk_rate` is the share of unknown tokens, 0 to 1. `labels` counts
    the records of each class (none without classes), and `rejected` the rejected rows of each reason.
    """

    records: int
    tokens: Sides
    lengths: Histogram
    unk_rate: float
    labels: dict[str, int]
    rejected: dict[str, int]
    shards: list[Shard]
    examples: int = 0  # more than `records` if these are packed; in pre-training, documents; else equal

    @property
    def tokens_of_record(self) -> float:
        """Return the average number of tokens of a record, inputs and targets together."""
        return (self.tokens["inputs"] + self.tokens["targets"]) / max(1, self.records)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Describe a cluster of near-duplicates by the row that remains: its id, file and row. `rows` counts all, with this one."""

    rows: int
    id: str
    file: str
    row: int


@dataclasses.dataclass(frozen=True)
class NearDuplicates:
    """Hold the result of the search for near-duplicates: the number of clusters, and the largest of them.

    `across_splits` counts the removed rows whose split is not the split of the row that remains: leaks between splits.
    """

    clusters: int
    across_splits: int
    largest: list[Cluster]


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Count the rows that repeat another row, and those that repeat a row of another split (`across_splits`).

    Rows repeat each other if their inputs and labels have equal token ids. `exact` is False if the counts are estimated
    from a sample, because there are too many different rows to count all.
    """

    rows: int
    across_splits: int
    exact: bool


@dataclasses.dataclass(frozen=True)
class TextFacts:
    """Count problems in the texts of the `rows` that made examples.

    `inputs_unknown` and `targets_unknown` count the rows with unknown characters, and `with_markup` those with HTML.
    `characters` are the unknown characters and their frequencies, the most frequent first. `repeats` is None if
    `--dedup` removes repeated rows.
    """

    rows: int
    inputs_unknown: int
    targets_unknown: int
    characters: list[tuple[str, int]]
    with_markup: int
    repeats: Repeats | None


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Describe a prepared dataset: its settings, its source and tokenizer, its splits and rejected rows."""

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
    # Counts of the rows of each source file, and the file of the rows that made no record (None if all rows made one).
    rows: dict[str, Rows] = dataclasses.field(default_factory=dict)
    rejected_file: RejectedFile | None = None
    # By reason: the tokens of inputs that were rejected after tokenizing. By filter: the rows that it changed. By path: the
    # SHA-256 of each of the user's files that a filter read.
    rejected_tokens: dict[str, int] = dataclasses.field(default_factory=dict)
    changed: dict[str, int] = dataclasses.field(default_factory=dict)
    filter_files: dict[str, str] = dataclasses.field(default_factory=dict)
    evaluation_sets: dict[str, str] = dataclasses.field(default_factory=dict)  # a digest of each set of --decontaminate
    earlier: dict[str, str] = dataclasses.field(default_factory=dict)  # the digest of each dataset of --dedup-against
    near_duplicates: NearDuplicates | None = None  # None if they were not searched for (--dedup near)
    # None in a manifest of an early version.
    texts: TextFacts | None = None
    index: Index | None = None
    # None if all splits have more than 2^24 records, in a manifest of an early version, and (lengths) if rows are packed.
    lengths: Lengths | None = None
    origins: Origins | None = None
    digest: str = ""

    @property
    def target(self) -> Target:
        """Return the kind of the dataset's targets, with the task's classes."""
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
        """Return the class names that occur in any split, the most frequent first."""
        counts = sum((collections.Counter(split.labels) for split in self.splits.values()), collections.Counter[str]())
        return sorted(counts, key=lambda label: (-counts[label], label))

    @property
    def marked(self) -> bool:
        """Check whether a sentinel in an input marks the place of a cut. In span corruption, it marks a hidden span."""
        return self.settings.marked and not self.task.hides_spans

    @property
    def filter_names(self) -> dict[str, str]:
        """Return, for the path of each file that a filter read, the name of its copy in the dataset's folder."""
        return {
            path: f"filter-{number}{'.py' if path.endswith('.py') else '.txt'}"
            for number, path in enumerate(self.filter_files)
        }

    def row_totals(self) -> Rows:
        """Return the counts of rows of all source files together."""
        names = [field.name for field in dataclasses.fields(Rows)]
        return Rows(**{name: sum(getattr(rows, name) for rows in self.rows.values()) for name in names})

    def check_filter(self, content: bytes, *, file: str, path: str) -> None:
        """Raise DatasetError unless `content`, read from `path`, equals the `file` that the filters read."""
        original = f"{file} that filtered the texts"
        if problem := _altered(content, self.filter_files[file], path=path, original=original):
            raise DatasetError(f"{problem}.", code="dataset.altered")

    def sealed(self) -> "Manifest":
        """Return a copy of this manifest with its `digest`."""
        return dataclasses.replace(self, digest=digest(self))

    def dumps(self) -> str:
        """Return the manifest as JSON text. Equal manifests give equal texts."""
        return b"".join(self.pieces()).decode()

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of `dumps` in pieces: a dataset of 100,000 shards has a manifest of 20 MB."""
        yield from json_pieces(self, indent=2, ensure_ascii=False)
        yield b"\n"


def _altered(content: bytes, sha256: str, *, path: str, original: str) -> str:
    """Return "" if `content`, read from `path`, has this `sha256`, else an error sentence without its full stop.

    `original` names the file that had this checksum, in the sentence.
    """
    actual_sha256 = hashlib.sha256(content).hexdigest()
    if actual_sha256 == sha256:
        return ""
    return (
        f"{path} was altered: its SHA-256 is {actual_sha256[:12]}…, but the file {original} has {sha256[:12]}…. "
        "Restore the file"
    )


def fields_of(described: "DataclassInstance") -> dict[str, Any]:
    """Return the fields of a dataclass by name. Unlike `dataclasses.asdict`, this copies no value."""
    return {field.name: getattr(described, field.name) for field in dataclasses.fields(described)}


def json_pieces(facts: object, **options: Any) -> Iterator[bytes]:
    """Yield the JSON of `facts` in UTF-8, in pieces of some tens of kilobytes.

    A dataclass is written as an object with its fields. `options` are keywords of `json.dumps`.

    >>> b"".join(json_pieces([1, {"a": 2}], separators=(",", ":")))
    b'[1,{"a":2}]'
    """
    # `iterencode` converts each dataclass when it reaches it, so the complete document is never in memory.
    encoded = json.JSONEncoder(default=fields_of, **options).iterencode(facts)
    while part := "".join(itertools.islice(encoded, _JOINED_PIECES)):
        yield part.encode()


def digest(manifest: Manifest) -> str:
    """Return the SHA-256 (hex) of everything in a manifest that decides the records.

    It does not depend on the writing version, the source's URI and the tokenizer's name, but on the checksums of files and
    tokenizer. It does not depend on the setting `shards`, but on the shards themselves.
    """
    facts = fields_of(manifest)
    return _digest(facts | {name: fields_of(facts[name]) for name in ("source", "tokenizer", "settings")})


def _digest(facts: Mapping[str, Any]) -> str:
    """Return the digest of a manifest, given its JSON as a dict.

    Fields that this version does not know are part of it, so it can check a manifest of a later version (docs/format.md).
    """
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
    """Return the features of a record prepared with these `settings`, by name.

    `references` is True if a split has several reference answers for each record.
    """
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
    """Return a manifest from its JSON. `location` is its path, for errors.

    Raises DatasetError if `text` is not JSON, not a manifest, of another schema, or altered since it was written.
    """
    import cattrs

    try:
        facts = manifest_checks.parse(text)
    except ValueError as error:
        raise DatasetError(
            f"{location} is not a t5prep manifest ({error}). Prepare the dataset again.",
            code="dataset.invalid-manifest",
        ) from error
    schema = facts["schema"]
    if schema != SCHEMA:
        raise DatasetError(
            f"{location} has schema {str(schema)[:40]!r} ({str(facts.get('created_by'))[:40]}), but "
            f"t5prep {__version__} reads schema {SCHEMA}. Prepare the dataset again, or read it with the "
            "t5prep version that wrote it.",
            code="dataset.unsupported-schema",
        )
    try:
        manifest = converter().structure(facts, Manifest)
    except cattrs.BaseValidationError as error:
        problem = manifest_checks.reasons(error)
        raise DatasetError(
            f"{location} is not a valid manifest: {problem}. Prepare the dataset again.",
            code="dataset.invalid-manifest",
        ) from error
    if manifest.digest != (actual_digest := _digest(facts)):
        raise DatasetError(
            f"{location} was altered: it records the digest {manifest.digest[:12]}…, but its content has "
            f"the digest {actual_digest[:12]}…. Restore the file, or prepare the dataset again.",
            code="dataset.altered",
        )
    problem = manifest_checks.problem(manifest)
    if not problem and manifest.features != record_features(
        manifest.settings, references="references" in manifest.features
    ):
        problem = "its features do not match its settings"
    if problem:
        raise DatasetError(
            f"{location} is not a valid manifest: {problem}. Prepare the dataset again.",
            code="dataset.invalid-manifest",
        )
    return manifest


@functools.cache
def converter() -> "cattrs.Converter":
    """Return the converter from JSON to a Manifest, which refuses unknown settings and values of another type.

    A guessed setting would train on wrong data. Unknown fields outside the settings, from a later version, are ignored.
    It is created once, because it compiles a function for each class: that is most of the time of loading a manifest.
    """
    import cattrs
    from cattrs.gen import make_dict_structure_fn

    # Two converters, because the seed in the settings may be negative, and all other whole numbers of a manifest are counts.
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
    """Return `value` if it is a `kind`: a bool, a number of 64 bits, or a text. Raises ValueError for any other value."""
    number = kind in (int, float) and isinstance(value, int | kind) and not isinstance(value, bool)
    if not (-(1 << 63) <= value < 1 << 63 if number else type(value) is kind):  # NaN fails this comparison
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    if kind is str:
        value.encode()  # JSON may hold half of a surrogate pair, which cannot be written; UnicodeEncodeError is a ValueError
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
        return loads(paths.read(manifest_path), location=manifest_path)
    except FileNotFoundError:
        advice = (
            f"Upload it (again): t5prep upload DATA {folder}"
            if gcs.is_gs(folder)
            else f"Prepare it (again): t5prep prepare TASK --out {folder} ..."
        )
        if not gcs.is_gs(folder) and folder and not Path(folder).exists():
            raise DatasetError(
                f"{folder} does not exist.{paths.mistyped(folder)} {advice}", code="dataset.not-found"
            ) from None
        if not gcs.is_gs(folder) and (Path(folder or ".") / "train.json").is_file():
            raise DatasetError(
                f"{folder} is a training run, not a prepared dataset. To inspect a run: t5prep report {folder}",
                code="dataset.run-folder",
            ) from None
        inside = "" if gcs.is_gs(folder) else _inside(Path(folder or "."))
        if inside:
            raise DatasetError(
                f"{folder} has no {NAME}, so it is not a prepared dataset. Name the dataset inside the "
                f"folder: {inside}",
                code="dataset.missing-manifest",
            ) from None
        raise DatasetError(
            f"{folder} has no {NAME}: it is not a prepared dataset, or its preparation did not finish. {advice}",
            code="dataset.missing-manifest",
        ) from None
    except NotADirectoryError:
        raise DatasetError(
            f"{folder} is a file, not a prepared dataset. Name the folder that contains {NAME}.",
            code="dataset.folder-expected",
        ) from None
    except OSError as error:
        raise DatasetError(f"{manifest_path} cannot be read ({error.strerror}).", code="dataset.unreadable") from error
    except ValueError:  # from `open`, for a NUL character
        raise DatasetError(
            f"{str(data)!r} is not a dataset, because a folder name cannot contain a NUL character. Name "
            "another folder.",
            code="file.invalid-name",
        ) from None


def is_filter_file(name: str) -> bool:
    """Check whether `name`, such as `filter-0.py`, names a dataset's copy of a file that its filters read."""
    return _FILTER_FILE.fullmatch(name) is not None


def folder_of(data: str | Path) -> str:
    """Return the directory of the dataset `data`, which is this directory or its manifest; "" is the working directory.

    >>> folder_of("data/sample/manifest.json"), folder_of("manifest.json"), folder_of("data/sample")
    ('data/sample/', '', 'data/sample')
    """
    name = str(data)
    return name.removesuffix(NAME) if name == NAME or name.endswith("/" + NAME) else name


def _inside(folder: Path) -> str:
    """Return the path of the first dataset directly inside `folder`, or ""."""
    try:
        return next((str(path.parent) for path in sorted(folder.glob(f"*/{NAME}"))), "")
    except OSError:
        return ""
