"""Compute what is known without generating an answer: loss, perplexity and token accuracy."""

import math

import numpy as np
from numpy.typing import ArrayLike

from t5prep.dataset.tfrecord import IGNORED_LABEL


def token_accuracy(labels: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """Return the share of target tokens that are predicted correctly: both `int[..., length]`, label -100 is not a target.

    >>> token_accuracy([[5, 1, -100]], [[5, 7, 0]])
    {'token_accuracy': 0.5}
    """
    right, predicted = np.asarray(labels), np.asarray(predictions)
    if right.shape != predicted.shape:
        raise ValueError(f"labels have shape {list(right.shape)}, predictions {list(predicted.shape)}")
    targets = right != IGNORED_LABEL
    return {"token_accuracy": float((right == predicted)[targets].mean()) if targets.any() else 0.0}


def perplexity(losses: ArrayLike, tokens: ArrayLike) -> dict[str, float]:
    """Return the mean loss (nats) over all target tokens and its exponential, from summed losses and token counts.

    >>> perplexity([math.log(2) * 3, math.log(2)], [3, 1])
    {'loss': 0.6931471805599453, 'perplexity': 2.0}
    """
    loss = float(np.sum(losses) / np.sum(tokens))
    return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
