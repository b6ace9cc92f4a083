"""Decide how often each dataset of a mixture is drawn, as seqio's functions of rates do."""

import math
from collections.abc import Sequence


def rates(
    records: Sequence[int], *, given: Sequence[float] = (), temperature: float = 1.0, cap: int = 0
) -> list[float]:
    """Return how often each dataset is drawn, adding up to 1: as `given`, else by its number of records.

    `cap` counts at most so many records of a dataset (0: all), and a `temperature` above 1 makes rates more equal: they are
    records^(1 / temperature). The paper of T5 trains with both (Raffel 2020 §3.5.2: "examples-proportional mixing" with a
    limit, "temperature-scaled mixing"); seqio calls them `maximum` and `temperature`.

    >>> rates([900, 100])
    [0.9, 0.1]
    >>> rates([900, 100], cap=300)
    [0.75, 0.25]
    >>> rates([900, 100], temperature=2)
    [0.75, 0.25]
    """
    weights = list(given) or [min(count, cap or count) ** (1 / temperature) for count in records]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def padding_factor(lengths: Sequence[int], shares: Sequence[float]) -> float:
    """Return how many times the tokens a mixture's rows have when each is as long as the longest dataset's.

    `lengths` are the tokens of a row of each dataset, inputs and targets together.

    >>> padding_factor([512, 128], [0.5, 0.5])
    1.6
    """
    return max(lengths) / math.fsum(length * share for length, share in zip(lengths, shares, strict=True))
