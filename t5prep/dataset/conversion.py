"""Convert examples to features, and labels to texts, with the settings of a dataset."""

import functools
from collections.abc import Sequence

from t5prep.dataset.settings import Settings
from t5prep.tasks.example import Trace
from t5prep.tasks.targets import target_of
from t5prep.tokens import newlines
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
    """Return the featurizer that converts examples to features with these `settings`.

    `classes` are the task's, in the order of their numbers. With `documents`, the examples are documents of pre-training:
    spans are hidden in them later. `trace` records each step of one row, for `t5prep why`.
    """
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
    """Return the text of a record's labels `ids`, without EOS: the name under which the manifest counts its class."""
    target = target_of(settings.target, classes)
    decode = functools.partial(newlines.decode, tokenizer=tokenizer, keep_newlines=settings.keep_newlines)
    return target.text(ids[:-1] if target.is_text else ids, decode)
