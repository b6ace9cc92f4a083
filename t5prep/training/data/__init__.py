"""Read prepared datasets as batches: manifest in, batches out, from a disk or from gs://.

Batches are `{input_ids, attention_mask, labels}`, int32 of static shape. They have the same rows in the same order for
any number of replicas and hosts, and can start at any step: `t5prep.training.data.order` defines the order.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from t5prep.dataset.prepared import DatasetSplit
from t5prep.training.data import tensorflow_rows
from t5prep.training.data.batches import Host, Reading, WholeSplit, read_ahead
from t5prep.training.data.open_datasets import open_splits
from t5prep.training.model.forward import with_mask
from t5prep.training.settings.padding import Padding
from t5prep.training.settings.train_config import Lengths

__all__ = ["eval_batches", "train_batches"]


def train_batches(
    data: str | Sequence[str],
    *,
    split: str = "train",
    global_batch: int,
    seed: int,
    start_step: int = 0,
    rates: Sequence[float] | None = None,
    host: int = 0,
    hosts: int = 1,
    with_ids: bool = False,
    tokenizer: str | None = None,
    buckets: Sequence[Lengths] = (),
    masks: bool = True,
) -> tf.data.Dataset:
    """Return endless training batches from `start_step` on: this host's part of each global batch.

    The same seed and step give the same rows in the same order, for any number of hosts. An epoch may end in the middle of
    a batch; the next epoch then fills the rest of that batch.

    Args:
        data: A prepared dataset (a directory or gs:// prefix), or several, which are mixed.
        split: The split to read.
        global_batch: Rows of a batch over all hosts.
        seed: Decides the order.
        start_step: The step whose batch comes first, counted from 0.
        rates: Relative rates at which the datasets are drawn, as positive numbers; by default their numbers of records.
        host: This host's number, from 0.
        hosts: The number of hosts; each reads only its own `global_batch / hosts` rows.
        with_ids: Whether to add `id`: string[rows] (packed: string[rows, most in a row]).
        tokenizer: The SHA-256 of the tokenizer that the manifest must name; None for any.
        buckets: Lengths of inputs and targets, such as [(128, 16), (512, 64)]. Each record goes to the first bucket that
            holds it, and all rows of a batch come from one bucket. A split without `shards.lengths` (one of more than
            2^24 records) is read once before the first batch.
        masks: Whether to add `attention_mask`. The trainer sets False, because its step computes the mask on the device.

    Returns:
        A tf.data.Dataset of `{"input_ids", "attention_mask": int32[rows, input_length], "labels": int32[rows,
        target_length]}`; labels are -100 where there is no target token.

    Raises:
        DatasetError: A dataset differs from its manifest. This may also be raised later, while batches are read. A dataset
            that is derived from this one (by `take`, `map`, …) raises TensorFlow's error instead, which quotes it.
        UsageError: The rows cannot be dealt to the hosts, or the datasets cannot be mixed at these rates.

    Example:
        batches = t5prep.train_batches("data/sample", global_batch=32, seed=0, start_step=1000)
        print(next(iter(batches))["labels"].shape)
    """
    opened = open_splits([data] if isinstance(data, str) else data, split, tokenizer=tokenizer)
    reading = Reading(
        opened,
        seed=seed,
        global_batch=global_batch,
        rates=rates,
        host=Host(host, hosts),
        buckets=buckets,
        masks=masks,
    )
    finish = functools.partial(with_mask, padding=Padding.of_dataset(opened[0].manifest)) if masks else dict
    return tensorflow_rows.batches(reading, finish, start_step=start_step, with_ids=with_ids)


def eval_batches(opened: DatasetSplit, *, batch: int, limit: int = 0) -> Iterator[dict[str, np.ndarray]]:
    """Yield every record of a split once, in the order of its shards, as batches of `batch` rows without masks.

    With a `limit`, only the first `limit` records are read; they are a random sample, because shards are shuffled. The
    last batch is filled up with rows that the loss ignores: their labels are all -100, and their `id` is b"".

    A batch also has `id`, bytes[rows], and `references`, bytes[rows, most], with b"" where a record has fewer. Batches of
    packed rows have neither. Raises DatasetError.
    """
    split = WholeSplit(opened, rows=batch, limit=limit)
    return read_ahead(split, range(len(split)))
