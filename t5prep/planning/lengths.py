"""Compare layouts of a dataset for training, by the joint histogram of lengths in its manifest.

Programs of a TPU have static shapes, so each row is as long as the longest, and padding takes as much time as tokens. The
choices, simplest first: shorter lengths that hold all rows or 99 in 100, two or three shapes (length buckets), packed rows.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from t5prep.dataset.manifest import Split
from t5prep.errors import DatasetError
from t5prep.tokens.ragged import first_fit

# Lengths are multiples of this. A TPU stores a sequence in tiles of 8 rows, so a finer step saves nothing.
STEP = 8
# Packing is estimated from this many examples, drawn evenly from the histogram: enough for two exact digits.
SAMPLE = 4096

# A function (input length, target length) → the cost of one row, in any unit.
Cost = Callable[[int, int], float]
# int64[n, 3]: input tokens and target tokens (the upper ends of their buckets), number of examples.
Histogram = NDArray[np.int64]
Lengths = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Shape:
    """Hold a static shape, and the number of an epoch's rows with this shape."""

    input_length: int
    target_length: int
    rows: int


@dataclasses.dataclass(frozen=True)
class Choice:
    """Hold a layout of an epoch: its name and its shapes.

    `padding` is the share of positions without a token, and `cut` the share of examples that are shortened.
    """

    name: str
    shapes: tuple[Shape, ...]
    padding: float
    cut: float = 0.0


def histogram(split: Split, *, folder: str) -> Histogram:
    """Return the joint histogram of a split. Raises DatasetError, which names `folder`, if it counts no examples."""
    joint = np.array(split.lengths.get("joint", []), np.int64).reshape(-1, 3)
    joint = joint[joint[:, 2] > 0]
    if not len(joint):
        raise DatasetError(
            f"{folder} has no histogram of lengths, so its lengths cannot be planned. Prepare the dataset again.",
            code="dataset.missing-lengths",
        )
    return joint


def choices(joint: Histogram, *, prepared: Lengths, cost: Cost) -> list[Choice]:
    """Return the layouts of an epoch, first the one as prepared. Layouts that change nothing are left out.

    `prepared` is the (input, target) length of the shards. No shape exceeds it, except for packed targets. `cost` decides
    where the lengths are divided between shapes.

    >>> joint = np.array([[16, 4, 90], [512, 4, 10]])
    >>> for choice in choices(joint, prepared=(512, 8), cost=lambda inputs, targets: inputs + targets):
    ...     print(f"{choice.name}: {[dataclasses.astuple(shape) for shape in choice.shapes]}, {choice.padding:.0%}")
    as prepared: [(512, 8, 100)], 87%
    two shapes: [(16, 8, 90), (512, 8, 10)], 5%
    packed: [(512, 128, 13)], 16%
    """
    joint = joint[np.lexsort((joint[:, 1], joint[:, 0]))]
    rows = int(joint[:, 2].sum())
    choices = [Choice("as prepared", (Shape(*prepared, rows),), _padding(joint, [Shape(*prepared, rows)]))]
    all_of_it = _shape(joint, prepared=prepared)
    if (all_of_it.input_length, all_of_it.target_length) != prepared:
        choices.append(Choice("shortest that cuts nothing", (all_of_it,), _padding(joint, [all_of_it])))
    inputs, targets = (min(_longest_of_99(joint, side), prepared[side]) for side in (0, 1))
    shape_of_99 = Shape(inputs, targets, rows)
    if shape_of_99 != all_of_it:
        cut = (
            joint[(joint[:, 0] > shape_of_99.input_length) | (joint[:, 1] > shape_of_99.target_length), 2].sum() / rows
        )
        choices.append(Choice("shortest for 99 in 100", (shape_of_99,), _padding(joint, [shape_of_99]), float(cut)))
    for name, count in (("two shapes", 2), ("three shapes", 3)):
        if shapes := _parted(joint, count=count, prepared=prepared, cost=cost):
            choices.append(Choice(name, tuple(shapes), _padding(joint, shapes)))
    packed = _packed(joint, prepared=prepared, cost=cost)
    if packed.rows < rows:
        choices.append(Choice("packed", (packed,), _padding(joint, [packed])))
    return choices


def _shape(joint: Histogram, *, prepared: Lengths) -> Shape:
    """Return the smallest shape that holds all examples of `joint`, not above `prepared`."""
    inputs, targets = (min(_up(int(joint[:, side].max())), prepared[side]) for side in (0, 1))
    return Shape(inputs, targets, int(joint[:, 2].sum()))


def _parted(joint: Histogram, *, count: int, prepared: Lengths, cost: Cost) -> list[Shape]:
    """Return the cheapest `count` shapes, divided by input length; [] if there are fewer different input lengths."""
    ends = np.unique(joint[:, 0])[:-1]
    ends = ends[:: -(-len(ends) // 64) or 1]  # at most 64 borders, so three shapes are at most 2016 pairs to try
    best: tuple[float, list[Shape]] = (float("inf"), [])
    for borders in itertools.combinations(ends.tolist(), count - 1):
        parts = np.split(joint, np.searchsorted(joint[:, 0], borders, side="right"))
        shapes = [_shape(part, prepared=prepared) for part in parts]
        price = sum(shape.rows * cost(shape.input_length, shape.target_length) for shape in shapes)
        if price < best[0]:
            best = price, shapes
    return best[1]


def _packed(joint: Histogram, *, prepared: Lengths, cost: Cost) -> Shape:
    """Return the shape of packed rows, with the prepared input length and the target length of the cheapest epoch."""
    weights = joint[:, 2].cumsum()
    rows = int(weights[-1])
    sample = np.searchsorted(weights, (np.arange(min(SAMPLE, rows)) + 0.5) * rows / min(SAMPLE, rows), side="right")
    # The sample is sorted by length, but records are not. Packing sorted examples would give other rows.
    sizes = np.random.default_rng(0).permutation(np.minimum(joint[sample, :2], prepared))
    # A packed row has the targets of several examples, so target lengths of 1 to 64 times the prepared one are tried.
    rooms = [prepared[1] * 2**doubled for doubled in range(7)]
    tried = []
    for room in rooms:
        per_row = len(sizes) / (int(first_fit(sizes, room=(prepared[0], room)).max()) + 1)
        tried.append(Shape(prepared[0], room, int(np.ceil(rows / per_row))))
    return min(tried, key=lambda shape: shape.rows * cost(shape.input_length, shape.target_length))


def _padding(joint: Histogram, shapes: Sequence[Shape]) -> float:
    """Return the share of positions without a token. It is slightly too small, because the histogram rounds lengths up."""
    longest = shapes[-1]
    tokens = (np.minimum(joint[:, :2], (longest.input_length, longest.target_length)).sum(axis=1) * joint[:, 2]).sum()
    positions = sum(shape.rows * (shape.input_length + shape.target_length) for shape in shapes)
    return float(1 - min(tokens / positions, 1.0))


def _longest_of_99(joint: Histogram, side: int) -> int:
    """Return the shortest multiple of STEP that holds 99 % of the inputs (`side` 0) or targets (1)."""
    order = np.argsort(joint[:, side], kind="stable")
    counts = joint[order, 2].cumsum()
    return _up(int(joint[order[np.searchsorted(counts, 0.99 * counts[-1])], side]))


def _up(length: int) -> int:
    return -(-length // STEP) * STEP
