"""Encode examples and read their labels as a dataset's settings say: as text, or as the number of a class."""

from collections.abc import Callable, Sequence

from t5prep.dataset.settings import Settings
from t5prep.errors import Reject
from t5prep.tasks.example import Example
from t5prep.tokens import newlines
from t5prep.tokens.class_encoder import ClassEncoder
from t5prep.tokens.encoder import Encoder, Features
from t5prep.tokens.tokenizer import Tokenizer

Encode = Callable[[Sequence[Example]], list[Features | Reject]]


def encoder_of(settings: Settings, tokenizer: Tokenizer, *, classes: Sequence[str]) -> Encode:
    """Return what turns examples into the features of a dataset."""
    if settings.target == "class":
        return ClassEncoder(tokenizer, classes=classes, input_length=settings.input_length, policy=settings.truncation)
    return Encoder(
        tokenizer,
        input_length=settings.input_length,
        target_length=settings.target_length,
        policy=settings.truncation,
        marker=settings.marker,
        keep_newlines=settings.keep_newlines,
    )


def text_of_labels(ids: Sequence[int], settings: Settings, tokenizer: Tokenizer, *, classes: Sequence[str]) -> str:
    """Return the text of a record's labels, with EOS where it is among them; a class is its word."""
    if settings.target == "class":
        return ", ".join(classes[number] for number in ids)
    return newlines.decode(ids, tokenizer=tokenizer, keep_newlines=settings.keep_newlines)


def label_name(ids: Sequence[int], settings: Settings, tokenizer: Tokenizer, *, classes: Sequence[str]) -> str:
    """Return the text of the labels of a classification's record without EOS: the name that its records are counted by."""
    return text_of_labels(ids if settings.target == "class" else ids[:-1], settings, tokenizer, classes=classes)
