"""Trace one record through a run: the steps whose batches held it, its loss, and the model's answer."""

import copy
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import tensorflow as tf

from t5prep.dataset import manifest, shard_files
from t5prep.dataset.manifest import Manifest
from t5prep.dataset.prepared import Dataset, DatasetSplit
from t5prep.dataset.shard_files import Shard
from t5prep.dataset.tfrecord import PLACE, Records
from t5prep.errors import UsageError
from t5prep.io import atomic_files, paths
from t5prep.options.models import EvaluateOptions
from t5prep.training.data import device_feed, open_datasets
from t5prep.training.data.page_reader import PageReader
from t5prep.training.evaluate import splits
from t5prep.training.evaluate.evaluator import Prediction
from t5prep.training.run import checkpoints, run
from t5prep.training.settings import train_config

ANSWERS = "eval.json"


class RunFacts(TypedDict):
    """Hold what a run did with one record. `steps` are counted from 1, up to `trained`, the step of the newest checkpoint.

    `loss` is the mean over the target's tokens, and `prediction` the answer, both by the best `checkpoint`. `kept_in` is
    the file with the answer, None if it was predicted now.
    """

    run: str
    trained: int
    split: str
    steps: list[int]
    checkpoint: str
    loss: float
    prediction: str | None
    right: bool | None
    kept_in: str | None


def record_in_run(name: str, dataset: Dataset, *, shard: str, number: int, byte: int, size: int, id: str) -> RunFacts:
    """Return what the run `name` did with one record of `dataset`. Raises T5prepError.

    Args:
        name: The run's directory.
        dataset: The dataset that holds the record.
        shard: The file name of the record's shard.
        number: The record's number in its shard, from 0.
        byte: The record's first byte in its shard.
        size: The record's size in bytes.
        id: The record's id.

    Returns:
        `trained`, the number of steps up to the newest checkpoint; `steps`, the numbers (from 1) of the steps whose batch
        held the record; `loss`, the mean over the target's tokens; and `prediction`, the answer. Loss and answer are those
        of the best checkpoint. If RUN/eval.json has an answer of this checkpoint, that one is returned, and `kept_in`
        names the file.
    """
    if not run.is_run(name):
        raise UsageError(
            f"{name} is not a run of t5prep. Name the folder of a training run: --run RUN",
            code="run.foreign-folder",
        )
    newest = checkpoints.last(name)
    if newest is None:
        raise UsageError(
            f"{name} has no checkpoint yet, so it has not seen any record. Wait for its first checkpoint.",
            code="run.no-checkpoint",
        )
    state = newest[1]
    has_record = [entry["digest"] == dataset.manifest.digest for entry in state.data]
    if not any(has_record):
        raise UsageError(
            f"{name} was not trained on {dataset.folder}. Name a dataset that it was trained on: "
            f"{', '.join(str(entry['uri']) for entry in state.data)}.",
            code="run.dataset-mismatch",
        )
    split = next(
        split
        for split, candidate in dataset.manifest.splits.items()
        if shard in {entry.name for entry in candidate.shards}
    )
    settings = train_config.build(state.config)
    steps: list[int] = []
    if split == settings.split:
        places = [
            dataset.folder if is_here else splits.place_of(str(entry["uri"]), name)
            for entry, is_here in zip(state.data, has_record, strict=True)
        ]
        opened = open_datasets.open_splits(places, split)
        steps = steps_of(opened, settings, has_record=has_record, shard=shard, number=number, steps=state.step)
    with atomic_files.temporary_folder() as folder:
        with paths.opened(dataset.path_of(shard)) as file:
            file.seek(byte)
            framed = file.read(size)
        _write_alone(framed, dataset.manifest, split=split, out=folder)
        scored, ((_, _, evaluation),) = splits.score_splits(
            name, EvaluateOptions(data=(folder,), split=(split,), worst=0, random_wrong=0)
        )
    cached_answer = _find_cached_answer(name, id=id, checkpoint=scored)
    answer = cached_answer or next(iter(evaluation.predictions), None)
    return {
        "run": name,
        "trained": state.step,
        "split": settings.split,
        "steps": steps,
        "checkpoint": scored,
        "loss": evaluation.numbers()["loss"],
        "prediction": answer["prediction"] if answer else None,
        "right": answer["prediction"] in answer["references"] if answer else None,
        "kept_in": f"{name.rstrip('/')}/{ANSWERS}" if cached_answer else None,
    }


