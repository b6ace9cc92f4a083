"""The format that docs/format.md promises: its schema, its digest, its readers, and datasets that stay readable for ever.

`python tests/dataset/test_format.py` writes those of a new schema, from this folder's `rows`.
"""

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import readme
import schema
from preparing import prepared, records, write_csv

from t5prep.dataset import manifest
from t5prep.dataset.settings import Settings
from t5prep.dataset.verify import verify

KEPT = Path(__file__).parents[1] / "data" / "format"
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
    made = prepared(source, out, tokenizer="sample:", **choices)
    made = dataclasses.replace(made, source=dataclasses.replace(made.source, uri="rows.csv"))  # not in the digest
    (out / manifest.NAME).write_text(made.dumps(), encoding="utf-8")
    for name in ("README.md", "croissant.json"):
        (out / name).unlink()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_datasets_that_were_written_once_stay_readable(layout: str) -> None:
    made = verify(KEPT / layout)
    assert made.settings.layout == LAYOUTS[layout].get("layout", "padded")
    assert sum(split.examples for split in made.splits.values()) == 40
    assert made.digest == json.loads((KEPT / layout / manifest.NAME).read_text(encoding="utf-8"))["digest"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_rows_make_the_same_bytes_as_ever(layout: str, tmp_path: Path) -> None:
    prepare(tmp_path / "out", layout)
    for path in sorted((KEPT / layout).iterdir()):
        if path.name != manifest.NAME:
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reader_in_plain_python_reads_what_ours_does(layout: str) -> None:
    scope: dict[str, Any] = {}
    exec(READERS[0], scope)
    for split, expected in records(KEPT / layout).items():
        assert list(scope["read"](KEPT / layout, split)) == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reader_in_tensorflow_reads_what_ours_does(layout: str) -> None:
    pytest.importorskip("tensorflow")
    scope: dict[str, Any] = {}
    exec(READERS[1], scope)
    for split, expected in records(KEPT / layout).items():
        read = [
            {name: value.numpy().tolist() for name, value in one.items()}
            for one in scope["dataset"](KEPT / layout, split)
        ]
        assert read == expected


_TORCH = """
import json, sys
from torch.utils.data import DataLoader
data, split, hosts, workers, skip = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
for host in range(hosts):
    loader = DataLoader(Records(data, split, host, hosts, skip), batch_size=None, num_workers=workers)
    print(json.dumps([record["id"][0].decode() for record in loader]))
"""


@pytest.mark.parametrize(("hosts", "workers"), [(1, 0), (2, 2)])
def test_the_reader_in_pytorch_gives_each_record_once_and_goes_on_at_any_block(
    hosts: int, workers: int, tmp_path: Path
) -> None:
    """In a process of its own: TensorFlow and PyTorch do not live in one everywhere."""
    pytest.importorskip("torch")
    script = tmp_path / "read.py"
    script.write_text(READERS[0] + READERS[2] + _TORCH)
    expected = [record["id"][0].decode() for record in records(KEPT / "padded")["train"]]

    def read(skip: int) -> list[list[str]]:
        command = [sys.executable, str(script), str(KEPT / "padded"), "train", *map(str, (hosts, workers, skip))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    whole, rest = read(0), read(1)
    assert sorted(name for host in whole for name in host) == sorted(expected)
    left = {name for host in rest for name in host}
    assert len(left) == max(0, len(expected) - 8 * hosts * max(workers, 1))
    assert left < set(expected)
    if hosts == 1:
        assert whole[0] == expected
        assert rest[0] == expected[8:]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_digest_is_as_the_page_says(layout: str) -> None:
    facts = json.loads((KEPT / layout / manifest.NAME).read_text(encoding="utf-8"))
    said = facts.pop("digest")
    del facts["created_by"], facts["source"]["uri"], facts["tokenizer"]["name"], facts["settings"]["shards"]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == said


def test_the_schema_has_the_fields_of_the_manifest() -> None:
    """A new field belongs into the schema, and is not required there: datasets from before do not have it."""
    for kind, described in (
        (manifest.Manifest, schema.SCHEMA),
        *((getattr(manifest, name.title()), schema.SCHEMA["$defs"][name]) for name in ("shard", "split", "feature", "rows")),
        *((getattr(manifest, name), schema.SCHEMA["properties"][place]) for name, place in (
            ("TaskFacts", "task"), ("Source", "source"), ("Tokenizer", "tokenizer"))),
        (Settings, schema.SCHEMA["$defs"]["settings"]),
    ):  # fmt: skip
        fields = {field.name for field in dataclasses.fields(kind)}
        assert set(described["properties"]) == fields, "docs/manifest.schema.json, and a default in docs/format.md"


def test_what_is_no_manifest_does_not_fit_the_schema() -> None:
    facts = json.loads((KEPT / "padded" / manifest.NAME).read_text(encoding="utf-8"))
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
        shutil.rmtree(KEPT / name, ignore_errors=True)
        prepare(KEPT / name, name)
    (KEPT / "rows.csv").unlink()
