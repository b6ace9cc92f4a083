"""Pack several examples into one row, so that a batch holds tokens instead of padding, as T5 was trained.

Segment ids tell the examples of a row apart (1, 2, …; 0 is padding): attention stays inside a segment, and positions
start again at 0 in each. An example goes whole into the first row with room for both its sides (first-fit), so the rows
depend on the order of the examples alone.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

try:
    from t5prep.tokens._native import first_fit as first_fit_in_c
except ImportError:  # no compiler
    first_fit_in_c = None  # type: ignore[assignment]

# The inputs and targets of one example, without padding, both `int32[length]`.
Pair = tuple[NDArray[np.int32], NDArray[np.int32]]
Rows = NDArray[np.signedinteger]

# The features of a packed row, sorted. The positions are part of the data contract: train/data/features.py puts them into
# every batch, for models that embed positions. Our own T5 looks at distances and reads ids and segment ids alone.
FEATURES = ("input_ids", "input_positions", "input_segment_ids", "label_positions", "label_segment_ids", "labels")


def first_fit(sizes: NDArray[np.int64], *, room: tuple[int, int]) -> NDArray[np.int64]:
    """Return the row of each example: `int64[n, 2]` (tokens of inputs, of targets) → `int64[n]`.

    Rows are numbered in the order in which they are opened.

    Raises ValueError when an example does not fit into an empty row.

    >>> first_fit(np.array([[5, 1], [4, 1], [3, 1], [2, 1]]), room=(8, 2))
    array([0, 1, 0, 1])
    """
    too_long = (sizes > room).any(axis=1)
    if too_long.any():
        at = int(too_long.argmax())
        raise ValueError(f"example {at} has {sizes[at].tolist()} tokens, a row has room for {list(room)}")
    if first_fit_in_c is not None:
        fitted = np.empty(len(sizes), np.int64)
        first_fit_in_c(np.ascontiguousarray(sizes, np.int64), room, fitted)
        return fitted
    free_inputs, free_targets = (np.full(len(sizes), side, np.int64) for side in room)
    least_inputs, least_targets = sizes.min(axis=0, initial=max(room)).tolist()
    rows = np.empty(len(sizes), np.int64)
    first = opened = 0  # rows before `first` have no room even for the shortest inputs or targets
    for at, (inputs, targets) in enumerate(sizes.tolist()):
        row = first + int(
            ((free_inputs[first : opened + 1] >= inputs) & (free_targets[first : opened + 1] >= targets)).argmax()
        )
        free_inputs[row] -= inputs
        free_targets[row] -= targets
        rows[at] = row
        opened = max(opened, row + 1)
        while first < opened and (free_inputs[first] < least_inputs or free_targets[first] < least_targets):
            first += 1
    return rows


def pack(pairs: Sequence[Pair], *, room: tuple[int, int], pad_id: int, label_pad: int) -> dict[str, Rows]:
    """Pack examples into rows by first-fit, with `room` tokens of inputs and of targets each.

    Returns `input_ids, input_segment_ids, input_positions`: `int32[rows, room[0]]`, and `labels, label_segment_ids,
    label_positions`: `int32[rows, room[1]]`; and `example_rows`: `int64[n]`, the row of each example.
    Raises ValueError when an example does not fit into an empty row.

    >>> one, two = (np.array([7, 1]), np.array([8, 1])), (np.array([9, 1]), np.array([1]))
    >>> packed = pack([one, two], room=(5, 4), pad_id=0, label_pad=-100)
    >>> packed["input_ids"], packed["label_segment_ids"]
    (array([[7, 1, 9, 1, 0]], dtype=int32), array([[1, 1, 2, 0]], dtype=int32))
    """
    sizes = np.array([(len(inputs), len(targets)) for inputs, targets in pairs], np.int64).reshape(-1, 2)
    rows = first_fit(sizes, room=room)
    order = np.argsort(rows, kind="stable")  # examples row by row, in their given order inside each
    segments = _counted(rows[order]) + 1
    packed: dict[str, Rows] = {}
    for side, (name, ids, fill) in enumerate((("input", "input_ids", pad_id), ("label", "labels", label_pad))):
        shape = (int(rows.max(initial=-1)) + 1, room[side])
        lengths = sizes[order, side]
        positions = _counted(np.repeat(np.arange(len(order)), lengths))
        # An example starts where the earlier examples of its row end.
        ends = lengths.cumsum()
        before_row = np.concatenate([[0], ends])[np.searchsorted(rows[order], np.arange(shape[0]))]
        starts = ends - lengths - before_row[rows[order]]
        at = (np.repeat(rows[order], lengths), np.repeat(starts, lengths) + positions)
        tokens = np.concatenate([pairs[example][side] for example in order] or [np.empty(0, np.int32)])
        for key, values, empty in (
            (ids, tokens, fill),
            (f"{name}_segment_ids", np.repeat(segments, lengths), 0),
            (f"{name}_positions", positions, 0),
        ):
            packed[key] = np.full(shape, empty, np.int32)
            packed[key][at] = values
    return {**packed, "example_rows": rows}


def _counted(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many elements of the same group come just before each: `[4, 4, 4, 7, 7]` → `[0, 1, 2, 0, 1]`."""
    at = np.arange(len(groups))
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    return at - np.repeat(starts, np.diff(starts, append=len(groups)))
