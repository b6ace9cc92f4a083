"""Featurize examples as tests look at them, one by one; and cut lists of ids in the straight way, to compare with."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from t5prep.errors import Reject
from t5prep.tasks import example_table
from t5prep.tasks.example import Example
from t5prep.tokens.featurizer import Featurizer
from t5prep.tokens.tokenizer import Tokenizer


class ExampleFeatures(NamedTuple):
    """The features of one example."""

    inputs: list[int]
    labels: list[int]
    tokens: int
    target_tokens: int
    markup: bool


def featurizer(
    tokenizer: Tokenizer,
    *,
    length: int,
    targets: int = 8,
    policy: str = "head_tail",
    marker: str = "extra_id_1",
    **options,
) -> Featurizer:
    """A featurizer with the defaults of `prepare`."""
    return Featurizer(tokenizer, input_length=length, target_length=targets, policy=policy, marker=marker, **options)


def featurized(featurize: Featurizer, examples: Sequence[Example]) -> list[ExampleFeatures | Reject]:
    """The features of each example, or why it has none."""
    table = example_table.made_of(range(len(examples)), examples)
    targets = pa.array([example.targets for example in examples], pa.large_string())
    feature_columns = featurize(example_table.inputs_of(table), targets)
    counts = (
        column.tolist() for column in (feature_columns.tokens, feature_columns.target_tokens, feature_columns.markup)
    )
    ids = ([ids.tolist() for ids in lists.to_arrays()] for lists in (feature_columns.inputs, feature_columns.labels))
    return [
        Reject(feature_columns.reasons[row]) if row in feature_columns.reasons else ExampleFeatures(*features)
        for row, features in enumerate(zip(*ids, *counts, strict=True))
    ]


def truncate(ids: Sequence[int], length: int, *, policy: str, marker: int | None) -> list[int]:
    """These ids, the last one EOS, cut to at most `length`; head_tail puts the marker at the cut, if there is one."""
    if len(ids) <= length:
        return list(ids)
    if policy == "tail":
        return list(ids[-length:])
    if policy == "head":
        return [*ids[: length - 1], ids[-1]]
    head = length // 2 if marker is None else (length - 1) // 2
    middle = [] if marker is None else [marker]
    return [*ids[:head], *middle, *ids[len(ids) - (length - head - len(middle)) :]]
