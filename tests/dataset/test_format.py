"""The format that docs/format.md promises: its schema, its digest, its readers, and datasets that stay readable for ever.

`python tests/dataset/test_format.py` writes those of a new schema, from this folder's `rows`.
"""

import dataclasses
import hashlib
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import readme
import schema
from small_corpora import prepared, records, write_csv

from t5prep.dataset import manifest
from t5prep.dataset.settings import Settings
from t5prep.dataset.verify import verify

STORED_DATASETS = Path(__file__).parents[1] / "data" / "format"
LAYOUTS: dict[str, dict[str, Any]] = {
    "padded": {"masks": True, "shards": 2},
    "ragged": {"layout": "ragged"},
    "packed": {"layout": "packed"},
    "class": {"target": "class", "masks": True, "target_length": 1},
}
READERS = [code.text for code in readme.codes("python") if "test_format.py" in code.text.partition("\n")[0]]


def prepare(out: Path, layout: str) -> None:
    rows = [
        {
            "Id": i,
            "Title": f"sort a list {i}",
            "Body": "ș " * (i % 5) + "why? " * (1 + i % 7),
            "Y": ["HQ", "LQ_EDIT"][i % 2],
        }
        for i in range(40)
    ]
    source = write_csv(out.parent / "rows.csv", [*rows, rows[3], rows[0] | {"Id": 99, "Body": "", "Title": ""}])
    choices = {"splits": {"train": 0.8, "validation": 0.2}, "input_length": 24, "target_length": 4, **LAYOUTS[layout]}
    dataset_manifest = prepared(source, out, tokenizer="sample:", **choices)
    dataset_manifest = dataclasses.replace(
        dataset_manifest, source=dataclasses.replace(dataset_manifest.source, uri="rows.csv")
    )  # not in the digest
    (out / manifest.NAME).write_text(dataset_manifest.dumps(), encoding="utf-8")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_datasets_that_were_written_once_stay_readable(layout: str) -> None:
    dataset_manifest = verify(STORED_DATASETS / layout)
    assert dataset_manifest.settings.layout == LAYOUTS[layout].get("layout", "padded")
    assert sum(split.examples for split in dataset_manifest.splits.values()) == 40
    assert (
        dataset_manifest.digest
        == json.loads((STORED_DATASETS / layout / manifest.NAME).read_text(encoding="utf-8"))["digest"]
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_rows_make_the_same_bytes_as_ever(layout: str, tmp_path: Path) -> None:
    prepare(tmp_path / "out", layout)
    for path in sorted((STORED_DATASETS / layout).iterdir()):
        if path.name != manifest.NAME:
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reader_in_plain_python_reads_what_ours_does(layout: str) -> None:
    scope: dict[str, Any] = {}
    exec(READERS[0], scope)
    for split, expected in records(STORED_DATASETS / layout).items():
        assert list(scope["read"](STORED_DATASETS / layout, split)) == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reader_in_tensorflow_reads_what_ours_does(layout: str) -> None:
    scope: dict[str, Any] = {}
    exec(READERS[1], scope)
    for split, expected in records(STORED_DATASETS / layout).items():
        read = [
            {name: value.numpy().tolist() for name, value in record.items()}
            for record in scope["dataset"](STORED_DATASETS / layout, split)
        ]
        assert read == expected


BATCH, SEED, STEPS = 4, 7, 24  # three epochs of 32 records
_TORCH = f"""
import json, sys
data, host, hosts, start, workers = sys.argv[1], *map(int, sys.argv[2:])
batches = Batches(data, "train", {BATCH}, seed={SEED}, host=host, hosts=hosts)
for batch in loader(batches, start, {STEPS}, workers):
    print(json.dumps({{name: tensor.tolist() for name, tensor in batch.items()}}))
"""


def _trained(host: int, hosts: int, start: int) -> list[dict[str, list]]:
    """Return what the trainer reads from a step on."""
    import t5prep

    batches = t5prep.train_batches(
        str(STORED_DATASETS / "padded"), global_batch=BATCH, seed=SEED, start_step=start, host=host, hosts=hosts
    )
    return [
        {name: np.asarray(batch[name]).tolist() for name in ("input_ids", "labels")}
        for batch in itertools.islice(batches, STEPS - start)
    ]


def _scope(*readers: int) -> dict[str, Any]:
    """Return the names that these readers of the page define, each with those of the ones before it."""
    scope: dict[str, Any] = {}
    for reader in (0, 2, *readers):
        exec(READERS[reader], scope)
    return scope


@pytest.mark.parametrize(("host", "hosts", "start"), [(0, 1, 0), (1, 2, 13)])
def test_the_order_of_training_is_as_the_page_says(host: int, hosts: int, start: int) -> None:
    """In plain Python and numpy, and in TensorFlow: each host's batches, from any step on."""
    expected = _trained(host, hosts, start)
    assert len(expected) == STEPS - start
    assert expected[0] != expected[-1]
    scope = _scope(5)
    batches = scope["Batches"](STORED_DATASETS / "padded", "train", BATCH, seed=SEED, host=host, hosts=hosts)
    plain = [
        {name: [record[name] for record in batches[step]] for name in ("input_ids", "labels")}
        for step in range(start, STEPS)
    ]
    assert plain == expected
    read = [
        {name: value.numpy().tolist() for name, value in batch.items()}
        for batch in scope["steps"](batches, start, STEPS)
    ]
    assert read == expected


@pytest.mark.extra("grain")
@pytest.mark.parametrize(("host", "hosts", "start"), [(0, 1, 0), (1, 2, 13)])
def test_grain_reads_the_order_of_training(host: int, hosts: int, start: int) -> None:
    scope = _scope(4)
    batches = scope["Batches"](STORED_DATASETS / "padded", "train", BATCH, seed=SEED, host=host, hosts=hosts)
    iterator = scope["iterator"](batches, STEPS)
    for _ in range(start):
        next(iterator)
    resumed_iterator = scope["iterator"](batches, STEPS)
    resumed_iterator.set_state(iterator.get_state())
    read = [{name: value.tolist() for name, value in batch.items()} for batch in resumed_iterator]
    assert read == _trained(host, hosts, start)


def test_a_whole_split_is_read_in_the_order_of_training(tmp_path: Path) -> None:
    """With many lanes, blocks of another size at the end of each shard, and windows of several steps."""
    import t5prep

    rows = [{"q": f"question {n}", "a": str(n)} for n in range(2600)]
    prepared(
        write_csv(tmp_path / "rows.csv", rows), tmp_path / "out", task="text2text", tokenizer="sample:", shards=5,
        options={"inputs_column": "q", "targets_column": "a"}, input_length=8, target_length=8, splits={"train": 1.0},
    )  # fmt: skip
    for batch, seed in ((8, 0), (24, 2**31 - 1)):
        batches = _scope()["Batches"](tmp_path / "out", "train", batch, seed=seed)
        assert batches.lanes > 1
        for step in (0, 1, batches.steps, 2600 // batch - 1, 2600 // batch, 7 * 2600 // batch + 3):
            theirs = next(
                iter(t5prep.train_batches(str(tmp_path / "out"), global_batch=batch, seed=seed, start_step=step))
            )
            assert [record["labels"] for record in batches[step]] == np.asarray(theirs["labels"]).tolist(), (
                batch,
                step,
            )


@pytest.mark.extra("torch")
@pytest.mark.parametrize(("host", "hosts", "start", "workers"), [(0, 1, 0, 0), (1, 2, 13, 2)])
def test_pytorch_reads_the_order_of_training(host: int, hosts: int, start: int, workers: int, tmp_path: Path) -> None:
    """In a process of its own: TensorFlow and PyTorch do not live in one everywhere."""
    (script := tmp_path / "read.py").write_text(READERS[0] + READERS[2] + READERS[3] + _TORCH)
    command = [sys.executable, str(script), str(STORED_DATASETS / "padded"), *map(str, (host, hosts, start, workers))]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in result.stdout.splitlines()] == _trained(host, hosts, start)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_digest_is_as_the_page_says(layout: str) -> None:
    facts = json.loads((STORED_DATASETS / layout / manifest.NAME).read_text(encoding="utf-8"))
    expected_digest = facts.pop("digest")
    del facts["created_by"], facts["source"]["uri"], facts["tokenizer"]["name"], facts["settings"]["shards"]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == expected_digest


def test_the_schema_has_the_fields_of_the_manifest() -> None:
    """A new field belongs into the schema, and is not required there: datasets from before do not have it."""
    for kind, described in (
        (manifest.Manifest, schema.SCHEMA),
        *((getattr(manifest, name.title()), schema.SCHEMA["$defs"][name]) for name in ("shard", "split", "feature", "rows")),
        *((getattr(manifest, name), schema.SCHEMA["properties"][key]) for name, key in (
            ("TaskFacts", "task"), ("Source", "source"), ("Tokenizer", "tokenizer"))),
        (Settings, schema.SCHEMA["$defs"]["settings"]),
    ):  # fmt: skip
        fields = {field.name for field in dataclasses.fields(kind)}
        assert set(described["properties"]) == fields, "docs/manifest.schema.json, and a default in docs/format.md"


def test_what_is_no_manifest_does_not_fit_the_schema() -> None:
    facts = json.loads((STORED_DATASETS / "padded" / manifest.NAME).read_text(encoding="utf-8"))
    assert schema.problems(facts) == []
    for change in (
        {"schema": 1}, {"digest": "x"}, {"splits": {"train": {}}}, {"warnings": [1]}, {"settings": facts["settings"] | {"mood": 1}},
        {"rejected": {"a": -1}}, {"features": {"id": {"dtype": "float", "shape": [1]}}}, {"rejected": {"a": True}},
    ):  # fmt: skip
        assert schema.problems(facts | change), change
    assert schema.problems({name: value for name, value in facts.items() if name != "tokenizer"}) == [
        ".tokenizer: missing"
    ]


if __name__ == "__main__":
    for name in LAYOUTS:
        shutil.rmtree(STORED_DATASETS / name, ignore_errors=True)
        prepare(STORED_DATASETS / name, name)
    (STORED_DATASETS / "rows.csv").unlink()
