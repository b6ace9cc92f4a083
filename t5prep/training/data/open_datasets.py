"""Open the datasets of a run: check each manifest and the size of every shard before the first step."""

from collections.abc import Sequence

from t5prep.dataset.prepared import Dataset, DatasetSplit
from t5prep.errors import DatasetError, UsageError
from t5prep.training.settings.train_config import TINY_MODEL, TrainConfig


def open_split(dataset: Dataset, split: str, *, tokenizer: str | None = None) -> DatasetSplit:
    """Return a split after checking that it has records and an index, and that its shards have the manifest's sizes.

    `tokenizer` is the SHA-256 of the tokenizer that must have made the ids; None skips this check. Raises DatasetError.
    """
    opened, folder, described = dataset.split(split), dataset.folder, dataset.manifest.tokenizer
    if tokenizer is not None and described.sha256 != tokenizer:
        raise DatasetError(
            f"{folder} was tokenized with {described.name} (SHA-256 {described.sha256[:12]}…), but the "
            f"model uses another tokenizer ({tokenizer[:12]}…). Prepare the data again with the model's "
            "tokenizer: --tokenizer MODEL",
            code="dataset.tokenizer-mismatch",
        )
    sizes = dataset.shard_sizes
    for shard in opened.facts.shards:
        if sizes.get(shard.name) != shard.bytes:
            size = f"{sizes[shard.name]:,} bytes" if shard.name in sizes else "missing"
            raise DatasetError(
                f"{folder}/{shard.name} is {size}, but the manifest says {shard.bytes:,} bytes. Copy or "
                f"prepare the dataset again, then check it: t5prep verify {folder}",
                code="dataset.altered",
            )
    if not opened.records:
        raise DatasetError(
            f'The split "{split}" of {folder} has no records. Name another split, or prepare more rows.',
            code="dataset.empty-split",
        )
    _ = dataset.index  # reads the index, and raises DatasetError if it is missing or damaged
    return opened


def open_training_splits(config: TrainConfig) -> list[DatasetSplit]:
    """Open the training split of each dataset of a run, see `open_splits`. The model that the user named may have its tokenizer."""
    model = "" if config.model == TINY_MODEL else config.model
    return open_splits(config.data, config.split, tokenizer_name=config.tokenizer, model=model)


def open_splits(
    data: Sequence[str], split: str, *, tokenizer: str | None = None, tokenizer_name: str = "", model: str = ""
) -> list[DatasetSplit]:
    """Open the `split` of each dataset, and check that all have the same tokenizer, and that all or none are packed.

    `tokenizer` is the SHA-256 that each must have, see `open_split`. `tokenizer_name` replaces the name in the manifests, if
    no tokenizer is found under that name. `model` is the model of the run, whose tokenizer may be the datasets'. Raises
    DatasetError and UsageError.
    """
    opened = [
        open_split(Dataset(name, tokenizer=tokenizer_name, model=model), split, tokenizer=tokenizer) for name in data
    ]
    first = opened[0].manifest
    for dataset_split in opened[1:]:
        for attribute, first_value, second_value in (
            ("tokenizer", first.tokenizer.sha256[:12], dataset_split.manifest.tokenizer.sha256[:12]),
            ("layout", first.settings.layout, dataset_split.manifest.settings.layout),
        ):
            if first_value != second_value and (attribute == "tokenizer" or "packed" in (first_value, second_value)):
                raise UsageError(
                    f"{opened[0].folder} and {dataset_split.folder} cannot be mixed, because their {attribute} "
                    f"differs ({first_value} and {second_value}). Prepare both datasets with the same {attribute}.",
                    code="dataset.mixed-settings",
                )
    return opened
