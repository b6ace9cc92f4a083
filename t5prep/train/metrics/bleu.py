"""Compute corpus BLEU."""

from collections.abc import Sequence
from typing import Any

from t5prep.train.metrics.answers import References, with_references


def bleu(references: Sequence[References], predictions: Sequence[str]) -> dict[str, float]:
    """Return corpus BLEU, 0 to 100, by sacrebleu's defaults (13a tokenizer, mixed case, exponential smoothing)."""
    import sacrebleu

    pairs = with_references(references, predictions)
    most = max(len(right) for right, _ in pairs)
    # sacrebleu takes a list of first references, one of second ones, ...; an item with fewer has None in later lists.
    columns: Any = [[right[at] if at < len(right) else None for right, _ in pairs] for at in range(most)]
    return {"bleu": sacrebleu.corpus_bleu([predicted for _, predicted in pairs], columns).score}
