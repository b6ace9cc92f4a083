"""Folders and repositories that a seed makes, read by `datasets` and by `prepare`: equal rows, or a refusal of one sentence.

By hand: T5PREP_SEEDS=500 pytest tests/sources/test_beside_datasets.py
"""

import bz2
import gzip
import io
import json
import lzma
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from preparing import records
from servers.internet import Internet

import t5prep
from t5prep.errors import T5prepError
from t5prep.tokens import loading

EOS = 1
SEEDS = int(os.environ.get("T5PREP_SEEDS", "30"))
CLASSES = ("bad", "good", "fine")
STEMS = (
    "train",
    "training",
    "dev",
    "val",
    "validation",
    "test",
    "testing",
    "eval",
    "evaluation",
    "data",
    "part",
    "holdout",
)
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


class Repository(NamedTuple):
    """Files by name, the card's metadata, the config to read ("" for the default), and the column of targets."""

    files: dict[str, bytes]
    card: dict[str, Any]
    config: str
    targets: str

    def write(self, folder: Path) -> None:
        """Write the files and the card into a folder."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        if self.card:
            (folder / "README.md").write_text(f"---\n{json.dumps(self.card)}\n---\n# A corpus\n")


class _Generator:
    """Make a repository of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows = 0
        self.has_classes = self.random.random() < 0.4

    def repository(self) -> Repository:
        """Return a repository: usual names, shards, folders of splits, or a card with configs; sometimes in two formats."""
        suffix = self.random.choice([".csv", ".csv", ".tsv", ".jsonl", ".json", ".parquet", ".parquet", ".txt"])
        names = self._names(suffix)
        if suffix not in (".tsv", ".txt") and self.random.random() < 0.25:
            names += self._names(self.random.choice([".jsonl", ".parquet", ".csv"]))[: self.random.randint(1, 2)]
        names = [name for name in names if not any(other.startswith(f"{name}/") for other in names)]
        files = {name: self._content(name) for name in dict.fromkeys(names)}
        if self.random.random() < 0.3:
            files["LICENSE"] = b"free"
        card, config = self._card(list(files), suffix) if self.random.random() < 0.5 else ({}, "")
        return Repository(files, card, config, "text" if suffix == ".txt" else "label")

    def _names(self, suffix: str) -> list[str]:
        packing = self.random.choice(["", "", *PACKINGS]) if suffix != ".parquet" else ""
        stems = self.random.sample(STEMS, self.random.randint(1, 3))
        shape = self.random.choice(
            ["{}", "{}", "{}-1", "my_{}", "{}/0", "data/{}", "data/{}-00000-of-00001", "a/{}/0", "{}_1/b"]
        )
        return [shape.format(stem) + suffix + packing for stem in stems]

    def _content(self, name: str) -> bytes:
        """Return a table, packed as its name says."""
        rows = []
        for _ in range(self.random.randint(1, 4)):
            self.rows += 1
            number = self.random.randrange(3)
            rows.append({"text": f"this is line {self.rows}", "label": number if self.has_classes else CLASSES[number]})
        stem, packing = name, ""
        for each in PACKINGS:
            if each and name.endswith(each):
                stem, packing = name.removesuffix(each), each
        return PACKINGS[packing](self._table(stem, rows))

    def _table(self, name: str, rows: list[dict[str, Any]]) -> bytes:
        suffix = name[name.rfind(".") :]
        if suffix in (".csv", ".tsv"):
            delimiter = "," if suffix == ".csv" else "\t"
            lines = [delimiter.join(rows[0]), *(delimiter.join(map(str, row.values())) for row in rows)]
            return ("\n".join(lines) + "\n").encode()
        if suffix == ".jsonl" or (suffix == ".json" and self.random.random() < 0.5):
            return "".join(json.dumps(row) + "\n" for row in rows).encode()
        if suffix == ".json":
            return json.dumps(rows).encode()
        if suffix == ".txt":
            return "".join(f"{row['text']}\n" for row in rows).encode()
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), buffer)
        return buffer.getvalue()

    def _card(self, names: list[str], suffix: str) -> tuple[dict[str, Any], str]:
        """Return the metadata of a card, and the config to read."""
        card: dict[str, Any] = {}
        configs = self.random.sample(["default", "one", "two"], self.random.randint(0, 2))
        if configs:
            card["configs"] = [self._config(name, names) for name in configs]
            if len(configs) > 1 and self.random.random() < 0.5:
                self.random.choice(card["configs"])["default"] = True
        if self.has_classes and suffix != ".txt":
            infos = [self._info(name) for name in configs or [self.random.choice(["", "default"])]]
            card["dataset_info"] = infos if len(infos) > 1 else infos[0]
        return card, self.random.choice(["", *configs])

    def _config(self, name: str, names: list[str]) -> dict[str, Any]:
        data = [each for each in names if each != "LICENSE"]
        kind = self.random.choice(["text", "texts", "splits", "splits", "folder", "nothing"])
        config: dict[str, Any] = {"config_name": name}
        if kind == "text":
            config["data_files"] = self._pattern(data)
        elif kind == "texts":
            config["data_files"] = [self._pattern(data) for _ in range(2)]
        elif kind == "splits":
            splits = self.random.sample(["train", "test", "validation", "gold", "train_sft"], self.random.randint(1, 3))
            paths = [self._pattern(data) for _ in splits]
            config["data_files"] = [
                {"split": split, "path": path if self.random.random() < 0.7 else [path]}
                for split, path in zip(splits, paths, strict=True)
            ]
        elif kind == "folder":
            config["data_dir"] = (
                self.random.choice(data).partition("/")[0] if any("/" in each for each in data) else "no"
            )
        return config

    def _pattern(self, names: list[str]) -> str:
        name = self.random.choice(names)
        suffix = name[name.rpartition("/")[2].find(".") + len(name.rpartition("/")[0]) + ("/" in name) :]
        return self.random.choice([name, name, f"**/*{suffix}", f"{name.partition('.')[0]}*", f"*{suffix}"])

    def _info(self, config: str) -> dict[str, Any]:
        names = {str(number): name for number, name in enumerate(self.random.sample(CLASSES, 3))}
        features = [{"name": "text", "dtype": "string"}, {"name": "label", "dtype": {"class_label": {"names": names}}}]
        return {**({"config_name": config} if config else {}), "features": features}


