"""Retry requests: how often, and how long to wait in between, the same for every host.

A `Retry-After` of a host is obeyed up to PATIENCE; without one, the pause doubles with each try.
"""

import email.utils
import random
import re
import sys
import time
from collections.abc import Mapping

from t5prep.errors import SourceError

TRIES = 6
BACKOFF = 1.0  # seconds before the second try; doubled each time, up to a minute
_NOTABLE = 3.0  # seconds: for a pause of this length or more the reason is printed
PATIENCE = 900.0  # the longest Retry-After that is waited for, in seconds
# Statuses of temporary failures; 520 to 524 are Cloudflare's for a host behind it that does not answer.
STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, *range(520, 525)})

_sleep = time.sleep


class Retries:
    """Count the failed tries of one request. `what` is named in errors."""

    def __init__(self, what: str):
        self._what, self._failed = what, 0

    def progressed(self) -> None:
        """Reset the count of failed tries, because the host sent something."""
        self._failed = 0

    def wait(self, reason: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Sleep before the next try.

        Raises SourceError after TRIES failures, or when the host asks for too long a wait.
        """
        self._failed += 1
        asked = retry_after(headers or {})
        if asked is not None and asked > PATIENCE:
            raise SourceError(
                f"{self._what}: the host asks to wait {asked / 60:.0f} minutes. Run this again after that."
            )
        if self._failed >= TRIES:
            raise SourceError(f"{self._what}: {reason}, {TRIES} times in a row. Run this again later; it resumes.")
        pause = min(60.0, BACKOFF * 2 ** (self._failed - 1)) * random.uniform(0.8, 1.2)
        pause = pause if asked is None else asked
        if pause >= _NOTABLE:
            print(f"{self._what}: {reason}; trying again in {pause:.0f} s", file=sys.stderr)
        _sleep(pause)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a host asks to wait, or None if it asks for none.

    It asks by `Retry-After`, a number or a date (RFC 9110, 10.2.3), or by the end of its rate limit: Zenodo gives a
    time, others the seconds until then, the Hub `"api";r=0;t=55` (draft-ietf-httpapi-ratelimit-headers).

    >>> retry_after({"Retry-After": "3"}), retry_after({"RateLimit": '"api";r=0;t=55'}), retry_after({})
    (3.0, 55.0, None)
    """
    wait = headers.get("Retry-After", "").strip()
    if wait.isdigit():
        return float(wait)
    if wait:
        try:
            return _until(email.utils.parsedate_to_datetime(wait).timestamp())
        except ValueError:
            return None
    reset = headers.get("RateLimit-Reset", "") or headers.get("X-RateLimit-Reset", "")
    if reset.isdigit():
        return _until(float(reset)) if float(reset) > _LONG_AGO else float(reset)
    lifted = re.search(r"\br=0\s*;\s*t=(\d+)", headers.get("RateLimit", ""))
    return float(lifted.group(1)) if lifted else None


_LONG_AGO = 1e9  # seconds since 1970: September 2001; a smaller number is a wait, a larger one a time


def _until(instant: float) -> float:
    return max(0.0, instant - time.time())
