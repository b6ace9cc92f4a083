"""Read evaluation sets, prepared or raw, and find rows that share a run of words with them (`--decontaminate`)."""

import dataclasses
import hashlib
import io
import itertools
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from t5prep import sources
from t5prep.dataset import manifest, tfrecord
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.settings import Settings
from t5prep.errors import SourceError, UsageError
from t5prep.options.files import RowFileOptions
from t5prep.preparation.near_duplicates import sketches
from t5prep.preparation.near_duplicates.sketches import shingles
from t5prep.reading import blocks, formats, rows, source_files


def texts(data: str, settings: Settings) -> Iterator[str]:
    """Yield the texts of an evaluation set: inputs of a prepared dataset, or all texts of a source's rows.

    `data` is a dataset (its evaluation splits), a dataset with a split (`data/last#train`), or a source. A source
    that is not UTF-8 is read with the encoding in `settings`. Raises DatasetError or TokenizerError for an unreadable
    dataset, SourceError for an unreadable source, UsageError for a missing split.
    """
    folder, _, split = data.rpartition("#")
    if folder and (Path(folder) / manifest.NAME).is_file():
        yield from _prepared(folder, split=split)
    elif (Path(data) / manifest.NAME).is_file():
        yield from _prepared(data)
    else:
        yield from _raw(data, settings)


def _prepared(data: str, *, split: str = "") -> Iterator[str]:
    """Yield the texts of the inputs of a dataset. Each <unk>, cut or newline token ends a text."""
    dataset = Dataset(data)
    splits = dataset.manifest.splits
    if split and split not in splits:
        raise UsageError(
            f"--decontaminate {data}#{split} names a split that does not exist. Choose one of: {', '.join(splits)}.",
            code="split.unknown",
        )
    evaluation_splits = [split] if split else [name for name in splits if name != "train"] or list(splits)
    if unknown := max(splits[name].unk_rate for name in evaluation_splits):
        print(
            f"{unknown:.2%} of the tokens of --decontaminate {data} are <unk>, so their text is not found. Name the source of the "
            f"set instead: --decontaminate {shlex.quote(dataset.manifest.source.uri)}",
            file=sys.stderr,
        )
    unk_id = dataset.tokenizer.unk_id
    for record in dataset.records(*(shard.name for name in evaluation_splits for shard in splits[name].shards)):
        ids = [int(token) for token in tfrecord.parse(record)["input_ids"]]
        for is_unknown, run in itertools.groupby(ids, key=lambda token: token == unk_id):
            if not is_unknown:
                yield from dataset.tokenizer.texts_in(list(run))


def _raw(data: str, settings: Settings) -> Iterator[str]:
    """Yield all texts of the rows of a source. Raises SourceError if there are none."""
    selected = source_files.select_split(sources.resolve(data), otherwise=source_files.EVALUATION)
    for message in selected.messages:
        print(f"--decontaminate {data}: {message}", file=sys.stderr)
    # What the card of the set leaves open is as in the settings.
    of_card, has_text = formats.with_card(RowFileOptions(), selected.source), False
    for file in selected.source.files:
        form = formats.detect(file.name, of_card, otherwise=settings.format)
        form = blocks.complete_format(file, form, settings.file_options, refuses_ambiguous=False)
        for block in blocks.scan(file, form):
            for row in blocks.read(block):
                for text in _texts(row.record):
                    has_text = True
                    yield text
    if not has_text:
        raise SourceError(
            f"--decontaminate {data} has no row with a text. Name another evaluation set, or remove the option.",
            code="row.text-missing",
        )


def _texts(value: rows.Value) -> Iterator[str]:
    """Yield all texts in a value, also those in nested lists and objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


# The search for texts of evaluation sets in prepared rows (`--decontaminate`).

# Shorter texts of an evaluation set are ignored: labels, ids, yes and no.
LEAST_WORDS = 4
# Number of texts that are hashed at a time.
_BATCH = 4096


@dataclasses.dataclass(frozen=True)
class Leaks:
    """The runs of words in evaluation sets, as sorted hashes, `uint64[n]`.

    `words` is the length of a run, and `sets` has the index in `names` of each hash's set. A text with fewer words is
    one run, so only an equal text matches it.
    """

    words: int
    names: tuple[str, ...]
    hashes: np.ndarray
    sets: np.ndarray

    def find(self, texts: Sequence[str]) -> list[str]:
        """Return for each text the reason for rejecting it, which quotes the shared words and names the set; "" if there are none."""
        hashed = shingles(texts, words=self.words)
        reasons = [""] * len(texts)
        if not len(self.hashes):
            return reasons
        match_indices = np.minimum(np.searchsorted(self.hashes, hashed.hashes), len(self.hashes) - 1)
        hits = np.flatnonzero(self.hashes[match_indices] == hashed.hashes)
        of = np.searchsorted(hashed.begins, hits, side="right") - 1
        # Shingle i of a text begins at its word i, so the first hit gives the words to quote.
        for text, first in zip(*np.unique(of, return_index=True), strict=True):
            begin = int(hits[first] - hashed.begins[text])
            edges = sketches.word_edges(texts[text])[begin : begin + self.words]
            shared = " ".join(texts[text][edges[0][0] : edges[-1][1]].split())
            reasons[text] = f'leak: "{shared}" is in {self.names[self.sets[match_indices[hits[first]]]]}'
        return reasons

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 (hex) of each set's hashes."""
        return {
            name: hashlib.sha256(self.hashes[self.sets == number].tobytes()).hexdigest()
            for number, name in enumerate(self.names)
        }

    def dumps(self) -> bytes:
        """Return the object as bytes for `loads`."""
        file = io.BytesIO()
        np.savez(file, words=self.words, names=np.array(self.names, np.str_), hashes=self.hashes, sets=self.sets)
        return file.getvalue()


def loads(data: bytes) -> Leaks:
    """Return the object that `dumps` serialized."""
    arrays = np.load(io.BytesIO(data), allow_pickle=False)
    return Leaks(int(arrays["words"]), tuple(arrays["names"].tolist()), arrays["hashes"], arrays["sets"])


def collect(texts: Mapping[str, Iterable[str]], *, words: int) -> Leaks:
    """Return the runs of `words` words in sets of texts. A run in several sets belongs to the first one."""
    hashes, sets = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for number, set_texts in enumerate(texts.values()):
        worded = (text for text in set_texts if len(text.split()) >= LEAST_WORDS or not text.isascii())
        while batch := list(itertools.islice(worded, _BATCH)):
            hashed = np.unique(shingles(batch, words=words).hashes)
            hashes.append(hashed)
            sets.append(np.full(len(hashed), number))
    all_hashes = np.concatenate(hashes)
    unique_hashes, first = np.unique(all_hashes, return_index=True)
    return Leaks(words, tuple(texts), unique_hashes, np.concatenate(sets)[first])
