"""Move training batches from the shards to the devices."""

from collections.abc import Iterator, Sequence
from typing import Any

from t5prep.train.data import buckets, mixing, train_arrays
from t5prep.train.data.opening import Opened
from t5prep.train.runtime.layout import Layout
from t5prep.train.runtime.state import put_rows
from t5prep.train.settings import bucket_lengths
from t5prep.train.settings.config import TrainConfig


def rates(opened: Sequence[Opened], config: TrainConfig) -> list[float]:
    """Return how often each dataset of a run is drawn, adding up to 1."""
    records = [one.split.records for one in opened]
    return mixing.rates(records, given=config.rates, temperature=config.temperature, cap=config.cap)


def shapes(opened: Sequence[Opened], config: TrainConfig) -> list[tuple[int, int]]:
    """Return the (input, target) lengths that a run's batches have, the longest first. Raises UsageError, DatasetError."""
    if not config.buckets:
        return [(max(one.input_length for one in opened), max(one.target_length for one in opened))]
    of_buckets = bucket_lengths.parse(config.buckets)
    buckets.check(opened, of_buckets)
    if buckets.lengths_kept(opened[0]):  # a record that fits nowhere is found before the step is compiled
        buckets.assign(buckets.lengths(opened[0]), of_buckets)
    return of_buckets[::-1]


def cost_of_padding(opened: Sequence[Opened], shares: Sequence[float]) -> str:
    """Return a sentence for people where datasets of different lengths are padded to the longest, else ""."""
    lengths = [(one.input_length, one.target_length) for one in opened]
    if len(set(lengths)) == 1:
        return ""
    factor = mixing.padding_factor([sum(pair) for pair in lengths], shares)
    longest = " + ".join(str(max(side)) for side in zip(*lengths, strict=True))
    return (
        f"The datasets have rows of {', '.join(f'{a} + {b}' for a, b in lengths)} tokens, and all are padded to {longest}: "
        f"{factor:.1f} times the tokens that rows of their own lengths have."
    )


def device_batches(
    opened: Sequence[Opened], config: TrainConfig, *, layout: Layout, start_step: int
) -> Iterator[dict[str, Any]]:
    """Yield every batch from `start_step` on, on the devices; each host reads its own rows."""
    host, hosts = layout.row_reader
    rows = train_arrays(
        opened,
        split=config.split,
        global_batch=config.batch,
        seed=config.seed,
        start_step=start_step,
        rates=rates(opened, config),
        host=host,
        hosts=hosts,
        buckets=bucket_lengths.parse(config.buckets),
    )
    for batch in rows:
        yield put_rows(batch, layout)
