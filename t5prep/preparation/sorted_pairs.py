"""Sort more pairs of numbers than fit into memory, in sorted files that are merged on reading."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from t5prep.io import atomic_files
from t5prep.tokens.ragged import run_starts

# Number of pairs in memory.
MAX_PAIRS = 1 << 18
# Number of sorted files that are merged at a time.
FAN_IN = 128
_PAIR_BYTES = 16


class SortedPairs:
    """A sorted set of pairs of numbers: up to `max_pairs` in memory, more in sorted files in `folder`."""

    def __init__(self, folder: Path, max_pairs: int = MAX_PAIRS) -> None:
        self._folder, self._held, self._written = folder, max_pairs, 0
        self.clear()

    def clear(self) -> None:
        """Remove all pairs and their files."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._waiting, self._count = list[np.ndarray](), 0
        self._levels: list[list[Path]] = [[]]

    def add(self, pairs: np.ndarray) -> None:
        """Add pairs, `uint64[pairs, 2]`, in any order."""
        self._waiting.append(pairs)
        self._count += len(pairs)
        if self._count >= self._held:
            self._write(0, self._take_sorted())

    def all(self) -> Iterator[np.ndarray]:
        """Yield all pairs in order, in parts; none may be added afterwards. Raises OutputError if a file is gone or not writable."""
        if any(self._levels):
            if self._count:
                self._write(0, self._take_sorted())
            yield from _merged([path for level in self._levels for path in level], self._held)
        elif self._count:
            self._waiting = list(self._take_sorted())
            self._count = len(self._waiting[0])
            yield self._waiting[0]

    def _take_sorted(self) -> Iterator[np.ndarray]:
        """Yield the pairs in memory as one sorted array, and release them."""
        pairs = _ordered(np.concatenate(self._waiting))
        self._waiting, self._count = [], 0
        yield pairs

    def _write(self, level: int, pairs: Iterable[np.ndarray]) -> None:
        """Write sorted pairs into a file. FAN_IN files of one level are merged into one of the next."""
        path = self._folder / f"{self._written:08d}"
        self._written += 1
        with atomic_files.scratch(path) as temporary, open(temporary, "wb") as file:
            for part in pairs:
                file.write(part.data)
        self._levels[level].append(path)
        if len(self._levels[level]) >= FAN_IN:
            level_paths, self._levels[level] = self._levels[level], []
            if level + 1 == len(self._levels):
                self._levels.append([])
            self._write(level + 1, _merged(level_paths, self._held))
            for path in level_paths:
                path.unlink()


def _ordered(pairs: np.ndarray) -> np.ndarray:
    """Return the distinct pairs in order."""
    nodes, ends = np.unique(pairs, return_inverse=True)
    first_nodes, second_nodes = ends.reshape(pairs.shape).astype(np.uint64).T
    # Both indices of a pair are packed into one number, because it sorts several times as fast as two.
    codes = np.sort(first_nodes << np.uint64(32) | second_nodes)
    codes = codes[run_starts(codes)]
    return np.stack([nodes[codes >> np.uint64(32)], nodes[codes & np.uint64(0xFFFFFFFF)]], axis=1)


def _merged(paths: list[Path], max_pairs: int) -> Iterator[np.ndarray]:
    """Yield the distinct pairs of sorted files in order, about `max_pairs` at a time."""
    pairs_per_file = max(1, max_pairs // len(paths))
    files = [open(path, "rb", buffering=0) for path in paths]  # noqa: SIM115 - closed below, all of them
    try:
        parts = [_read(file, pairs_per_file) for file in files]
        while files:
            # Pairs up to the smallest of the parts' last pairs are complete: no file has further pairs below it.
            last = min((part[-1] for part in parts), key=tuple)
            ends = [_up_to(part, last) for part in parts]
            yield _ordered(np.concatenate([part[:end] for part, end in zip(parts, ends, strict=True)]))
            remaining_parts = []
            for file, part, end in zip(files, parts, ends, strict=True):
                remaining_pairs = np.concatenate([part[end:], _read(file, end)])
                if len(remaining_pairs):
                    remaining_parts.append((file, remaining_pairs))
                else:
                    file.close()
            files, parts = [file for file, _ in remaining_parts], [part for _, part in remaining_parts]
    finally:
        for file in files:
            file.close()


def _read(file: BinaryIO, pairs: int) -> np.ndarray:
    """Return the next `pairs` pairs of a file, fewer at its end."""
    return np.frombuffer(file.read(pairs * _PAIR_BYTES), np.uint64).reshape(-1, 2)


def _up_to(pairs: np.ndarray, last: np.ndarray) -> int:
    """Return how many of some sorted `pairs` are at most `last`."""
    begin, end = (int(np.searchsorted(pairs[:, 0], last[0], side)) for side in ("left", "right"))
    return begin + int(np.searchsorted(pairs[begin:end, 1], last[1], side="right"))
