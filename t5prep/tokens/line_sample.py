"""Sample lines of text by stable hash: the same sample for any order of the text, any blocks, any number of workers.

Each distinct line has a keyed hash, and the sample is the lines with the smallest hashes. Sampling parts, and then
sampling these samples, gives the same lines as sampling the whole, so workers can sample parts independently.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator

# SentencePiece's trainer skips longer lines (max_sentence_length, in bytes), so they are cut.
LONGEST_LINE_BYTES = 4192
DIGEST_BYTES = 16


class Drawing:
    """Keep at most `most` distinct lines, those with the smallest hashes, and never hold more in memory."""

    def __init__(self, most: int, *, seed: int) -> None:
        self.most = most
        self.seed = seed
        self._key = seed.to_bytes(8, "big", signed=True)
        self._heap: list[tuple[int, str]] = []  # (-hash, line): the largest hash is on top and is removed first
        self._kept: set[int] = set()

    def add(self, lines: Iterable[str]) -> None:
        """Add more lines to the sample."""
        heap, kept, key = self._heap, self._kept, self._key
        for line in lines:
            data = line.encode("utf-8", "surrogatepass")
            drawn = -int.from_bytes(hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=key).digest(), "big")
            if drawn in kept:
                continue
            if len(heap) < self.most:
                heapq.heappush(heap, (drawn, line))
            elif drawn > heap[0][0]:
                kept.discard(heapq.heappushpop(heap, (drawn, line))[0])
            else:
                continue
            kept.add(drawn)

    def lines(self) -> list[str]:
        """Return the sample, in the order of the hashes."""
        return [line for _, line in sorted(self._heap, reverse=True)]


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a text that are not blank; lines longer than LONGEST_LINE_BYTES are cut at spaces.

    >>> list(lines_of("one \\n\\n two"))
    ['one', 'two']
    """
    for line in text.split("\n"):
        if stripped := line.strip():
            yield from _cut(stripped) if len(stripped) * 4 > LONGEST_LINE_BYTES else (stripped,)


def _cut(line: str) -> Iterator[str]:
    """Yield parts of at most LONGEST_LINE_BYTES; a word that is longer is cut at the limit."""
    data = line.encode("utf-8", "surrogatepass")
    while len(data) > LONGEST_LINE_BYTES:
        end = data.rfind(b" ", 1, LONGEST_LINE_BYTES + 1)
        if end < 0:
            end = LONGEST_LINE_BYTES
            while data[end] & 0xC0 == 0x80:  # do not cut inside a character
                end -= 1
        yield data[:end].decode("utf-8", "surrogatepass").strip()
        data = data[end:].lstrip(b" ")
    if data:
        yield data.decode("utf-8", "surrogatepass")
