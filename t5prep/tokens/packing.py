"""Choose the rows that several examples are packed into, so that a batch holds tokens instead of padding, as T5 was trained.

Segment ids tell the examples of a row apart (1, 2, …; 0 is padding): attention stays inside a segment, and positions
start again at 0 in each. An example goes whole into the first row with room for both its sides (first-fit), so the rows
depend on the order of the examples alone. (prepare/records.py writes them. The positions are part of the data contract, for
models that embed positions: our own T5 looks at distances and reads ids and segment ids alone.)
"""

import numpy as np
from numpy.typing import NDArray

from t5prep import _native


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
    rows = np.empty(len(sizes), np.int64)
    _native.first_fit(np.ascontiguousarray(sizes, np.int64), room, rows)
    return rows
