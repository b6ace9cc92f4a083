"""Length in words.

Words are what stands between spaces.
"""

import dataclasses

from t5prep.errors import Reject
from t5prep.tasks.options import option


@dataclasses.dataclass(frozen=True)
class Filter:
    """Reject texts with too few or too many words."""

    least: int = option(1, "fewest words")
    most: int = option(100_000, "most words")

    def __call__(self, text: str) -> str:
        """Return the text. Raises Reject."""
        count = len(text.split())
        if count < self.least:
            raise Reject(f"too few: {count} words, at least {self.least}")
        if count > self.most:
            raise Reject(f"too many: {count} words, at most {self.most}")
        return text
