"""Convert examples to features, and labels to texts, as a dataset's settings say."""

import functools
from collections.abc import Sequence

from t5prep.dataset.settings import Settings
from t5prep.tasks.example import Trace
from t5prep.tasks.targets import target_of
from t5prep.tokens import tokenizer as newlines
from t5prep.tokens.featurizer import Featurizer
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
        target=target_of(settings.target, classes),
        documents=documents,
        trace=trace,
    )


def label_name(ids: Sequence[int], settings: Settings, tokenizer: Tokenizer, *, classes: Sequence[str]) -> str:
    """Return the text of the labels of a classification's record without EOS: the name that its records are counted by."""
    target = target_of(settings.target, classes)
    decode = functools.partial(newlines.decode, tokenizer=tokenizer, keep_newlines=settings.keep_newlines)
    return target.text(ids[:-1] if target.is_text else ids, decode)
