"""Show records to a person: decoded text, and tokens, ids and the label mask aligned under each other."""

import contextlib
import dataclasses
import functools
import itertools
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from t5prep.dataset import manifest, targets, tfrecord
from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.errors import DatasetError, TokenizerError, UsageError, did_you_mean
from t5prep.io import paths
from t5prep.tokens import loading
from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Shown:
    """One decoded record. Ids are as stored, padding included."""

    id: str
    input_ids: list[int]
    labels: list[int]
    inputs: str
    targets: str
    references: list[str]


def records(data: str | Path, *, split: str, count: int, tokenizer: str | None = None) -> Iterator[Shown]:
    """Yield the first records of a split, decoded. Raises DatasetError, TokenizerError or UsageError."""
    dataset = manifest.load(data)
    data = manifest.folder_of(data) or "."
    vocabulary = open_tokenizer(dataset, tokenizer)
    check_split(dataset, split, data=data)
    decode = functools.partial(newlines.decode, tokenizer=vocabulary, keep_newlines=dataset.settings.keep_newlines)
    text_of_labels = functools.partial(
        targets.text_of_labels, settings=dataset.settings, tokenizer=vocabulary, classes=dataset.task.classes
    )
    names = [shard.name for shard in dataset.splits[split].shards]
    for number, record in enumerate(itertools.islice(read(data, names), min(count, sys.maxsize))):
        with decoding(f"Record {number} of the split {split} in {data}", data):
            features = tfrecord.parse(record)
            inputs = [int(token) for token in features["input_ids"]]
            labels = [int(token) for token in features["labels"]]
            shown = Shown(
                id=b", ".join(_bytes(features["id"])).decode(),
                input_ids=inputs,
                labels=labels,
                inputs=decode(inputs),
                targets=text_of_labels([token for token in labels if token != IGNORED_LABEL]),
                references=[text.decode() for text in _bytes(features.get("references", []))],
            )
        yield shown


@contextlib.contextmanager
def decoding(record: str, data: str | Path) -> Iterator[None]:
    """Raise DatasetError, which names a record of the dataset in `data`, for what decoding it raises."""
    try:
        yield
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise DatasetError(
            f"{record} is none that t5prep wrote ({error!r}). Find out more: t5prep verify {data}"
        ) from error


def check_split(dataset: manifest.Manifest, split: str, *, data: str | Path) -> None:
    """Raise UsageError if the dataset in `data` has no such split."""
    if split not in dataset.splits:
        raise UsageError(
            f'{data} has no split "{split}".{did_you_mean(split, dataset.splits)} It has {", ".join(dataset.splits)}.'
        )


def open_tokenizer(dataset: manifest.Manifest, name: str | None) -> Tokenizer:
    """Return the tokenizer that a dataset was made with: by its own name, else by `name`.

    Raises TokenizerError when it is not there, or another one.
    """
    try:
        vocabulary = loading.load(name or dataset.tokenizer.name)
    except TokenizerError as error:
        raise TokenizerError(f"{error} It is the data's tokenizer; say where it lies with --tokenizer.") from error
    if vocabulary.sha256 != dataset.tokenizer.sha256:
        raise TokenizerError(
            f"{vocabulary.name} is not the tokenizer of these records (SHA-256 {vocabulary.sha256[:12]}…, theirs is "
            f"{dataset.tokenizer.sha256[:12]}…). Pass theirs: --tokenizer PATH"
        )
    return vocabulary


def read(data: str | Path, names: list[str]) -> Iterator[bytes]:
    """Yield the records of shards, undecoded. Raises DatasetError."""
    for name in names:
        try:
            with paths.opened(paths.at(data, name)) as file:
                yield from tfrecord.read(file)
        except (OSError, ValueError) as error:
            raise DatasetError(
                f"{paths.at(data, name)} cannot be read ({error}). Find out more: t5prep verify {data}"
            ) from error


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for a wide character, none for a mark on the one before it.

    >>> columns("▁the"), columns("日本"), columns("e\u0301")
    (4, 4, 1)
    """
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)


def _bytes(values: list[int] | list[bytes]) -> list[bytes]:
    return [value for value in values if isinstance(value, bytes)]


def aligned(ids: list[int], tokenizer: Tokenizer, *, width: int) -> Iterator[tuple[str, str]]:
    """Yield lines of tokens and of their ids beneath them, columns aligned, at most `width` characters wide.

    Padding and ignored labels at the end become one `… × n`.
    """
    cells = [("-100" if token == IGNORED_LABEL else tokenizer.piece(token), str(token)) for token in ids]
    cells = [("∅" if piece == "-100" else piece, number) for piece, number in cells]
    last = len(cells)
    while last > 1 and cells[last - 1] == cells[-1] and ids[-1] in (IGNORED_LABEL, tokenizer.pad_id):
        last -= 1
    if (repeated := len(cells) - last) > 1:
        cells[last:] = [(f"{cells[-1][0]} × {repeated}", cells[-1][1])]
    top, bottom = "", ""
    for piece, number in cells:
        size = max(columns(piece), len(number))
        if top and len(bottom) + size > width:
            yield top.rstrip(), bottom.rstrip()
            top, bottom = "", ""
        top += piece + " " * (size + 1 - columns(piece))
        bottom += number.ljust(size + 1)
    yield top.rstrip(), bottom.rstrip()
