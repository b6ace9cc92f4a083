"""Choose at random in the same way on every platform and in every Python version.

Only `random()` and seeding with a string are used of `random.Random`: these two are promised never to change
(docs.python.org/3/library/random.html, "Notes on Reproducibility"), while the algorithms of `choice`, `shuffle`,
`sample` and `randrange` may change, and did. Everything else is built here from `random()`.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Chooser:
    """Give a stream of random choices that depends on its key alone."""

    def __init__(self, key: str) -> None:
        self._random = random.Random(key).random

    def below(self, n: int) -> int:
        """Return a whole number from 0 to n - 1."""
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, p: float) -> bool:
        """Return True with probability p."""
        return self._random() < p

    def pick(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[self.below(len(items))]

    def weighted(self, items: Sequence[T], weights: Sequence[float]) -> T:
        """Return one of the items, in proportion to its weight."""
        at = self._random() * sum(weights)
        for item, weight in zip(items, weights, strict=True):
            at -= weight
            if at < 0:
                return item
        return items[-1]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in another order (Fisher and Yates)."""
        left = list(items)
        for end in range(len(left) - 1, 0, -1):
            at = self.below(end + 1)
            left[at], left[end] = left[end], left[at]
        return left
