"""Folders and repositories that a seed makes, read by `datasets` and by `prepare`: equal rows, or a refusal of one sentence.

By hand: T5PREP_SEEDS=500 pytest -m fuzz tests/sources/test_beside_datasets.py
"""

import collections
import json
from pathlib import Path
from typing import Any

import pytest
import random_seeds
import small_corpora
from random_repositories import Generator, Repository
from servers.internet import Internet

import t5prep
from t5prep.errors import T5prepError

Rows = dict[str, list[tuple[str, str]]]


def text_of(value: Any) -> str:
    """Return the text of a value, of the first one in a list, in one line.

    A byte order mark is none of a text, and CSV has no types: "1.0" is 1, "True" is true.
    """
    if isinstance(value, list):
        value = value[0] if value else None
    text = "" if value is None else value.decode() if isinstance(value, bytes) else str(value)
    text = " ".join(text.removeprefix("\ufeff").split())
    return text.lower() if text in ("True", "False") else text.removesuffix(".0")


def value_at(value: Any, feature: Any, steps: list[str]) -> tuple[Any, Any]:
    """Return what the steps lead to in a row of `datasets`, with its feature; in a list, of the first object."""
    for step in steps:
        if isinstance(value, list):
            value = value[0] if value else None
        feature = getattr(feature, "feature", feature)
        value = value.get(step) if isinstance(value, dict) else None
        feature = feature.get(step) if isinstance(feature, dict) else None
    return value, feature


def name_class(value: Any, feature: Any) -> Any:
    """Return a class number's name, a text of values of several types as it is without quotes, and any other value."""
    if type(feature).__name__ == "Json" and isinstance(value, str) and value.startswith('"'):
        return json.loads(value)
    if isinstance(value, list):
        value = value[0] if value else None
    feature = getattr(feature, "feature", feature)
    return feature.int2str(value) if hasattr(feature, "int2str") and value is not None else value


def read_by_datasets(repository: Repository, folder: Path, cache: Path) -> Rows | str:
    """Return the texts and the targets of each split as `datasets` reads them, or why it does not."""
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    arguments = {"cache_dir": str(cache), **repository.arguments}
    split_rows: Rows = {}
    try:
        splits = datasets.load_dataset(str(folder), repository.config or None, **arguments)
        for split, dataset in splits.items():
            columns = [name.split(".") for name in (repository.inputs, repository.targets)]
            pairs = [
                tuple(text_of(name_class(*value_at(row, dict(dataset.features), steps))) for steps in columns)
                for row in dataset
            ]
            # A file that two patterns name is read twice by `datasets`; a row without a text or a target is no example.
            split_rows[split] = sorted({(text, target) for text, target in pairs if text and target})
    except Exception as error:  # whatever it raises is a refusal
        return f"{type(error).__name__}: {error}"
    if not any(any(target for _, target in rows) for rows in split_rows.values()):
        return "no rows with these columns"
    return {split: rows for split, rows in split_rows.items() if rows}


def read_by_prepare(repository: Repository, source: str, out: Path) -> tuple[Rows, int] | str:
    """Return the same as `prepare` writes it, all as `train` where rows are drawn, and how many rows it rejects; or a refusal."""
    try:
        manifest = t5prep.prepare(
            "text2text",
            source=f"{source}#{repository.config}" if repository.config else source,
            out=out,
            tokenizer=str(small_corpora.byt5(out.with_name("byt5"))),
            inputs_column=repository.inputs,
            targets_column=repository.targets,
            input_length=128,
            target_length=64,
            workers=0,
            **repository.choices,
        )
    except T5prepError as error:
        return str(error)
    split_rows: Rows = collections.defaultdict(list)
    for row in t5prep.table(out).read_all().to_pylist():
        split = "train" if manifest.settings.splits else row["split"]
        split_rows[split].append((text_of(row["input"]), text_of(row["target"])))
    reasons = [line["reason"] for line in small_corpora.rejected(out)]
    return {split: sorted(rows) for split, rows in split_rows.items()}, sum(
        not reason.startswith("empty ") for reason in reasons
    )


def compare(repository: Repository, expected: Rows | str, prepared_rows: tuple[Rows, int] | str) -> str:
    """Return "equal", or who refused, or how they differ."""
    if isinstance(prepared_rows, str):
        assert len(prepared_rows.splitlines()) == 1, prepared_rows
        return f"refused by prepare{'' if isinstance(expected, str) else ' alone'}: {prepared_rows}"
    if isinstance(expected, str):
        return f"refused by datasets: {expected}"
    rows, rejected = prepared_rows
    if rows == expected:
        return "equal"
    missing_rows = collections.Counter(row for split in expected.values() for row in split)
    missing_rows.subtract(row for split in rows.values() for row in split)
    if (
        rejected
        and min(missing_rows.values()) >= 0
        and missing_rows.total() == rejected
        and rows.keys() <= expected.keys()
    ):
        return "equal but for rejected rows"
    files, card = list(repository.files), repository.card
    return f"different: {files} {card} #{repository.config} {repository.choices}: {rows}, not {expected}"


def outcome_of(seed: int, tmp_path: Path, internet: Internet, *, of_hub: bool) -> str:
    """Return how both read the repository of a seed."""
    repository = Generator(seed).repository()
    for name in ("ours", "theirs"):
        repository.write(tmp_path / name, for_datasets=name == "theirs")
    expected = read_by_datasets(repository, tmp_path / "theirs", tmp_path / "cache")
    source = str(tmp_path / "ours")
    if of_hub:
        standalone = repository.card_files() if repository.is_standalone else {}
        files, card = {**repository.files, **standalone}, {} if repository.is_standalone else repository.card
        source = internet.hub.publish(f"me/seed{seed}", files, card=card)
    prepared_rows = read_by_prepare(repository, source, tmp_path / "out")
    outcome = compare(repository, expected, prepared_rows)
    if random_seeds.ARE_GIVEN and outcome != "equal":
        print(f"seed {seed}{' hub' * of_hub}: {outcome[:400]} {list(repository.files)} {repository.choices}")
    return outcome


@pytest.mark.fuzz
@pytest.mark.extra("datasets")
@pytest.mark.slow
@pytest.mark.parametrize("of_hub", [False, True], ids=["folder", "hub"])
def test_what_datasets_reads_is_what_is_prepared(tmp_path: Path, internet: Internet, of_hub: bool) -> None:
    outcomes: dict[int, str] = {}
    for seed in random_seeds.seeds(30)[of_hub::2]:
        path = tmp_path / str(seed)
        path.mkdir()
        outcomes[seed] = outcome_of(seed, path, internet, of_hub=of_hub)
    counts = collections.Counter(outcome.partition(":")[0] for outcome in outcomes.values())
    print(dict(counts))
    different = [f"seed {seed}: {outcome}" for seed, outcome in outcomes.items() if outcome.startswith("different")]
    assert not different, "\n".join(different)
    assert random_seeds.ARE_GIVEN or counts["equal"] > len(outcomes) / 3, counts
