"""Move training batches from the shards to the devices, and decide how often each dataset of a mixture is drawn."""

import math
import operator
from collections.abc import Callable, Iterator, Sequence

import jax

from t5prep.dataset.prepared import DatasetSplit
from t5prep.training.data import batches
from t5prep.training.data.batches import ALONE, Host, Reader, Reading
from t5prep.training.data.page_reader import PageReader
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.state import put_rows
from t5prep.training.settings.train_config import TrainConfig, parse_buckets


def rates_of(opened: Sequence[DatasetSplit], config: TrainConfig) -> list[float]:
    """Return the rate at which each dataset of a run is drawn. The rates add up to 1."""
    records = [dataset_split.records for dataset_split in opened]
    return rates(records, explicit_rates=config.rates, temperature=config.temperature, cap=config.cap)


def shapes(opened: Sequence[DatasetSplit], config: TrainConfig) -> list[tuple[int, int]]:
    """Return the (input, target) lengths of a run's batches, the longest first. Raises UsageError, DatasetError."""
    if not config.buckets:
        inputs, targets = map(max, zip(*(dataset_split.lengths for dataset_split in opened), strict=True))
        return [(inputs, targets)]
    of_buckets = parse_buckets(config.buckets)
    batches.check_buckets(opened, of_buckets)
    # A record that fits no bucket raises here, before minutes are spent on compiling the step.
    if batches.lengths_kept(opened[0]):
        batches.assign_buckets(batches.lengths_of(opened[0]), of_buckets)
    return of_buckets[::-1]


def cost_of_padding(opened: Sequence[DatasetSplit], shares: Sequence[float]) -> str:
    """Return a sentence about the cost of padding datasets of different lengths to the longest; "" if all are equally long.

    `shares` holds the rate of each dataset, which add up to 1.
    """
    lengths = [dataset_split.lengths for dataset_split in opened]
    if len(set(lengths)) == 1:
        return ""
    tokens = [sum(pair) for pair in lengths]
    # The mean factor by which padding lengthens a row.
    factor = max(tokens) / math.fsum(map(operator.mul, tokens, shares))
    longest = " + ".join(str(max(side)) for side in zip(*lengths, strict=True))
    return (
        f"The datasets have rows of {', '.join(f'{a} + {b}' for a, b in lengths)} tokens, and all are padded to {longest}: "
        f"{factor:.1f} times the tokens that rows of their own lengths have."
    )


def device_batches(
    opened: Sequence[DatasetSplit], config: TrainConfig, *, layout: Layout, start_step: int
) -> Iterator[dict[str, jax.Array]]:
    """Yield every batch from `start_step` on, on the devices; each host reads its own rows."""
    reading = reading_of(opened, config, host=Host(*layout.row_reader))
    for batch in reading.batches(start_step):
        yield put_rows(batch, layout)


def reading_of(
    opened: Sequence[DatasetSplit],
    config: TrainConfig,
    *,
    host: Host = ALONE,
    reader: Callable[[DatasetSplit], Reader] = PageReader,
) -> Reading:
    """Return the Reading of a run's batches on one host. Raises UsageError, DatasetError."""
    return Reading(
        opened,
        seed=config.seed,
        global_batch=config.batch,
        rates=rates_of(opened, config),
        buckets=parse_buckets(config.buckets),
        host=host,
        reader=reader,
    )


def rates(
    records: Sequence[int], *, explicit_rates: Sequence[float] = (), temperature: float = 1.0, cap: int = 0
) -> list[float]:
    """Return the rate at which each dataset is drawn: `explicit_rates` scaled to a sum of 1, or rates from `records`.

    Without explicit rates, a dataset's rate is proportional to min(records, cap)^(1 / temperature). A `cap` of 0 is no limit,
    and a `temperature` above 1 makes rates more equal. T5's paper trains with both (Raffel 2020 §3.5.2: "examples-proportional
    mixing" with a limit, and "temperature-scaled mixing"). seqio calls them `maximum` and `temperature`.

    >>> rates([900, 100])
    [0.9, 0.1]
    >>> rates([900, 100], cap=300)
    [0.75, 0.25]
    >>> rates([900, 100], temperature=2)
    [0.75, 0.25]
    """
    weights = list(explicit_rates) or [min(count, cap or count) ** (1 / temperature) for count in records]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