def steps_of(
    opened: Sequence[DatasetSplit],
    settings: train_config.TrainConfig,
    *,
    has_record: Sequence[bool],
    shard: str,
    number: int,
    steps: int,
) -> list[int]:
    """Return the numbers, from 1 up to `steps`, of a run's steps whose batches held one record.

    `has_record` is true for the run's datasets that contain the record; `number` is the record's number in its `shard`. The
    order of training is computed again, without reading any record.
    """
    mine = opened[has_record.index(True)]
    previous_shards = itertools.takewhile(lambda other_shard: other_shard.name != shard, mine.shards)
    sizes = PageReader(mine).sizes
    ends = np.cumsum(sizes)
    record_index = sum(previous_shard.records for previous_shard in previous_shards) + number
    page = int(np.searchsorted(ends, record_index, side="right"))
    location = (page, record_index - int(ends[page] - sizes[page]))
    record_datasets = [split for split, is_here in zip(opened, has_record, strict=True) if is_here]
    reading = device_feed.reading_of(
        opened, settings, reader=lambda split: _Names(split, mine=split in record_datasets)
    )
    matching_steps = []
    for step in range(steps):
        places = reading.records(step)[0].places
        if ((places["page"] == location[0]) & (places["begin"] == location[1]) & (places["size"] == 1)).any():
            matching_steps.append(step + 1)
    return matching_steps


class _Names:
    """A reader for `batches.Reading` that returns the identity of each requested record instead of its bytes.

    `records` fills the fields of a place with other meanings: `page` is the number of the page in the dataset, `begin` the
    record's number in the page, and `size` is 1 if the dataset is `mine`.
    """

    def __init__(self, opened: DatasetSplit, *, mine: bool) -> None:
        self.sizes, self._mine = PageReader(opened).sizes, mine

    def records(self, pages: np.ndarray, places: np.ndarray) -> Records:
        """Return the identities of records, in the shape of `pages` and `places`."""
        record_names = np.empty(pages.shape, PLACE)
        record_names["page"], record_names["begin"], record_names["size"] = pages, places, self._mine
        return Records([], record_names)


def _write_alone(framed: bytes, dataset: Manifest, *, split: str, out: str) -> None:
    """Write a dataset with a single record to `out`, so that the code for whole splits can score the record."""
    shard = Shard(shard_files.name(split, 0, 1), 1, len(framed), hashlib.sha256(framed).hexdigest())
    paths.write(paths.join(out, shard.name), framed)
    sizes = shard_files.page_sizes(np.array([len(framed)]), every=8)
    index = shard_files.write_index(out, [sizes.tobytes()], every={split: 8})
    only_split = dataclasses.replace(dataset.splits[split], records=1, examples=1, shards=[shard])
    ledger = copy.deepcopy(dataset.ledger)
    ledger["inputs"]["worst"], ledger["targets"]["worst"] = [], []  # they name rows that this dataset lacks
    alone = dataclasses.replace(
        dataset,
        splits={split: only_split},
        ledger=ledger,
        index=index,
        lengths=None,
        origins=None,
        rejected_file=None,
    )
    paths.write(paths.join(out, manifest.NAME), alone.sealed().dumps().encode())


def _find_cached_answer(name: str, *, id: str, checkpoint: str) -> Prediction | None:
    """Return the answer to record `id` that an evaluation of `checkpoint` wrote to the run `name`, or None."""
    path = f"{name.rstrip('/')}/{ANSWERS}"
    if not tf.io.gfile.exists(path):
        return None
    try:
        document = json.loads(paths.read(path))
        if document["checkpoint"] != checkpoint:
            return None
        answers = (answer for part in document.get("evaluations", [document]) for answer in part["predictions"])
        return next((answer for answer in answers if answer["id"] == id), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
