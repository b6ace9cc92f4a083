"""Open the datasets of a run: check the manifest and the size of every shard before the first step."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

from t5prep.dataset.manifest import Manifest, Split, load
from t5prep.errors import DatasetError, UsageError
from t5prep.io import gcs, paths

# A row of more tokens fits no device.
MOST_LENGTH = 1 << 24


@dataclasses.dataclass(frozen=True)
class Opened:
    """One split, by its `name`, whose shards are complete. `paths` and `counts` leave out shards without records.

    `sizes` holds the bytes of the shards of all splits that are there, by name.
    """

    data: str
    manifest: Manifest
    name: str
    split: Split
    paths: tuple[str, ...]
    counts: tuple[int, ...]
    sizes: Mapping[str, int] = dataclasses.field(repr=False, compare=False)

    @property
    def input_length(self) -> int:
        """Return the number of tokens in a row of `input_ids`."""
        return self._length("input_ids") or self.manifest.settings.input_length

    @property
    def target_length(self) -> int:
        """Return the number of tokens in a row of `labels`."""
        return self._length("labels") or self.manifest.settings.target_length

    def _length(self, feature: str) -> int | None:
        """Return the length that a feature is padded to, or None if it is not padded."""
        shape = self.manifest.features[feature].shape
        return shape[0] if shape else None


def open_split(data: str | Opened, *, split: str, tokenizer: str | None = None) -> Opened:
    """Open a split after checking its dataset: manifest, split, tokenizer, the size of every shard.

    `data` that is opened already, with any split, is not read again. `tokenizer` is the SHA-256 of the SentencePiece
    model that the ids must come from; None checks nothing. Raises DatasetError.
    """
    if isinstance(data, Opened):
        dataset, sizes, data = data.manifest, data.sizes, data.data
    else:
        dataset = load(data)
        sizes = _sizes(data, [shard.name for split_there in dataset.splits.values() for shard in split_there.shards])
    chosen = dataset.split(split, where=data)
    if tokenizer is not None and dataset.tokenizer.sha256 != tokenizer:
        raise DatasetError(
            f"{data} was tokenized by {dataset.tokenizer.name} (SHA-256 {dataset.tokenizer.sha256[:12]}…), the model uses "
            f"another tokenizer ({tokenizer[:12]}…). Prepare it again with the model's: --tokenizer MODEL"
        )
    for feature in ("input_ids", "labels"):
        said = dataset.features.get(feature)
        if said is None or len(said.shape) != 1 or (said.shape[0] is not None and not 0 < said.shape[0] <= MOST_LENGTH):
            what = "no such feature" if said is None else f"the shape {said.shape}"
            raise DatasetError(
                f"{data} says of {feature}: {what}. A row has 1 to {MOST_LENGTH:,} tokens: prepare it with t5prep prepare."
            )
    for shard in chosen.shards:
        if sizes.get(shard.name) != shard.bytes:
            there = f"{sizes[shard.name]:,} bytes" if shard.name in sizes else "missing"
            raise DatasetError(
                f"{data}/{shard.name} is {there}, the manifest says {shard.bytes:,} bytes. "
                f"Copy or prepare it again, then check it: t5prep verify {data}"
            )
    full = [shard for shard in chosen.shards if shard.records]
    if not full:
        raise DatasetError(f'The split "{split}" of {data} holds no records. Name another, or prepare more rows.')
    return Opened(
        data=data,
        manifest=dataset,
        name=split,
        split=chosen,
        paths=tuple(paths.at(data, shard.name) for shard in full),
        counts=tuple(shard.records for shard in full),
        sizes=sizes,
    )


def open_all(data: Sequence[str | Opened], *, split: str, tokenizer: str | None = None) -> list[Opened]:
    """Open the datasets of a mixture by `open_split`, and check that they agree on tokenizer, and on being packed.

    Raises DatasetError and UsageError.
    """
    opened = [with_index(open_split(name, split=split, tokenizer=tokenizer)) for name in data]
    for other in opened[1:]:
        for what, one, two in (
            ("tokenizer", opened[0].manifest.tokenizer.sha256[:12], other.manifest.tokenizer.sha256[:12]),
            ("layout", opened[0].manifest.settings.layout, other.manifest.settings.layout),
        ):
            if one != two and (what == "tokenizer" or "packed" in (one, two)):
                raise UsageError(
                    f"{opened[0].data} and {other.data} cannot be mixed: their {what} is {one} and {two}. "
                    "Prepare both with the same one."
                )
    return opened


def with_index(opened: Opened) -> Opened:
    """Return a dataset that has an index of its records. Raises DatasetError if it has none."""
    if not opened.manifest.index:
        raise DatasetError(f"{opened.data} has no index of its records. Prepare it again, into another --out.")
    return opened


def _sizes(data: str, names: list[str]) -> dict[str, int]:
    if gcs.is_gs(data):
        return {name: there.bytes for name, there in gcs.objects(data).items()}
    return {name: os.path.getsize(path) for name in names if os.path.isfile(path := os.path.join(data, name))}
