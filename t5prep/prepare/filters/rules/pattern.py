"""A regular expression of Python's that a text must have, or must not have."""

import dataclasses
import functools
import re

from t5prep.errors import Reject, UsageError
from t5prep.tasks.options import option


@dataclasses.dataclass(frozen=True)
class Filter:
    """Reject texts in which one expression is found, or another one is not."""

    drop: str = option("", "reject a text in which this is found")
    keep: str = option("", "reject a text in which this is not found")

    def __post_init__(self) -> None:
        """Raise UsageError for what is not a regular expression."""
        if not self.drop and not self.keep:
            raise UsageError("--filter pattern needs an expression: --filter 'pattern:drop=(?i)lorem ipsum'")
        for expression in (self.drop, self.keep):
            try:
                _compiled(expression)
            except re.error as error:
                raise UsageError(f'--filter pattern: "{expression}" is not a regular expression ({error})') from None

    def __call__(self, text: str) -> str:
        """Return the text. Raises Reject."""
        if self.drop and (match := _compiled(self.drop).search(text)):
            raise Reject(f"found: {match[0][:60]!r}")
        if self.keep and not _compiled(self.keep).search(text):
            raise Reject(f"not found: {self.keep}")
        return text


@functools.lru_cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)
