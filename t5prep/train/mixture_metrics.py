"""Join the evaluations of a mixture's datasets: each one's own numbers, and the mean that chooses the best checkpoint."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

# A count is added up; every other number is averaged.
_COUNTS = ("records",)


def joined(names: Sequence[str], each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean under a number's own name, and each dataset's number as `DATASET/NUMBER`; of one dataset, its own.

    Every dataset counts equally in the mean, however large it is, as in the mean of a benchmark such as GLUE.
    """
    if len(each) == 1:
        return dict(each[0])
    own = {f"{name}/{key}": value for name, numbers in zip(names, each, strict=True) for key, value in numbers.items()}
    return mean(each) | own


def mean(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number that all have; records are added up.

    >>> mean([{"loss": 1.0, "records": 10}, {"loss": 2.0, "records": 30, "em": 0.5}])
    {'loss': 1.5, 'records': 40}
    """
    shared = [name for name in each[0] if all(name in numbers for numbers in each)]
    sums = {name: sum(numbers[name] for numbers in each) for name in shared}
    return {name: value if name in _COUNTS else value / len(each) for name, value in sums.items()}


def names_of(places: Sequence[str]) -> list[str]:
    """Return a short name for each dataset: the last part of its place that differs from the others'.

    >>> names_of(["data/cola", "gs://bucket/sst2/"]), names_of(["a/data", "b/data"])
    (['cola', 'sst2'], ['a-data', 'b-data'])
    """
    parts = [PurePosixPath(place.rstrip("/")).parts for place in places]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["-".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name}-{number}" for number, name in enumerate(names)]
