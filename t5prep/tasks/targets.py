"""Define each kind of target: how its text becomes labels, and labels become a text again.

training/objectives.py defines how a model learns it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # at run time it is imported where targets are read: a manifest needs none of it
    import pyarrow as pa

IGNORED = -100  # the label of a position without a label, as in PyTorch's cross-entropy and in transformers
LARGEST = float(np.finfo(np.float32).max)
Reasons = dict[int, str]  # index of a target → the reason why it has no labels
Decode = Callable[[Sequence[int]], str]  # token ids → text


def bits_of(numbers: npt.ArrayLike) -> np.ndarray:
    """Return numbers as labels: the bits of float32 as int32. The bits of IGNORED are a NaN, so no number has them.

    >>> bits_of([1.0, -2.5]).tolist(), numbers_of(bits_of([1.0, -2.5])).tolist()
    ([1065353216, -1071644672], [1.0, -2.5])
    """
    return np.asarray(numbers, np.float32).view(np.int32)


def numbers_of(bits: npt.ArrayLike) -> np.ndarray:
    """Return float32 numbers from labels, the inverse of `bits_of`."""
    return np.asarray(bits, np.int32).view(np.float32)


@dataclasses.dataclass(frozen=True)
class Target:
    """Targets of one kind. `classes` holds the names of the classes that labels number; empty if labels are tokens."""

    classes: tuple[str, ...] = ()

    name: ClassVar[str]  # in `Settings.target` and the manifest
    is_text: ClassVar[bool] = False  # a model writes the target token by token
    has_tokens: ClassVar[bool] = True  # labels are ids of the tokenizer; otherwise an encoder's head predicts them
    is_counted: ClassVar[bool] = False  # the manifest counts records by their targets, if there are few
    is_aligned: ClassVar[bool] = False  # a label has the position of its token in the input
    is_signed: ClassVar[bool] = False  # labels may be below 0
    takes_classes: ClassVar[bool] = False  # the task must define classes
    mask: ClassVar[str] = ""  # the feature that `--masks` writes besides `attention_mask`
    column: ClassVar[str] = ""  # the option of text2text that names the column of such targets
    separator: ClassVar[str] = ""  # the separator of the names in the text of a target

    @classmethod
    def of(cls, classes: Sequence[str]) -> Self:
        """Return the targets of a task with `classes`."""
        return cls()

    def length(self, input_length: int) -> int:
        """Return the number of labels of a record whose input has `input_length` positions. Text targets do not use it."""
        return input_length if self.is_aligned else 1

    @property
    def example(self) -> str:
        """Return the text of an example of such a target."""
        return self.classes[0] if self.classes else "unknown"

    def text(self, labels: Sequence[int], decode: Decode) -> str:
        """Return the text of a record's labels, which have no padding. `decode` is the tokenizer's function."""
        return decode(labels)

    def note(self, labels: Sequence[int]) -> str:
        """Return a note to show beside the text of a record's labels; "" for none."""
        return ""


class TextTarget(Target):
    """Texts, whose labels are their tokens."""

    name = "text"
    is_text = True
    mask = "decoder_attention_mask"
    is_counted = True


class HiddenTokensTarget(Target):
    """Hidden tokens of the input for an encoder; each label has the position of its token."""

    name = "tokens"
    is_aligned = True


