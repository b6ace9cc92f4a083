"""How often a request is tried again and how long it waits in between, the same for every host.

A host that says `Retry-After` is obeyed up to PATIENCE; one that does not is asked again after a pause that doubles.
"""

import email.utils
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from t5prep.errors import SourceError

TRIES = 6
BACKOFF = 1.0  # seconds before the second try; doubled each time, up to a minute
PATIENCE = 900.0  # the longest Retry-After that is waited for, in seconds
# Statuses that may pass; 520 to 524 are Cloudflare's for a host behind it that does not answer.
STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, *range(520, 525)})

_sleep = time.sleep


class Retries:
    """One request's patience. `what` is named in errors."""

    def __init__(self, what: str):
        self._what, self._failed = what, 0

    def progressed(self) -> None:
        """Something arrived: the host is alive, and patience starts anew."""
        self._failed = 0

    def wait(self, reason: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Sleep before the next try. Raises SourceError when there were enough tries, or the wait asked is too long."""
        self._failed += 1
        asked = retry_after(headers or {})
        if asked is not None and asked > PATIENCE:
            raise SourceError(
                f"{self._what}: the host asks to wait {asked / 60:.0f} minutes. Run this again after that."
            )
        if self._failed >= TRIES:
            raise SourceError(f"{self._what}: {reason}, {TRIES} times in a row. Run this again later; it resumes.")
        pause = min(60.0, BACKOFF * 2 ** (self._failed - 1)) * random.uniform(0.8, 1.2)
        _sleep(pause if asked is None else asked)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that `Retry-After` asks for, given as a number or as a date (RFC 9110, 10.2.3); None if it says nothing.

    >>> retry_after({"Retry-After": "3"})
    3.0
    """
    said = headers.get("Retry-After", "").strip()
    if said.isdigit():
        return float(said)
    try:
        when = email.utils.parsedate_to_datetime(said)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
