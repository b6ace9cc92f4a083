"""Language, found by py3langid: 139 languages, its model inside the package (BSD licence, 4.6 MB).

It comes with the extra `language`. Lui and Baldwin 2012, https://aclanthology.org/P12-3005
"""

import dataclasses
import functools
from typing import Any

from t5prep.errors import Reject, UsageError, did_you_mean
from t5prep.io.installation import install_command
from t5prep.tasks.options import option

# So much of a text tells its language; a whole one would take many times as long as tokenizing it.
CHARACTERS = 1000


@dataclasses.dataclass(frozen=True)
class Filter:
    """Reject texts that are not in one of the languages, or not surely enough."""

    keep: str = option("en", "codes of the languages that stay, as en or en+ro (ISO 639-1)")
    least: float = option(0.5, "how sure it must be, from 0 to 1")

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown language, and where the library is not installed."""
        known = _identifier().labels
        for code in self.keep.split("+"):
            if code not in known:
                raise UsageError(f'--filter language: "{code}" is not a language it knows.{did_you_mean(code, known)}')

    def __call__(self, text: str) -> str:
        """Return the text. Raises Reject."""
        language, sure = _identifier().classify(text[:CHARACTERS])
        if language not in self.keep.split("+"):
            raise Reject(f"other: {language}, {sure:.2f}")
        # Rounded, so that the last digit of another processor's sum decides nothing.
        if round(sure, 2) < self.least:
            raise Reject(f"unsure: {language}, {sure:.2f}")
        return text


@functools.cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise UsageError(
            f"--filter language needs py3langid, which is not installed: {install_command('language')}"
        ) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
