"""Featurize examples and read their labels as a dataset's settings say: as text, or as the number of a class."""

from collections.abc import Sequence

from t5prep.dataset.settings import Settings
from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.featurizer import Featurizer
from t5prep.tokens.tokenizer import Tokenizer


def featurizer_of(
    settings: Settings, tokenizer: Tokenizer, *, classes: Sequence[str], documents: bool = False
) -> Featurizer:
    """Return what turns examples into the features of a dataset; of `documents`, where spans are hidden later."""
    return Featurizer(
        tokenizer,
        input_length=settings.input_length,
        target_length=settings.target_length,
        policy=settings.truncation,
        marker=settings.marker,
        keep_newlines=settings.keep_newlines,
        classes=classes if settings.target == "class" else None,
        documents=documents,
    )


def text_of_labels(ids: Sequence[int], settings: Settings, tokenizer: Tokenizer, *, classes: Sequence[str]) -> str:
    """Return the text of a record's labels, with EOS where it is among them; a class is its word."""
    if settings.target == "class":
        return ", ".join(classes[number] for number in ids)
    return newlines.decode(ids, tokenizer=tokenizer, keep_newlines=settings.keep_newlines)


def label_name(ids: Sequence[int], settings: Settings, tokenizer: Tokenizer, *, classes: Sequence[str]) -> str:
    """Return the text of the labels of a classification's record without EOS: the name that its records are counted by."""
    return text_of_labels(ids if settings.target == "class" else ids[:-1], settings, tokenizer, classes=classes)
