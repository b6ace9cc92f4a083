"""Publish a prepared dataset on the Hugging Face Hub."""

from pathlib import Path

from t5prep.dataset import beside, manifest
from t5prep.dataset.verify import verify
from t5prep.errors import DatasetError
from t5prep.io import gcs, hub_upload


def push(data: str, *, repo: str, private: bool = False) -> str:
    """Upload a dataset that verifies, all its files in one commit, and return the page's address.

    Raises DatasetError for a dataset that does not verify, UsageError, OutputError.
    """
    folder = manifest.folder_of(data) or "."
    if gcs.is_gs(folder):
        raise DatasetError(f"{data} is in a bucket. Copy it here first: gcloud storage cp -r {data} FOLDER")
    dataset = verify(folder)
    shards = [shard.name for split in dataset.splits.values() for shard in split.shards]
    names = [*shards, *beside.names(dataset, Path(folder)), manifest.NAME]
    message = f"Dataset prepared by {dataset.created_by}"
    return hub_upload.upload(folder, repo=repo, kind="dataset", private=private, message=message, names=names)
