"""Mix 64-bit numbers, and draw fixed odd numbers with the mixer."""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(values: np.ndarray) -> np.ndarray:
    """Return each of `uint64[n]` with its bits mixed, one to one: the finalizer of SplitMix64 (Steele et al. 2014).

    >>> mix(np.array([1, 2], np.uint64)).tolist()
    [6238072747940578789, 15839785061582574730]
    """
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def odd_numbers(count: int, *, stream: int) -> np.ndarray:
    """Return `uint64[count]` odd numbers, always the same for a stream: the output of SplitMix64."""
    steps = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(stream << 20)
    return mix(steps * _GOLDEN) | np.uint64(1)
