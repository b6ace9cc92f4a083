"""Send requests: retry them after pauses, turn failures into errors without addresses, and verify checksums.

A `Retry-After` of a host is obeyed up to PATIENCE; without one, the pause doubles with each try.
urllib3's own Retry is not used: it does not resume a body, and it logs addresses unchanged, also signed ones.
"""

import email.utils
import hashlib
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import requests
import urllib3

from t5prep import __version__
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


TIMEOUT = (10, 60)  # seconds to connect, and between two reads
CHUNK = 1 << 20


class Refused(SourceError):  # noqa: N818 - named after the host's answer
    """Report that the host answered with a refusal; `status` lets a caller say what to do about it."""

    def __init__(self, message: str, status: int = 0):  # the default is needed to pickle it in a worker
        super().__init__(message)
        self.status = status


class Broken(Exception):  # noqa: N818 - not an error yet: the request is tried again
    """Report that the connection failed for a reason that may pass; str() holds no address."""


@contextmanager
def connection_errors() -> Iterator[None]:
    """Turn exceptions of the HTTP libraries into Broken, whose message holds no address and so no credential."""
    try:
        yield
    except (requests.exceptions.SSLError, urllib3.exceptions.SSLError):
        raise Broken("the secure connection failed") from None
    except (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError):
        raise Broken("it did not answer in time") from None
    except requests.exceptions.ProxyError:
        raise Broken("the proxy refused the connection") from None
    except (requests.exceptions.ChunkedEncodingError, urllib3.exceptions.ProtocolError, urllib3.exceptions.DecodeError):
        raise Broken("the connection broke in the middle") from None
    except (requests.exceptions.ConnectionError, urllib3.exceptions.HTTPError, ConnectionError):
        raise Broken("it cannot be reached") from None
    except requests.exceptions.RequestException as error:
        raise SourceError(
            f"The address cannot be asked for ({type(error).__name__}). Check how it is written."
        ) from None


def get(
    url: str,
    *,
    what: str,
    headers: Mapping[str, str] | None = None,
    stream: bool = False,
    retries: Retries | None = None,
    session: requests.Session | None = None,
) -> requests.Response:
    """Return the response to a GET, with status 200, 206 or 416. `what` replaces the address in errors.

    Raises Refused for any other status, and SourceError when the host stays unreachable.
    """
    retries = retries or Retries(what)
    asked = {"Accept-Encoding": "identity", "User-Agent": f"t5prep/{__version__}", **(headers or {})}
    while True:
        try:
            with connection_errors():
                response = (session or requests).get(url, headers=asked, stream=stream, timeout=TIMEOUT)
        except Broken as broken:
            retries.wait(str(broken))
            continue
        if url.startswith("https:") and any(not hop.url.startswith("https:") for hop in [*response.history, response]):
            response.close()
            raise SourceError(f"{what} redirects from https to http, where anyone could change it. It is not read.")
        length = response.headers.get("Content-Length", "0")
        if not length.isdigit():
            response.close()
            raise SourceError(
                f"{what}: the host sends a length that is no number of bytes ({length!r}). It is not read."
            )
        if response.status_code in (200, 206, 416):
            return response
        response.close()
        if response.status_code not in STATUSES:
            raise Refused(f"{what} answers {response.status_code} {response.reason}.", response.status_code)
        retries.wait(f"the host answers {response.status_code} {response.reason}", headers=response.headers)


def json(url: str, *, what: str, headers: Mapping[str, str] | None = None) -> dict:
    """Return the JSON object of an API.

    Raises Refused, and SourceError when it is not JSON object (a sign-in page, say).
    """
    response = get(url, what=what, headers=headers)
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise SourceError(
            f"{what}: the host answers with something that is not JSON. Is a proxy or a sign-in in between?"
        )
    return document


def looks_like_a_page(response: requests.Response, start: bytes, name: str) -> bool:
    """Check whether a web page came instead of data: a sign-in, a consent form, an error with status 200."""
    if name.lower().endswith((".html", ".htm")):
        return False
    head = start[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    is_html = response.headers.get("Content-Type", "").lower().startswith(("text/html", "application/xhtml"))
    return head.startswith((b"<!doctype html", b"<html")) and (is_html or not name.lower().endswith((".txt", ".xml")))


class Checksum:
    """Compute a file's checksum and compare it with the publisher's: `md5:<hex>`, `sha256:<hex>`, `git:<hex>` or "".

    `git:` is the name of a git blob: SHA-1 over `blob SIZE\\0` and the bytes, so the `size` must be given first.

    >>> checksum = Checksum("git:ce013625030ba8dba906f756967f9e9ca394464a", size=6)
    >>> checksum.update(b"hello\\n")
    >>> checksum.mismatch()
    ''
    """

    def __init__(self, checksum: str, *, size: int = 0):
        self._algorithm, _, self._expected = checksum.partition(":")
        self._sha256 = hashlib.sha256()
        self._expected_hash = self._sha256
        if self._algorithm == "git":
            self._expected_hash = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
        elif self._algorithm not in ("", "sha256"):
            self._expected_hash = hashlib.new(self._algorithm, usedforsecurity=False)

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self._sha256.update(data)
        if self._expected_hash is not self._sha256:
            self._expected_hash.update(data)

    @property
    def sha256(self) -> str:
        """Return the SHA-256 (hex) of all bytes so far, whatever the publisher uses."""
        return self._sha256.hexdigest()

    def mismatch(self) -> str:
        """Return the checksum of the bytes as `md5:<hex>` if it differs from the publisher's, "" if it is equal."""
        got = self._expected_hash.hexdigest()
        return f"{self._algorithm}:{got}" if self._algorithm and got != self._expected.lower() else ""
