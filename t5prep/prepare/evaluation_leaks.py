"""Find texts of evaluation sets in the rows that are prepared (`--decontaminate`)."""

import dataclasses
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from t5prep.prepare.near_duplicates import shingles as shingling
from t5prep.prepare.near_duplicates.shingles import shingles

# Of an evaluation set, texts with fewer words say nothing: labels, ids, yes and no.
LEAST_WORDS = 4
# So many texts are hashed at a time.
_BATCH = 4096


@dataclasses.dataclass(frozen=True)
class Leaks:
    """The runs of words of evaluation sets: `hashes` uint64[n], sorted, each with the number of a set in `names`.

    A text with fewer than `words` words is one run: only the same text is a leak of it.
    """

    words: int
    names: tuple[str, ...]
    hashes: np.ndarray
    sets: np.ndarray

    def find(self, texts: Sequence[str]) -> list[str]:
        """Return for each text what of it stands in which set, as the reason of a rejected row, or ""."""
        hashed = shingles(texts, words=self.words)
        reasons = [""] * len(texts)
        if not len(self.hashes):
            return reasons
        place = np.minimum(np.searchsorted(self.hashes, hashed.hashes), len(self.hashes) - 1)
        hits = np.flatnonzero(self.hashes[place] == hashed.hashes)
        of = np.searchsorted(hashed.begins, hits, side="right") - 1
        for text, first in zip(*np.unique(of, return_index=True), strict=True):
            begin = int(hits[first] - hashed.begins[text])
            shared = " ".join(shingling.words_of(texts[text])[begin : begin + self.words])
            reasons[text] = f'leak: "{shared}" is in {self.names[self.sets[place[hits[first]]]]}'
        return reasons

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 (hex) of each set's runs of words."""
        return {
            name: hashlib.sha256(self.hashes[self.sets == number].tobytes()).hexdigest()
            for number, name in enumerate(self.names)
        }

    def dumps(self) -> bytes:
        """Return all of it as bytes that `loads` reads."""
        file = io.BytesIO()
        np.savez(file, words=self.words, names=np.array(self.names, np.str_), hashes=self.hashes, sets=self.sets)
        return file.getvalue()


def loads(data: bytes) -> Leaks:
    """Return what `dumps` wrote."""
    arrays = np.load(io.BytesIO(data), allow_pickle=False)
    return Leaks(int(arrays["words"]), tuple(arrays["names"].tolist()), arrays["hashes"], arrays["sets"])


def collect(texts: Mapping[str, Iterable[str]], *, words: int) -> Leaks:
    """Return the runs of words of sets of texts. What stands in several sets is counted for the first of them."""
    hashes, sets = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for number, own in enumerate(texts.values()):
        for batch in _batches(text for text in own if len(text.split()) >= LEAST_WORDS or not text.isascii()):
            hashed = np.unique(shingles(batch, words=words).hashes)
            hashes.append(hashed)
            sets.append(np.full(len(hashed), number))
    together = np.concatenate(hashes)
    known, first = np.unique(together, return_index=True)
    return Leaks(words, tuple(texts), known, np.concatenate(sets)[first])


def _batches(texts: Iterable[str]) -> Iterable[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
