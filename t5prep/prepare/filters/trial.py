"""Try filters on some texts before a long run."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from t5prep.errors import Reject
from t5prep.prepare.filters import grammar

# So many texts are shown for each filter, and so many characters of each.
SHOWN, CHARACTERS = 3, 100


@dataclasses.dataclass
class Outcome:
    """What one filter did: how many texts it got, with how many words, and some of those that it rejected."""

    filter: str
    texts: int = 0
    rejected: int = 0
    words: int = 0
    changed: int = 0
    reasons: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: list[tuple[str, str]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Trial:
    """What all filters did, one after the other, and how many texts and words are left of how many."""

    texts: int
    words: int
    kept: int
    kept_words: int
    outcomes: list[Outcome]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return dataclasses.asdict(self)


def attempt(texts: Iterable[str], filters: Sequence[str]) -> Trial:
    """Return what filters do to texts, in the order in which they are given. Raises UsageError for what is not a filter."""
    parsed = [grammar.parse(text)[1] for text in filters]
    trial = Trial(0, 0, 0, 0, [Outcome(text) for text in filters])
    for text in texts:
        words = len(text.split())
        trial.texts += 1
        trial.words += words
        for filter, outcome in zip(parsed, trial.outcomes, strict=True):
            outcome.texts += 1
            try:
                after = filter(text)
            except Reject as reject:
                _count(outcome, text, str(reject))
                break
            outcome.changed += after != text
            text = after
        else:
            trial.kept += 1
            trial.kept_words += len(text.split())
    return trial


def _count(outcome: Outcome, text: str, reason: str) -> None:
    outcome.rejected += 1
    outcome.words += len(text.split())
    key = reason.partition(":")[0]
    outcome.reasons[key] = outcome.reasons.get(key, 0) + 1
    if len(outcome.examples) < SHOWN and outcome.reasons[key] == 1:
        outcome.examples.append((reason, " ".join(text.split())[:CHARACTERS]))
