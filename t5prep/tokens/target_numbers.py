"""Turn the texts of targets into labels that are no tokens: numbers of classes, of tags, flags of labels, or a number's bits."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.tasks import example_table
from t5prep.tokens.ragged import Ragged

IGNORED = -100  # the label of a place that has none
LARGEST = float(np.finfo(np.float32).max)


def bits_of(numbers: npt.ArrayLike) -> np.ndarray:
    """Return numbers as labels: the bits of float32 as int32. No number has the bits of IGNORED, which is a NaN.

    >>> bits_of([1.0, -2.5]).tolist(), numbers_of(bits_of([1.0, -2.5])).tolist()
    ([1065353216, -1071644672], [1.0, -2.5])
    """
    return np.asarray(numbers, np.float32).view(np.int32)


def numbers_of(bits: npt.ArrayLike) -> np.ndarray:
    """Return the numbers, float32, that `bits_of` made labels."""
    return np.asarray(bits, np.int32).view(np.float32)


class TargetNumbers:
    """Make labels of targets of a kind (`Settings.target`, not "text"), whose names are those of `classes`."""

    def __init__(self, target: str, classes: Sequence[str]) -> None:
        self._target, self._classes = target, classes
        self._numbers = pa.array(list(classes), pa.large_string())

    def of_words(
        self, targets: pa.LargeStringArray | None, edges: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, dict[int, str]]:
        """Return the label of each word, int32[words], and the reasons of rows with other tags than words.

        Row r has the texts from `rows[r]` on, and text i the words from `edges[i]` on.
        """
        words = edges[rows]
        if targets is None:
            return (np.arange(edges[-1]) - np.repeat(words[:-1], np.diff(words))).astype(np.int32), {}
        names = example_table.names_of(targets, "tags")
        numbers, wrong = self._found(names)
        tags = names.offsets.to_numpy().astype(np.int64)
        differ = np.flatnonzero(np.diff(tags) != np.diff(words)).tolist()
        wrong |= {row: f"{words[row + 1] - words[row]} words and {tags[row + 1] - tags[row]} tags" for row in differ}
        labels = np.full(int(words[-1]), IGNORED, np.int32)
        alike = np.ones(len(rows) - 1, bool)
        alike[differ] = False
        labels[np.repeat(alike, np.diff(words))] = numbers[np.repeat(alike, np.diff(tags))]
        return labels, {row: why for row, why in wrong.items() if rows[row] < rows[row + 1]}

    def __call__(self, targets: pa.LargeStringArray) -> tuple[Ragged, dict[int, str]]:
        """Return the labels of each target that is no text, and the reasons of targets that have none."""
        if self._target == "number":
            bits, wrong = _bits_of_texts(targets)
            return Ragged(bits, np.arange(len(targets) + 1)), wrong
        names = example_table.names_of(targets, self._target)
        numbers, wrong = self._found(names)
        if self._target == "class":
            return Ragged(numbers, np.arange(len(targets) + 1)), wrong
        width = len(self._classes)
        chosen = np.zeros((len(targets), width), np.int32)
        chosen[np.repeat(np.arange(len(targets)), np.diff(names.offsets.to_numpy())), numbers] = 1
        return Ragged(chosen.ravel(), np.arange(len(targets) + 1) * width), wrong

    def _found(self, names: pa.ListArray) -> tuple[np.ndarray, dict[int, str]]:
        """Return the numbers of the classes of these names, int32[names], and the reasons of rows with a name of none."""
        numbers = pc.index_in(names.values, self._numbers)
        known = ", ".join(list(self._classes)[:8])
        unknown = np.flatnonzero(numbers.is_null().to_numpy(zero_copy_only=False))
        rows = np.searchsorted(names.offsets.to_numpy(), unknown, side="right") - 1
        wrong = {
            row: f"unknown class: {names.values[place].as_py()[:40]!r} is not one of {known}"
            for row, place in zip(
                rows[::-1].tolist(), unknown[::-1].tolist(), strict=True
            )  # the first of a row is said
        }
        return numbers.fill_null(0).to_numpy(), wrong


def _bits_of_texts(texts: pa.LargeStringArray) -> tuple[np.ndarray, dict[int, str]]:
    """Return numbers as the bits of float32, int32[texts], and the reasons of texts that are none."""
    values, wrong = np.zeros(len(texts), np.float64), {}
    for row, text in enumerate(texts.to_pylist()):
        try:
            values[row] = float(text)
        except (TypeError, ValueError):
            values[row] = np.nan
        if not abs(values[row]) <= LARGEST:
            wrong[row], values[row] = f"no number: {str(text)[:40]!r}", 0.0
    return bits_of(values), wrong
