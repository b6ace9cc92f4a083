"""Length in tokens of the dataset's own tokenizer, before anything is cut (EOS counts)."""

import dataclasses

from t5prep.errors import Reject
from t5prep.tasks.options import option


@dataclasses.dataclass(frozen=True)
class Filter:
    """Reject inputs with too few or too many tokens."""

    least: int = option(1, "fewest tokens")
    most: int = option(1_000_000_000, "most tokens")

    def __call__(self, text: str) -> str:
        """Return the text: what it is judged by is not known before it is tokenized (`judge_tokens`)."""
        return text

    def judge_tokens(self, count: int) -> None:
        """Raise Reject where an input of so many tokens is too short or too long."""
        if count < self.least:
            raise Reject(f"too few: {count} tokens, at least {self.least}")
        if count > self.most:
            raise Reject(f"too many: {count} tokens, at most {self.most}")
