"""Read the texts of an evaluation set, prepared or raw."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t5prep import sources
from t5prep.dataset import inspect_records, manifest, tfrecord
from t5prep.errors import SourceError, UsageError
from t5prep.reading import blocks, formats
from t5prep.tokens.tokenizer import Tokenizer


def texts(data: str) -> Iterator[str]:
    """Yield the texts of a set: inputs of a prepared dataset, or all texts of a source's rows.

    Of a dataset those of its evaluation splits, or of the split that is named: `data/last#train`. Raises DatasetError or
    TokenizerError for a dataset that cannot be read, SourceError for a source, UsageError for a split that is not there.
    """
    folder, _, split = data.rpartition("#")
    if folder and (Path(folder) / manifest.NAME).is_file():
        yield from _prepared(folder, split=split)
    elif (Path(data) / manifest.NAME).is_file():
        yield from _prepared(data)
    else:
        yield from _raw(data)


def _prepared(data: str, *, split: str = "") -> Iterator[str]:
    """Yield what the inputs say; what was cut out of one, or stands for a newline, ends a text."""
    dataset = manifest.load(data)
    tokenizer = inspect_records.open_tokenizer(dataset, None)
    if split and split not in dataset.splits:
        raise UsageError(f"--decontaminate {data}#{split}: the dataset has the splits {', '.join(dataset.splits)}")
    own = [split] if split else [name for name in dataset.splits if name != "train"] or list(dataset.splits)
    for name in own:
        for record in inspect_records.read(data, [shard.name for shard in dataset.splits[name].shards]):
            ids = [int(token) for token in tfrecord.parse(record)["input_ids"]]
            yield from _between_specials(ids, tokenizer)


def _between_specials(ids: list[int], tokenizer: Tokenizer) -> Iterator[str]:
    for special, part in itertools.groupby(ids, key=lambda token: tokenizer.special(token) is not None):
        if not special:
            yield tokenizer.decode(list(part))


def _raw(data: str) -> Iterator[str]:
    resolved = sources.resolve(data)
    if not resolved.files:
        raise SourceError(f"--decontaminate {data}: it has no files.")
    for file in resolved.files:
        for block in blocks.scan(file, formats.detect(file.name)):
            for row in blocks.read(block):
                yield from _texts(row.record)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a row, whatever lists and objects they are in."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
