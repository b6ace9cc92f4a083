"""Preparing small corpora in tests, with one worker and nothing kept, and reading what came out."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import schema

import t5prep
from pipelines.prepare import PrepareRequest, prepare_resolved
from pipelines.run_options import RunOptions
from t5prep import sources
from t5prep.dataset import manifest, tfrecord
from t5prep.preparation import task_settings
from t5prep.tasks import registry


def request(
    task: str,
    source: sources.Resolved,
    out: Path | str,
    *,
    tokenizer: Path | str,
    options: Mapping[str, Any] | None = None,
    arguments: Sequence[str] = (),
    cache: Path | None = None,
    **choices: Any,
) -> PrepareRequest:
    """What is asked of a preparation; `choices` are those of how it runs and those of every task."""
    definition = registry.get(task)
    chosen = definition.choose(options or {})
    run = {key: choices.pop(key) for key in list(choices) if key in RunOptions.__dataclass_fields__}
    settings = task_settings.requested(chosen, choices)
    request_fields = (definition, chosen, settings, source, str(tokenizer), str(out))
    return PrepareRequest(*request_fields, RunOptions(**run), arguments, cache)


def prepared(
    source: Path | str | list[Path], out: Path, *, tokenizer: Path | str, workers: int = 0, **choices: Any
) -> manifest.Manifest:
    """A dataset with the given choices; those not given are the command line's."""
    name = choices.pop("task", "so_quality")
    uris = list(map(str, source)) if isinstance(source, list) else [str(source)]
    resolved = sources.resolve_all(uris, include=choices.pop("include", ()))
    dataset = prepare_resolved(request(name, resolved, out, tokenizer=tokenizer, workers=workers, **choices))
    wrong = schema.problems(json.loads(dataset.dumps()))
    assert not [problem for problem in wrong if "not known" not in problem], (
        wrong
    )  # a new choice: test_format says so once
    return dataset


def records(data: Path) -> dict[str, list[dict[str, list]]]:
    """Split → parsed records, in the order of the shards."""
    dataset = manifest.load(data)
    return {
        name: [
            tfrecord.parse(record) for shard in split.shards for record in tfrecord.read(open(data / shard.name, "rb"))
        ]
        for name, split in dataset.splits.items()
    }


def by_id(data: Path) -> dict[str, dict[str, list]]:
    """Id → parsed record, of all splits."""
    return {record["id"][0].decode(): record for split in records(data).values() for record in split}


def byt5(folder: Path) -> Path:
    """A tokenizer whose tokens are bytes, so that every text comes back as it was."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    return folder


def pairs(data: Path) -> list[tuple[str, str]]:
    """The input and the target of each record as texts, in the order of the ids."""
    rows = t5prep.table(data).read_all().to_pylist()
    return [(row["input"], row["target"]) for row in sorted(rows, key=lambda row: (len(row["id"]), row["id"]))]


def rejected(data: Path) -> list[dict[str, Any]]:
    """The lines of rejected.jsonl."""
    return [json.loads(line) for line in (data / "rejected.jsonl").read_text().splitlines()]


def bytes_of(data: Path) -> dict[str, bytes]:
    """File name → bytes, of everything in a dataset."""
    return {path.name: path.read_bytes() for path in sorted(data.iterdir())}


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    """Rows as a CSV file."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def questions(count: int, *, words: int = 30) -> list[dict[str, str]]:
    """Rows of the columns that so_quality reads, each with words of its own."""
    labels = ["LQ_CLOSE", "LQ_EDIT", "HQ"]
    return [
        {
            "Id": str(1000 + i),
            "Title": f'Title {i}, "quoted"',
            "Body": "<p>" + " ".join(f"word{(i * 31 + k * 7) % 997}" for k in range(words)) + "</p>\n<p>end</p>",
            "Y": labels[i % 3],
        }
        for i in range(count)
    ]
