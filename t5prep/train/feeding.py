"""Move training batches from the shards to the devices."""

from collections.abc import Iterator, Sequence
from typing import Any

from t5prep.train.config import TrainConfig
from t5prep.train.data import train_batches
from t5prep.train.data.opening import Opened
from t5prep.train.data.read_errors import arrays
from t5prep.train.runtime.layout import Layout
from t5prep.train.runtime.state import put_rows


def device_batches(
    opened: Sequence[Opened], config: TrainConfig, *, layout: Layout, start_step: int
) -> Iterator[dict[str, Any]]:
    """Yield every batch from `start_step` on, on the devices; each host reads its own rows."""
    host, hosts = layout.row_reader
    rows = train_batches(
        opened,
        split=config.split,
        global_batch=config.batch,
        seed=config.seed,
        start_step=start_step,
        rates=config.rates or None,
        host=host,
        hosts=hosts,
    )
    for batch in arrays(rows):
        yield put_rows(batch, layout)
