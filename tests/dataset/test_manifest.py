"""The manifest: read as it was written, and refused in one sentence where it was not."""

import dataclasses
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from raised import raises
from toy_dataset import no_lengths, nothing_cut

from t5prep.dataset import manifest
from t5prep.dataset.manifest import Manifest, Source, SourceFile, Split, TaskFacts, Tokenizer
from t5prep.dataset.rejected_rows import RejectedFile
from t5prep.dataset.settings import Settings
from t5prep.dataset.shard_files import Index, Shard
from t5prep.errors import DatasetError

SETTINGS = Settings("mine", {"columns": ["a", "b"], "mark": "ă"}, 64, 8, splits={"train": 0.9, "test": 0.1}, limit=7)
MANIFEST = Manifest(
    schema=manifest.SCHEMA,
    created_by="t5prep 0.1.0",
    settings=SETTINGS,
    task=TaskFacts(["rouge"], ["low", "high"], file="mine.py", sha256="e" * 64),
    source=Source("sample:", "1", [SourceFile("a.csv", 7, "f" * 64)], "MIT", "None"),
    tokenizer=Tokenizer("t5", "a" * 64, 32000, 32128, 0, 1, 2),
    features=manifest.record_features(SETTINGS, references=False),
    ledger=nothing_cut(),
    splits={
        "train": Split(
            3,
            {"inputs": 9, "targets": 6},
            no_lengths(),
            0.0,
            {},
            {},
            [Shard("train.tfrecord-00000-of-00001", 3, 9, "b" * 64)],
        )
    },
    rejected={"empty text": 1},
    warnings=[],
).sealed()


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(MANIFEST.dumps()), **changes})


def test_the_smallest_seed_is_read_again() -> None:
    smallest = dataclasses.replace(MANIFEST.settings, seed=-(1 << 63))
    assert manifest.converter().structure(dataclasses.asdict(smallest), Settings) == smallest


def test_what_is_written_is_what_is_read() -> None:
    assert manifest.loads(MANIFEST.dumps(), location="it") == MANIFEST
    assert manifest.loads(MANIFEST.dumps(), location="it").dumps() == MANIFEST.dumps()


@pytest.mark.parametrize(
    ("key_path", "value"),
    [
        (("ledger", "targets", "worst"), True),
        (("ledger", "inputs", "worst"), [{"id": "1", "tokens": 1, "lost": {}, "split": "train"}]),
        (("splits", "train", "lengths", "joint"), [1 << 31]),
        (("splits", "train", "lengths", "joint"), [[16, 4, 1 << 63]]),
        (("splits", "train", "tokens"), {"inputs": 9}),
        (("splits", "train", "unk_rate"), float("nan")),
        (("settings", "delimiter"), None),
        (("settings", "masks"), "no"),
        (("settings", "seed"), "1_0"),
        (("source", "licence"), "\ud800"),
    ],
)
def test_a_value_of_another_type_is_no_manifest(key_path: tuple[str, ...], value: Any) -> None:
    """Sealed with its own digest: whoever wrote it did not alter it."""
    facts = json.loads(MANIFEST.dumps())
    holder = facts
    for name in key_path[:-1]:
        holder = holder[name]
    holder[key_path[-1]] = value
    facts["digest"] = manifest._digest(facts)
    with raises(DatasetError, "dataset.invalid-manifest", str(key_path[-1])):
        manifest.loads(json.dumps(facts), location="it")


def test_many_shards_need_memory_for_themselves_alone() -> None:
    """Writing a manifest of 5,000 shards takes less than a hundred bytes for each, reading it less than a thousand."""
    shards = [Shard(f"train.tfrecord-{i:05d}-of-05000", i, 9, f"{i:064x}") for i in range(5000)]
    dataset_manifest = dataclasses.replace(
        MANIFEST,
        splits={"train": dataclasses.replace(MANIFEST.splits["train"], shards=shards, records=sum(range(5000)))},
    ).sealed()
    text = dataset_manifest.dumps()
    size = len(text.encode())
    tracemalloc.start()
    try:
        assert sum(map(len, dataset_manifest.pieces())) == size
        assert dataset_manifest.sealed() == dataset_manifest
        assert tracemalloc.get_traced_memory()[1] < 100 * len(shards) + (1 << 20)
        tracemalloc.reset_peak()
        assert manifest.loads(text, location="it") == dataset_manifest
        assert tracemalloc.get_traced_memory()[1] < 700 * len(shards) + (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"created_by": "t5prep 9"}, True),
        ({"settings": dataclasses.replace(SETTINGS, shards=4)}, True),
        ({"source": dataclasses.replace(MANIFEST.source, uri="gs://elsewhere")}, True),
        ({"tokenizer": dataclasses.replace(MANIFEST.tokenizer, name="mine")}, True),
        ({"settings": dataclasses.replace(SETTINGS, seed=1)}, False),
        ({"task": dataclasses.replace(MANIFEST.task, sha256="d" * 64)}, False),
        ({"rejected": {}}, False),
    ],
)
def test_the_digest_is_of_what_decides_the_records(change: dict[str, Any], is_same: bool) -> None:
    assert (dataclasses.replace(MANIFEST, **change).sealed().digest == MANIFEST.digest) == is_same


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", ("dataset.invalid-manifest", "JSON")),
        ("[]", ("dataset.invalid-manifest", "schema")),
        (changed(rejected={}), ("dataset.altered", MANIFEST.digest[:12])),
        (changed(schema=1), ("dataset.unsupported-schema", "'1'", "t5prep 0.1.0", " 2.")),
        (changed(schema=3), ("dataset.unsupported-schema", "'3'", " 2.")),
        (changed(schema="2"), ("dataset.unsupported-schema", "'2'", " 2.")),
        (changed(mood="good"), ("dataset.altered", MANIFEST.digest[:12])),
        (changed(splits={"train": {"records": "many"}}), ("dataset.invalid-manifest", "splits")),
        (changed(settings={**dataclasses.asdict(SETTINGS), "layout": "round"}), ("dataset.invalid-manifest", "round")),
        (changed(settings={**dataclasses.asdict(SETTINGS), "mood": 1}), ("dataset.invalid-manifest", "mood")),
    ],
)
def test_another_manifest_is_a_sentence(text: str, error: tuple[str, ...]) -> None:
    with raises(DatasetError, *error, "FOLDER/manifest.json") as caught:
        manifest.loads(text, location="FOLDER/manifest.json")
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_manifest_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / manifest.NAME).write_text(MANIFEST.dumps())
    with raises(DatasetError, "dataset.missing-manifest", str(tmp_path / "data")):
        manifest.load(tmp_path)
    with raises(DatasetError, "dataset.not-found", str(tmp_path / "dat")):
        manifest.load(tmp_path / "dat")
    assert manifest.load(tmp_path / "data" / manifest.NAME) == manifest.load(tmp_path / "data") == MANIFEST


