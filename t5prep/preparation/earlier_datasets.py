"""Compare new rows with the records of earlier datasets (`--dedup-against`)."""

import dataclasses
import hashlib
import io
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t5prep.dataset import prepared, tfrecord
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.options.fields import as_cli_option
from t5prep.tasks.html import folded
from t5prep.tokens.tokenizer import Tokenizer

# Settings that decide how a text is cut. Cut texts can only be compared if these settings are equal.
_CUT = ("input_length", "truncation", "marker", "keep_newlines")


class EarlierRecord(NamedTuple):
    """A record of an earlier dataset: its number in its shard (from 1), its id, and the text of its input.

    The text is "" if the input has <unk>, because other texts have the same ids.
    """

    number: int
    id: str
    text: str


def open_dataset(data: str, settings: Settings, tokenizer: Tokenizer) -> Dataset:
    """Return the opened earlier dataset `data`. Raises DatasetError, or UsageError if rows cannot be compared with it."""
    opened = Dataset(data)
    dataset, earlier_settings = opened.manifest, opened.manifest.settings
    reason = advice = ""
    if dataset.task.hides_spans:
        reason = "spans of its inputs are hidden"
        advice = f"Compare with its source instead: --decontaminate {shlex.quote(dataset.source.uri)}"
    elif earlier_settings.is_packed:
        reason, advice = "its rows are packed", "Prepare it again with --layout padded or --layout ragged."
    elif dataset.tokenizer.sha256 != tokenizer.sha256:
        reason = f"its tokenizer is {dataset.tokenizer.name}, not {tokenizer.name}"
        advice = f"Use the same tokenizer: --tokenizer {shlex.quote(dataset.tokenizer.name)}"
    elif different := [name for name in _CUT if getattr(earlier_settings, name) != getattr(settings, name)]:
        there, here = (
            as_cli_option(different[0], getattr(each, different[0])) for each in (earlier_settings, settings)
        )
        reason, advice = f"it was prepared with {there}, not with {here}", "Prepare both with the same options."
    if reason:
        raise UsageError(
            f"--dedup-against {data} cannot be compared with this dataset, because {reason}. {advice}",
            code="dataset.incomparable",
        )
    if unknown := max((split.unk_rate for split in dataset.splits.values()), default=0):
        print(
            f"{unknown:.2%} of the tokens of --dedup-against {data} are <unk>, so rows that repeat such a text are not found. "
            "To find them, use a tokenizer that knows all characters.",
            file=sys.stderr,
        )
    return opened


def shards(dataset: Dataset) -> list[str]:
    """Return the names of all shards of a dataset, sorted."""
    return sorted(shard.name for shard in dataset.manifest.shards)


def records(folder: str, shard: str, tokenizer: Tokenizer) -> Iterator[EarlierRecord]:
    """Yield the records of a shard in the folder of a dataset. Raises DatasetError."""
    for number, record in enumerate(prepared.read(folder, shard), 1):
        features = tfrecord.parse(record)
        (id,) = (value for value in features["id"] if isinstance(value, bytes))
        ids = [int(token) for token in features["input_ids"]]
        text = "" if tokenizer.unk_id in ids else text_of_ids(ids, tokenizer)
        yield EarlierRecord(number, id.decode(), text)


def text_of_ids(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return the text of an input after cutting, without special tokens."""
    return " ".join(tokenizer.texts_in(ids))


# The search for equal texts (`--dedup exact --dedup-against`).


@dataclasses.dataclass(frozen=True)
class EarlierTexts:
    """The texts of earlier datasets, as sorted hex digests, `S32[n]`.

    `ids` are the ids of their records, and `sets` the indices of their datasets in `names`.
    """

    names: tuple[str, ...]
    digests: np.ndarray
    ids: np.ndarray
    sets: np.ndarray

    def find(self, digests: Sequence[str]) -> list[str]:
        """Return for each digest the reason for rejecting its row, which names the earlier record; "" if there is none."""
        if not len(self.digests):
            return [""] * len(digests)
        queries = np.array(digests, "S32")
        match_indices = np.minimum(np.searchsorted(self.digests, queries), len(self.digests) - 1)
        is_known = self.digests[match_indices] == queries
        return [
            f"repeated: the same input is in {self.names[self.sets[index]]}, id {self.ids[index]}" if hit else ""
            for hit, index in zip(is_known.tolist(), match_indices.tolist(), strict=True)
        ]

    def dumps(self) -> bytes:
        """Return the object as bytes for `loads`."""
        file = io.BytesIO()
        names = np.array(self.names, np.str_)
        np.savez(file, names=names, digests=self.digests, ids=self.ids, sets=self.sets)
        return file.getvalue()


def loads(data: bytes) -> EarlierTexts:
    """Return the object that `dumps` serialized."""
    arrays = np.load(io.BytesIO(data), allow_pickle=False)
    return EarlierTexts(tuple(arrays["names"].tolist()), arrays["digests"], arrays["ids"], arrays["sets"])


def digest(text: str) -> str:
    """Return a digest of a text without case and spaces, as 32 hex digits."""
    return hashlib.blake2b(folded(text).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def collect(datasets: Mapping[str, Dataset], tokenizer: Tokenizer) -> EarlierTexts:
    """Return the texts of all `datasets`, a mapping from names to opened ones. Raises DatasetError.

    Of equal texts, the first record of the first dataset is named.
    """
    origins: dict[str, tuple[str, int]] = {}
    for number, dataset in enumerate(datasets.values()):
        for record in (
            entry for shard in shards(dataset) for entry in records(dataset.folder, shard, tokenizer) if entry.text
        ):
            origins.setdefault(digest(record.text), (record.id, number))
    order = sorted(origins)
    ids, sets = zip(*(origins[entry] for entry in order), strict=True) if origins else ((), ())
    return EarlierTexts(tuple(datasets), np.array(order, "S32"), np.array(ids, np.str_), np.array(sets, np.int64))
