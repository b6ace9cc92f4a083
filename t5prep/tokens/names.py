"""Hold many short texts as one piece of bytes, of which one is decoded when it is asked for."""

import itertools
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np


class Names(Sequence[str]):
    """Hold texts in UTF-8, one after the other; text i begins at `starts[i]`, int64[texts + 1]."""

    def __init__(self, data: bytes | bytearray, starts: np.ndarray) -> None:
        self.data, self.starts = data, starts

    @staticmethod
    def of(texts: Sequence[str]) -> "Names":
        """Return these texts, whose lone surrogates are kept.

        >>> list(Names.of(["a", "bc"]))
        ['a', 'bc']
        """
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        starts = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=starts[1:])
        return Names(b"".join(encoded), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        return self.data[self.starts[place] : self.starts[place + 1]].decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        for begin, end in itertools.pairwise(self.starts.tolist()):
            yield self.data[begin:end].decode("utf-8", "surrogatepass")