SHARD = {"name": "train.tfrecord-00000-of-00001", "records": 1, "bytes": 2, "sha256": "a" * 64}


def test_a_shard_in_a_place_where_none_belongs_is_no_manifest(toy: manifest.Manifest) -> None:
    facts = json.loads(toy.dumps())
    for change in ({"source": SHARD}, {"settings": SHARD}, {"splits": SHARD}, {"rejected": SHARD}):
        with raises(DatasetError, "dataset.invalid-manifest"):
            manifest.loads(json.dumps({**facts, **change}), location="it")


@pytest.fixture
def toy() -> manifest.Manifest:
    from test_manifest import MANIFEST

    return dataclasses.replace(MANIFEST)


def test_a_field_of_a_later_version_is_passed_over_and_covered_by_the_digest() -> None:
    facts = {**json.loads(MANIFEST.dumps()), "mood": "good"}
    facts["splits"]["train"]["mood"] = {"a": 1}
    with raises(DatasetError, "dataset.altered"):
        manifest.loads(json.dumps(facts), location="it")
    facts["digest"] = manifest._digest(facts)
    read = manifest.loads(json.dumps(facts), location="it")
    assert dataclasses.replace(read, digest=MANIFEST.digest) == MANIFEST
    facts["mood"] = "bad"
    with raises(DatasetError, "dataset.altered"):
        manifest.loads(json.dumps(facts), location="it")


@pytest.mark.parametrize("name", ["../train.tfrecord-00000-of-00001", "/etc/passwd", "a\\b", "a\0"])
@pytest.mark.parametrize("section", ["shard", "split", "index", "rejected"])
def test_names_that_lead_elsewhere_are_refused(name: str, section: str) -> None:
    """`push --data` wrote the table of a split named `../../x` two folders above the dataset."""
    split = MANIFEST.splits["train"]
    changes: dict[str, Any] = {
        "shard": {"splits": {"train": dataclasses.replace(split, shards=[Shard(name, 3, 9, "b" * 64)])}},
        "split": {"splits": {name: split}},
        "index": {"index": Index(name, 4, "b" * 64, {"train": 1})},
        "rejected": {"rejected_file": RejectedFile(name, 1, 4, "b" * 64)},
    }[section]
    dataset_manifest = dataclasses.replace(MANIFEST, **changes).sealed()
    with raises(DatasetError, "dataset.invalid-manifest"):
        manifest.loads(dataset_manifest.dumps(), location="it")


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Stand for a shard."""

    name: str
    bytes: int


@pytest.mark.parametrize(
    "options", [{}, {"indent": 2, "ensure_ascii": False}, {"sort_keys": True, "separators": (",", ":")}]
)
def test_the_bytes_are_those_of_a_text_made_at_once(options: dict[str, Any]) -> None:
    parts = [Part(f"ă{i}", i) for i in range(3000)]
    facts = {"z": 1, "parts": parts, "none": [], "a": {"b": None, "part": parts[0]}}
    pieces = list(manifest.json_pieces(facts, **options))
    assert len(pieces) > 2
    assert b"".join(pieces) == json.dumps(facts, default=dataclasses.asdict, **options).encode()


def test_a_hundred_thousand_parts_are_not_in_memory_as_text() -> None:
    part = Part("x" * 300, 1)
    tracemalloc.start()
    try:
        size = sum(len(piece) for piece in manifest.json_pieces([part] * 10_000, indent=2))
        assert tracemalloc.get_traced_memory()[1] < size / 4
    finally:
        tracemalloc.stop()