class HeadTarget(Target):
    """Targets that the head of an encoder predicts: their labels are numbers and not tokens."""

    has_tokens = False
    takes_classes = True
    mask = "token_type_ids"

    @classmethod
    def of(cls, classes: Sequence[str]) -> Self:
        return cls(tuple(classes))

    def labels(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, Reasons]:
        """Return the labels of target texts, int32[targets, labels of a target], and the reasons of invalid targets.

        The labels of an invalid target are arbitrary.
        """
        numbers, wrong = self._numbers(self.split_names(texts))
        return numbers[:, None], wrong

    def text(self, labels: Sequence[int] | np.ndarray, decode: Decode | None = None) -> str:
        return (self.separator or ", ").join(self.classes[int(number)] for number in labels)

    def split_names(self, texts: pa.LargeStringArray) -> pa.ListArray:
        """Return the names in each target: none for an empty target; without a separator, the target itself.

        >>> import pyarrow as pa
        >>> TagsTarget().split_names(pa.array(["B-PER O", ""], pa.large_string())).to_pylist()
        [['B-PER', 'O'], []]
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        filled = texts.fill_null("")
        if not self.separator:
            return pa.ListArray.from_arrays(pa.array(range(len(filled) + 1), pa.int32()), filled)
        lists = pc.split_pattern(filled, self.separator)
        has_text = pc.binary_length(filled).to_numpy() > 0
        edges = np.concatenate([[0], np.cumsum(np.where(has_text, np.diff(lists.offsets.to_numpy()), 0))])
        names = lists.values if has_text.all() else pc.list_flatten(lists.filter(pa.array(has_text)))
        return pa.ListArray.from_arrays(pa.array(edges, pa.int32()), names)

    def _numbers(self, names: pa.ListArray) -> tuple[np.ndarray, Reasons]:
        """Return the class numbers of all names, int32[names], and the reasons of rows with an unknown name."""
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = pc.index_in(names.values, pa.array(self.classes, pa.large_string()))
        class_names = ", ".join(self.classes[:8])
        unknown = np.flatnonzero(numbers.is_null().to_numpy(zero_copy_only=False))
        rows = np.searchsorted(names.offsets.to_numpy(), unknown, side="right") - 1
        wrong = {
            row: f"unknown class: {names.values[index].as_py()[:40]!r} is not one of {class_names}"
            # In reverse order, so that the first unknown name of a row is the one in its reason.
            for row, index in zip(rows[::-1].tolist(), unknown[::-1].tolist(), strict=True)
        }
        return numbers.fill_null(0).to_numpy(), wrong


class ClassTarget(HeadTarget):
    """One class, whose label is its number."""

    name = "class"
    is_counted = True

    def note(self, labels: Sequence[int]) -> str:
        return f"class {labels[0]}"


class TagsTarget(HeadTarget):
    """A tag for each word of the input; the label has the position of the word's first token.

    >>> TagsTarget(("B-PER", "O")).text([1, 0])
    'O B-PER'
    """

    name = "tags"
    is_aligned = True
    is_signed = True
    column = "tags_column"
    separator = " "

    def labels_of_words(
        self, targets: pa.LargeStringArray | None, edges: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, Reasons]:
        """Return the label of each word, int32[words], and the reasons of rows with unknown tags or a wrong number of tags.

        Row r has the texts from `rows[r]` to `rows[r + 1]`, and text i the words from `edges[i]` to `edges[i + 1]`. Without
        `targets`, as in `predict`, the label of a word is its number in the row.
        """
        words = edges[rows]
        if targets is None:
            return (np.arange(edges[-1]) - np.repeat(words[:-1], np.diff(words))).astype(np.int32), {}
        names = self.split_names(targets)
        numbers, wrong = self._numbers(names)
        tags = names.offsets.to_numpy().astype(np.int64)
        differ = np.flatnonzero(np.diff(tags) != np.diff(words)).tolist()
        wrong |= {row: f"{words[row + 1] - words[row]} words and {tags[row + 1] - tags[row]} tags" for row in differ}
        labels = np.full(int(words[-1]), IGNORED, np.int32)
        counts_match = np.ones(len(rows) - 1, bool)
        counts_match[differ] = False
        labels[np.repeat(counts_match, np.diff(words))] = numbers[np.repeat(counts_match, np.diff(tags))]
        return labels, {row: reason for row, reason in wrong.items() if rows[row] < rows[row + 1]}


class LabelsTarget(HeadTarget):
    """Any number of labels: a flag for each class, 0 or 1.

    >>> LabelsTarget(("good", "new")).text([0, 1])
    'new'
    """

    name = "labels"
    column = "labels_column"
    separator = ","

    def length(self, input_length: int) -> int:
        return len(self.classes)

    def labels(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, Reasons]:
        names = self.split_names(texts)
        numbers, wrong = self._numbers(names)
        flags = np.zeros((len(texts), len(self.classes)), np.int32)
        flags[np.repeat(np.arange(len(texts)), np.diff(names.offsets.to_numpy())), numbers] = 1
        return flags, wrong

    def text(self, labels: Sequence[int] | np.ndarray, decode: Decode | None = None) -> str:
        return super().text(np.flatnonzero(labels))


class NumberTarget(HeadTarget):
    """A number, whose label is the bits of its float32.

    >>> NumberTarget().text([1075838976])
    '2.5'
    """

    name = "number"
    is_signed = True
    takes_classes = False
    column = "number_column"

    @classmethod
    def of(cls, classes: Sequence[str]) -> Self:
        return cls(("number",))

    @property
    def example(self) -> str:
        return "0"

    def labels(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, Reasons]:
        values, wrong = np.zeros(len(texts), np.float64), {}
        for row, text in enumerate(texts.to_pylist()):
            try:
                values[row] = float(text)
            except (TypeError, ValueError):
                values[row] = np.nan
            if not abs(values[row]) <= LARGEST:
                wrong[row], values[row] = f"no number: {str(text)[:40]!r}", 0.0
        return bits_of(values)[:, None], wrong

    def text(self, labels: Sequence[int] | np.ndarray, decode: Decode | None = None) -> str:
        return ", ".join(str(number) for number in numbers_of(labels))


TARGETS: Mapping[str, type[Target]] = {
    kind.name: kind for kind in (TextTarget, ClassTarget, TagsTarget, LabelsTarget, NumberTarget, HiddenTokensTarget)
}


def target_of(name: str, classes: Sequence[str] = ()) -> Target:
    """Return the targets of the kind `name` (`Settings.target`), for a task with `classes`."""
    return TARGETS[name].of(classes)
