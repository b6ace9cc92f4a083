"""Name the files of a dataset that lie beside its shards and its manifest."""

from pathlib import Path

from t5prep.dataset import card, croissant, manifest, rejected_rows, shard_files
from t5prep.dataset.manifest import Manifest

# Those that a dataset may have, besides its rejected rows.
NAMES = ("report.html", shard_files.INDEX, shard_files.LENGTHS, card.NAME, croissant.NAME, manifest.TASK_FILE)


def names(dataset: Manifest, folder: Path) -> list[str]:
    """Return the names of those that are in the folder of a dataset, its rejected rows first."""
    rejected = rejected_rows.names_of(dataset.rejected_file.name) if dataset.rejected_file else [rejected_rows.NAME]
    return [name for name in (*rejected, *NAMES) if (folder / name).is_file()]
