"""Undo packing and span corruption, so that tests can compare what comes back with what went in."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from records_in_python import Pair, Rows

from t5prep.tokens.tokenizer import SENTINELS


def unpack(packed: Mapping[str, Rows]) -> list[list[Pair]]:
    """Return the examples of each row, in the order of their segments: the inverse of `pack`, row by row.

    Only the ids and the segment ids are read. One row without its leading axis is read as a list of one row.
    """
    columns = [np.atleast_2d(packed[key]) for key in ("input_ids", "input_segment_ids", "labels", "label_segment_ids")]
    return [
        [
            (input_ids[inputs_of == segment], labels[labels_of == segment])
            for segment in range(1, int(max(inputs_of.max(), labels_of.max())) + 1)
        ]
        for input_ids, inputs_of, labels, labels_of in zip(*columns, strict=True)
    ]


def restore(
    inputs: NDArray[np.int32], targets: NDArray[np.int32], *, first_sentinel: int, eos_id: int = 1, pad_id: int = 0
) -> NDArray[np.int32]:
    """Return the tokens `int32[length]` that `corrupt` was given, from a row of its inputs and targets, padded or not.

    Raises ValueError when the two do not belong together.
    """
    input_tokens, target_tokens = (_body(side, eos_id=eos_id, pad_id=pad_id) for side in (inputs, targets))
    holes, answers = (np.flatnonzero(_is_sentinel(side, first_sentinel)) for side in (input_tokens, target_tokens))
    if not np.array_equal(input_tokens[holes], target_tokens[answers][: len(holes)]):
        raise ValueError(
            f"the inputs have sentinels {input_tokens[holes].tolist()}, the targets {target_tokens[answers].tolist()}"
        )
    input_spans = np.split(input_tokens, holes)
    target_spans = np.split(target_tokens, answers)[1:]
    parts = [input_spans[0]]
    for answer, input_span in zip(target_spans, input_spans[1:], strict=False):
        parts += [answer[1:], input_span[1:]]
    return np.concatenate(parts).astype(np.int32)


def _body(side: NDArray[np.int32], *, eos_id: int, pad_id: int) -> NDArray[np.int32]:
    """Return one row without its padding and its last EOS."""
    row = np.asarray(side)
    row = row[: np.flatnonzero((row != pad_id) & (row >= 0))[-1] + 1]
    if row[-1] != eos_id:
        raise ValueError(f"the row ends in {int(row[-1])}, not in EOS ({eos_id}): it was cut")
    return row[:-1]


def _is_sentinel(ids: NDArray[np.int32], first_sentinel: int) -> NDArray[np.bool_]:
    return (ids <= first_sentinel) & (ids > first_sentinel - SENTINELS)
