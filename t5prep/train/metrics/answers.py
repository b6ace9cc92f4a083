"""Pair answers with their references, and normalize them: what metrics on texts share."""

import re
import string
from collections.abc import Sequence

# The correct answers of one item: one, or several of which the best match counts.
References = str | Sequence[str]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Return text in lower case, without ASCII punctuation and English articles, with single spaces.

    This is what the script of SQuAD does (Rajpurkar et al. 2016).

    >>> normalize_answer("  The  Turing-machine's tape! ")
    'turingmachines tape'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def with_references(references: Sequence[References], predictions: Sequence[str]) -> list[tuple[list[str], str]]:
    """Return each item's references, at least one, with its prediction.

    Raises ValueError where there are not as many predictions as items, or none: nothing is cut to fit.
    """
    if len(references) != len(predictions) or not predictions:
        raise ValueError(
            f"{len(references)} references and {len(predictions)} predictions; as many of both, at least one"
        )
    return [
        ([right] if isinstance(right, str) else list(right) or [""], predicted)
        for right, predicted in zip(references, predictions, strict=True)
    ]
