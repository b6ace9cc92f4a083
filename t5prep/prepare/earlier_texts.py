"""Find the texts of earlier datasets in the rows that are prepared (`--dedup exact --dedup-against`)."""

import dataclasses
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from t5prep.prepare.earlier_records import EarlierRecord
from t5prep.tasks.html import folded


@dataclasses.dataclass(frozen=True)
class EarlierTexts:
    """The digests of earlier texts, `S32[n]` sorted (hex), each with its id and the number of a dataset in `names`."""

    names: tuple[str, ...]
    digests: np.ndarray
    ids: np.ndarray
    sets: np.ndarray

    def find(self, digests: Sequence[str]) -> list[str]:
        """Return for each digest of a text where it stands, as the reason of a rejected row, or ""."""
        if not len(self.digests):
            return [""] * len(digests)
        wanted = np.array(digests, "S32")
        place = np.minimum(np.searchsorted(self.digests, wanted), len(self.digests) - 1)
        known = self.digests[place] == wanted
        return [
            f"repeated: the same input is in {self.names[self.sets[at]]}, id {self.ids[at]}" if hit else ""
            for hit, at in zip(known.tolist(), place.tolist(), strict=True)
        ]

    def dumps(self) -> bytes:
        """Return all of it as bytes that `loads` reads."""
        file = io.BytesIO()
        names = np.array(self.names, np.str_)
        np.savez(file, names=names, digests=self.digests, ids=self.ids, sets=self.sets)
        return file.getvalue()


def loads(data: bytes) -> EarlierTexts:
    """Return what `dumps` wrote."""
    arrays = np.load(io.BytesIO(data), allow_pickle=False)
    return EarlierTexts(tuple(arrays["names"].tolist()), arrays["digests"], arrays["ids"], arrays["sets"])


def digest(text: str) -> str:
    """Return a digest of a text but for case and spaces, as 32 hex digits."""
    return hashlib.blake2b(folded(text).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def collect(datasets: Mapping[str, Iterable[EarlierRecord]]) -> EarlierTexts:
    """Return the texts of datasets. Of equal texts the first is kept: of the first dataset, there of the first record."""
    known: dict[str, tuple[str, int]] = {}
    for number, records in enumerate(datasets.values()):
        for record in records:
            known.setdefault(digest(record.text), (record.id, number))
    order = sorted(known)
    ids, sets = zip(*(known[one] for one in order), strict=True) if known else ((), ())
    return EarlierTexts(tuple(datasets), np.array(order, "S32"), np.array(ids, np.str_), np.array(sets, np.int64))