Rows = dict[str, list[tuple[str, str]]]


def read_by_datasets(repository: Repository, folder: Path, cache: Path) -> Rows | str:
    """Return the texts and the targets of each split as `datasets` reads them, or why it does not."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    try:
        splits = datasets.load_dataset(str(folder), repository.config or None, cache_dir=str(cache))
    except Exception as error:  # whatever it raises is a refusal
        return f"{type(error).__name__}: {error}"
    found: Rows = {}
    for split, dataset in splits.items():
        feature = dataset.features[repository.targets]
        name = feature.int2str if hasattr(feature, "int2str") else str
        # A file that two patterns name is read twice by `datasets`.
        found[split] = sorted({(row["text"], name(row[repository.targets])) for row in dataset})
    return found


def read_by_prepare(repository: Repository, source: str, out: Path) -> Rows | str:
    """Return the same as `prepare` writes it, all as `train` where rows are drawn; or why it refuses."""
    try:
        made = t5prep.prepare(
            "text2text",
            source=f"{source}#{repository.config}" if repository.config else source,
            out=out,
            tokenizer="sample:",
            inputs_column="text",
            targets_column=repository.targets,
            input_length=32,
            target_length=16,
            workers=0,
        )
    except T5prepError as error:
        return str(error)
    tokenizer = loading.load("sample:")
    found: Rows = {}
    for split, each in records(out).items():
        texts = [
            tuple(tokenizer.decode(record[name][: record[name].index(EOS)]) for name in ("input_ids", "labels"))
            for record in each
        ]
        found.setdefault("train" if made.settings.splits else split, []).extend(texts)  # type: ignore[arg-type]
    return {split: sorted(rows) for split, rows in found.items()}


def compare(seed: int, tmp_path: Path, internet: Internet, *, of_hub: bool) -> str:
    """Return "equal", or who refused, or how they differ."""
    repository = _Generator(seed).repository()
    folder = tmp_path / "folder"
    repository.write(folder)
    expected = read_by_datasets(repository, folder, tmp_path / "cache")
    source = str(folder)
    if of_hub:
        source = internet.hub.publish(f"me/seed{seed}", repository.files, card=repository.card)
    found = read_by_prepare(repository, source, tmp_path / "out")
    if isinstance(found, str) or isinstance(expected, str):
        assert not isinstance(found, str) or len(found.splitlines()) == 1, found
        if os.environ.get("T5PREP_SEEDS"):
            print(seed, list(repository.files), found if isinstance(found, str) else expected)
        return "refused by prepare" if isinstance(found, str) else "refused by datasets"
    if found == expected:
        return "equal"
    return f"seed {seed}: {list(repository.files)} {repository.card} #{repository.config}: {found}, not {expected}"


@pytest.mark.slow
@pytest.mark.parametrize("of_hub", [False, True], ids=["folder", "hub"])
def test_what_datasets_reads_is_what_is_prepared(tmp_path: Path, internet: Internet, of_hub: bool) -> None:
    outcomes: list[str] = []
    first = int(os.environ.get("T5PREP_FIRST_SEED", "0"))
    for seed in range(first + of_hub, first + SEEDS, 2):
        path = tmp_path / str(seed)
        path.mkdir()
        outcomes.append(compare(seed, path, internet, of_hub=of_hub))
    counts = {outcome: outcomes.count(outcome) for outcome in set(outcomes)}
    print({outcome: count for outcome, count in counts.items() if not outcome.startswith("seed")})
    different = [outcome for outcome in outcomes if outcome.startswith("seed")]
    assert not different, "\n".join(different)
    assert outcomes.count("equal") > len(outcomes) / 3, counts
