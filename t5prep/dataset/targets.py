"""Featurize examples and read their labels as a dataset's settings say: as text, classes, or a number."""

from collections.abc import Sequence

import numpy as np

from t5prep.dataset.settings import OF_HEADS, Settings
from t5prep.tasks.example import Trace
from t5prep.tasks.example_table import BETWEEN
from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.featurizer import Featurizer
from t5prep.tokens.target_numbers import numbers_of
from t5prep.tokens.tokenizer import Tokenizer


def featurizer_of(
    settings: Settings,
    tokenizer: Tokenizer,
    *,
    classes: Sequence[str],
    documents: bool = False,
    trace: Trace | None = None,
) -> Featurizer:
    """Return what turns examples into the features of a dataset; of `documents`, where spans are hidden later."""
    return Featurizer(
        tokenizer,
        input_length=settings.input_length,
        target_length=settings.target_length,
        policy=settings.truncation,
        marker=settings.marker,
        keep_newlines=settings.keep_newlines,
        target=settings.target,
        classes=classes if settings.target in OF_HEADS else None,
        documents=documents,
        trace=trace,
    )


def text_of_labels(ids: Sequence[int], settings: Settings, tokenizer: Tokenizer, *, classes: Sequence[str]) -> str:
    """Return the text of a record's labels, with EOS where it is among them: a class is its word, tags and labels theirs."""
    if settings.target in OF_HEADS:
        return text_of_numbers(ids, settings.target, classes=classes)
    return newlines.decode(ids, tokenizer=tokenizer, keep_newlines=settings.keep_newlines)


def text_of_numbers(ids: Sequence[int] | np.ndarray, target: str, *, classes: Sequence[str]) -> str:
    """Return the text of labels without padding, whose `target` is not "text".

    >>> text_of_numbers([1, 0], "tags", classes=["B-PER", "O"]), text_of_numbers([0, 1], "labels", classes=["good", "new"])
    ('O B-PER', 'new')
    >>> text_of_numbers([1075838976], "number", classes=[])
    '2.5'
    """
    if target == "number":
        return ", ".join(str(number) for number in numbers_of(ids))
    numbers = np.flatnonzero(ids) if target == "labels" else ids
    return BETWEEN.get(target, ", ").join(classes[int(number)] for number in numbers)


def label_name(ids: Sequence[int], settings: Settings, tokenizer: Tokenizer, *, classes: Sequence[str]) -> str:
    """Return the text of the labels of a classification's record without EOS: the name that its records are counted by."""
    return text_of_labels(ids if settings.target in OF_HEADS else ids[:-1], settings, tokenizer, classes=classes)
