"""Send requests, and download files into the cache once.

Requests are retried after pauses, errors contain no addresses, and checksums are verified. A host's `Retry-After` is
obeyed up to MAX_RETRY_AFTER_SECONDS. Without one, the pause doubles with each try. urllib3's Retry is not used, because it
does not resume a body, and it logs complete addresses, even signed ones.
"""

import contextlib
import dataclasses
import email.utils
import hashlib
import ipaddress
import json
import os
import random
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from filelock import AcquireReturnProxy, FileLock, Timeout
from requests.structures import CaseInsensitiveDict

from t5prep.errors import SourceError
from t5prep.io import atomic_files, store
from t5prep.io.progress import Progress
from t5prep.json_values import JSONObject
from t5prep.version import __version__

TRIES = 6
BACKOFF = 1.0  # seconds before the second try; doubled each time, at most a minute
_NOTABLE = 3.0  # seconds: the reason for a longer pause is printed
MAX_RETRY_AFTER_SECONDS = 900.0  # maximum Retry-After that is waited for, in seconds
# Statuses of temporary failures. Cloudflare sends 520 to 524 if the host behind it does not answer.
STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, *range(520, 525)})

_sleep = time.sleep


class Retries:
    """The failed tries of a request. `failed` counts those since the last progress; `display_name` is used in errors."""

    def __init__(self, display_name: str):
        self._display_name, self.failed = display_name, 0

    def wait(self, reason: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Sleep before the next try.

        Raises SourceError after TRIES failures, or if the host requests a wait above MAX_RETRY_AFTER_SECONDS.
        """
        self.failed += 1
        requested_pause = retry_after(headers or {})
        if requested_pause is not None and requested_pause > MAX_RETRY_AFTER_SECONDS:
            raise SourceError(
                f"The host of {self._display_name} asks to wait {requested_pause / 60:.0f} minutes. Run the command "
                "again after that time.",
                code="source.rate-limit",
            )
        if self.failed >= TRIES:
            raise SourceError(
                f"{self._display_name} failed {TRIES} times in a row: {reason}. Run the command again later to resume.",
                code="source.unavailable",
            )
        pause = min(60.0, BACKOFF * 2 ** (self.failed - 1)) * random.uniform(0.8, 1.2)
        pause = pause if requested_pause is None else requested_pause
        if pause >= _NOTABLE:
            print(f"{self._display_name}: {reason}; trying again in {pause:.0f} s", file=sys.stderr)
        _sleep(pause)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a host asks to wait, or None.

    A host sends `Retry-After`, a number or a date (RFC 9110, 10.2.3), or the end of its rate limit. Zenodo sends a
    time, others the seconds until then, and the Hub `"api";r=0;t=55` (draft-ietf-httpapi-ratelimit-headers).

    >>> retry_after({"Retry-After": "3"}), retry_after({"RateLimit": '"api";r=0;t=55'}), retry_after({})
    (3.0, 55.0, None)
    """
    if wait := headers.get("Retry-After"):
        try:
            return float(wait) if wait.strip().isdecimal() else _seconds_until(_seconds_of(wait), headers)
        except ValueError:
            return None
    reset = headers.get("RateLimit-Reset", "") or headers.get("X-RateLimit-Reset", "")
    if reset.isdecimal():
        return _seconds_until(float(reset), headers) if float(reset) > _LONG_AGO else float(reset)
    lifted = re.search(r"\br=0\s*;\s*t=(\d+)", headers.get("RateLimit", ""))
    return float(lifted.group(1)) if lifted else None


def _seconds_until(moment: float, headers: Mapping[str, str]) -> float:
    """Return the seconds until a time that a host sent, by the host's clock if it sends one, because this clock may be wrong."""
    try:
        now = _seconds_of(headers["Date"])
    except (KeyError, ValueError):
        now = time.time()
    return max(0.0, moment - now)


def _seconds_of(date: str) -> float:
    """Return the seconds since 1970 of an HTTP date. Raises ValueError."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except OverflowError as error:  # a year or a zone that no clock has
        raise ValueError(date) from error


_LONG_AGO = 1e9  # seconds since 1970 (September 2001): smaller numbers are durations


TIMEOUT = (10, 60)  # seconds to connect, and between two reads
CHUNK = 1 << 20
SLOWEST, SLOW_SECONDS = 1 << 10, 300.0  # bytes a second, over so many seconds
_PROGRESS = 64 << 10  # bytes after which failed tries are forgotten
_RESERVE = 1 << 30  # bytes of the disk that a file of unknown size leaves free
MOST_JSON_BYTES = 64 << 20  # maximum answer of an API


class Refused(SourceError):  # noqa: N818 - named after the host's answer
    """A host refused the request. The `status` lets the caller advise the user."""

    def __init__(self, message: str, code: str = "source.request-refused", *, status: int = 0) -> None:
        super().__init__(message, code=code)
        self.status = status


class Broken(Exception):  # noqa: N818 - not an error yet: the request is tried again
    """The connection failed, perhaps temporarily. The message contains no address."""


@contextmanager
def connection_errors() -> Iterator[None]:
    """Convert exceptions of the HTTP libraries into Broken, whose message contains no address, and so no credentials."""
    try:
        yield
    # Subclasses first: SSLError, ConnectTimeout and ProxyError are ConnectionErrors.
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
            f"The address cannot be requested ({type(error).__name__}). Check its spelling.",
            code="source.invalid-address",
        ) from None


def get(
    url: str,
    *,
    display_name: str,
    headers: Mapping[str, str] | None = None,
    retries: Retries | None = None,
    session: "Session | None" = None,
    post: JSONObject | None = None,
) -> requests.Response:
    """Return the response to a GET with status 200, 206 or 416, before its body. `display_name` replaces the address in errors.

    post: sent as JSON by a POST instead, whose redirect is returned and not followed

    Raises Refused for any other status, and SourceError if the host stays unreachable.
    """
    retries = retries or Retries(display_name)
    # "identity": a compressed answer could not be resumed, or compared with its checksum.
    request_headers = {"Accept-Encoding": "identity", "User-Agent": f"t5prep/{__version__}", **(headers or {})}
    authorization = next((value for name, value in request_headers.items() if name.lower() == "authorization"), "")
    if not authorization.isascii() or not authorization.isprintable():
        raise SourceError(
            f"The token for the host of {display_name} has characters that no token has. Copy it again.",
            code="source.invalid-token",
        )
    while True:
        try:
            with connection_errors(), contextlib.nullcontext(session) if session else Session() as opened:
                response = _response(opened, url, request_headers, post=post, display_name=display_name)
        except Broken as broken:
            retries.wait(str(broken))
            continue
        if not _LENGTH.fullmatch(length := response.headers.get("Content-Length", "0")):
            response.close()
            raise SourceError(
                f"The host of {display_name} sends a length that is not a number of bytes ({length[:40]!r}). "
                "Download the file yourself, and name the local file.",
                code="source.invalid-response",
            )
        if response.status_code in (200, 206, 416) or response.is_redirect:
            return response
        response.close()
        if response.status_code not in STATUSES:
            raise Refused(
                f"{display_name} answers {response.status_code} {response.reason}.", status=response.status_code
            )
        retries.wait(f"the host answers {response.status_code} {response.reason}", headers=response.headers)


_LENGTH = re.compile(r"[0-9]{1,18}")


class Session(requests.Session):
    """A session that leaves the redirects to `get`.

    requests reads the complete body of a redirect, which may be endless, and follows one from https to http.
    """

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return no address, so that requests does not follow it."""


def _response(
    session: Session, url: str, headers: MutableMapping[str, str], *, post: JSONObject | None, display_name: str
) -> requests.Response:
    """Return the response to a request, after the redirects of a GET."""
    history: list[requests.Response] = []
    headers = CaseInsensitiveDict(headers)
    while len(history) <= session.max_redirects:
        # Any `auth` hinders requests from replacing the header by a line of ~/.netrc.
        auth = _unchanged if "Authorization" in headers else None
        response = session.request(
            "GET" if post is None else "POST",
            url,
            headers=headers,
            json=post,
            auth=auth,
            stream=True,
            timeout=TIMEOUT,
        )
        response.history = history[:]
        if post is not None or not response.is_redirect:
            return response
        response.close()
        history.append(response)
        try:
            target = urljoin(url, super(Session, session).get_redirect_target(response) or "")
        except ValueError:
            raise requests.exceptions.InvalidURL from None
        if url.startswith("https:") and not target.startswith("https:"):
            raise SourceError(
                f"{display_name} redirects from https to http, which is not secure. Download the file "
                "yourself, and name the local file.",
                code="source.insecure-redirect",
            )
        check_redirect(url, target, display_name=display_name)
        if session.should_strip_auth(url, target):
            headers.pop("Authorization", None)
        url = target
    raise requests.exceptions.TooManyRedirects


# Services that tell a virtual machine its credentials, and are not link-local: of AWS and Google by IPv6, of Alibaba, Azure
# and Oracle.
_METADATA_ADDRESSES = frozenset({"fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"})
_METADATA_NAMES = frozenset({"metadata", "metadata.goog", "metadata.google.internal"})


def check_redirect(url: str, target: str, *, display_name: str) -> None:
    """Raise SourceError if a host redirects from `url` to a link-local `target`, as that of a virtual machine's credentials.

    The answer would become rows of a dataset. Only a link-local host may redirect to another one.
    """
    if _is_link_local(target) and not _is_link_local(url):
        raise SourceError(
            f"{display_name} redirects to an address of this machine's own network ({urlsplit(target).hostname}), which "
            "public hosts have no reason for. Download the file yourself, and name the local file.",
            code="source.link-local-redirect",
        )


def _is_link_local(url: str) -> bool:
    """Check whether the host of `url` is, or resolves to, a link-local address or one of _METADATA_ADDRESSES."""
    host, addresses = "", set[str]()
    # A proxy may resolve names that this machine cannot. The system also reads numbers such as 0xA9FEA9FE. What is no address
    # is refused when it is requested.
    with contextlib.suppress(OSError, ValueError):
        host = (urlsplit(url).hostname or "").rstrip(".")
        addresses = {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(host, None)}
    parsed = (ipaddress.ip_address(address) for address in addresses)
    plain = [getattr(address, "ipv4_mapped", None) or address for address in parsed]
    return host.lower() in _METADATA_NAMES or any(
        address.is_link_local or str(address) in _METADATA_ADDRESSES for address in plain
    )


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Return a request with the headers that it has."""
    return request


def _pieces(response: requests.Response, display_name: str) -> Iterator[bytes]:
    """Yield the bytes of a response as they arrive. Raises Broken, and SourceError if fewer than SLOWEST arrive in a second."""
    since, arrived = time.monotonic(), 0
    while True:
        with connection_errors():
            piece = response.raw.read1(CHUNK, decode_content=False)
        if not piece:
            return
        yield piece
        arrived += len(piece)
        if (seconds := time.monotonic() - since) > SLOW_SECONDS:
            if arrived < SLOWEST * seconds:
                raise SourceError(
                    f"The host of {display_name} sends only {arrived / seconds:.0f} bytes a second. Run the command again "
                    "later to resume.",
                    code="source.unavailable",
                )
            since, arrived = time.monotonic(), 0


def get_json(
    url: str, *, display_name: str, headers: Mapping[str, str] | None = None, post: JSONObject | None = None
) -> Any:
    """Return the JSON object that an API answers.

    Raises Refused, and SourceError if the answer is too large or not a JSON object (a sign-in page, for example).
    """
    retries, content = Retries(display_name), None
    while content is None:
        try:
            with get(url, display_name=display_name, headers=headers, retries=retries, post=post) as response:
                content = bytearray()
                for piece in _pieces(response, display_name):
                    content += piece
                    if len(content) > MOST_JSON_BYTES:
                        raise SourceError(
                            f"The host of {display_name} sends more than {MOST_JSON_BYTES >> 20} MiB of metadata, which "
                            "is too much. Download the files yourself, and name the local files.",
                            code="source.invalid-response",
                        )
        except Broken as broken:
            content = None
            retries.wait(str(broken))
    try:
        document = json.loads(content)
        json.dumps(document, ensure_ascii=False).encode()  # no surrogates, which no manifest could record
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise SourceError(
            f"The host of {display_name} does not answer with JSON. Check whether a proxy or a sign-in "
            "page intercepts the request.",
            code="source.invalid-response",
        )
    return document


def looks_like_a_page(response: requests.Response, start: bytes, name: str) -> bool:
    """Check whether a response is a web page instead of data: a sign-in, a consent form, or an error with status 200."""
    if name.lower().endswith((".html", ".htm")):
        return False
    head = start[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    is_html = response.headers.get("Content-Type", "").lower().startswith(("text/html", "application/xhtml"))
    return head.startswith((b"<!doctype html", b"<html")) and (is_html or not name.lower().endswith((".txt", ".xml")))


def digests(path: Path, checksum: str) -> tuple[str, str]:
    """Return the SHA-256 (hex) of a file, and its actual checksum (`md5:<hex>`) if it differs from the publisher's, else "".

    `checksum` is the publisher's: `md5:<hex>`, `sha256:<hex>`, `git:<hex>` or "". `git:` is the name of a git blob:
    SHA-1 over `blob SIZE\\0` and the bytes.
    """
    algorithm, _, expected = checksum.partition(":")
    sha256 = hashlib.sha256()
    published = sha256
    if algorithm == "git":
        published = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    elif algorithm not in ("", "sha256"):
        published = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            sha256.update(chunk)
            if published is not sha256:
                published.update(chunk)
    wrong = algorithm and published.hexdigest() != expected.lower()
    return sha256.hexdigest(), f"{algorithm}:{published.hexdigest()}" if wrong else ""


# Downloads into a cache that several processes share. A file is downloaded once and verified by its length and
# checksum.
# Files in the cache are named by their content, and written once:
#     ROOT/blobs/<sha256>       the bytes, read-only
#     ROOT/refs/<key>.json      the blob of a published name (the key is a hash and reveals no address)
#     ROOT/parts/<key>.part     an unfinished download, which a later run resumes
#     ROOT/parts/<key>.version  the ETag or date of that download
#     ROOT/locks/<key>.lock     locked while downloading; the system releases it when a process dies


@dataclasses.dataclass
class Download:
    """The download of one file.

    address: called before each try, because signed addresses expire name: shown to the user; its suffix shows whether
    a web page may be the requested content checksum, size: the publisher's; "" and None if it publishes none
    """

    address: Callable[[], str]
    name: str
    checksum: str = ""
    size: int | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    progress: bool | None = None

    def run(self, part: Path) -> str:
        """Download the file to `part`, resuming an earlier run, and return its SHA-256 (hex). Raises SourceError.

        After an error, a later run may resume the remaining part.
        """
        self._part, self._highest_offset, retries = part, 0, Retries(self.name)
        resumed = clean = False
        with Progress(self.name[-40:], is_shown=self.progress) as bar:
            while True:
                start = self._start()
                resumed = resumed or start > 0
                try:
                    expected = self._receive(start, retries, bar)
                except Broken as broken:
                    retries.wait(str(broken))
                    continue
                except OSError as error:
                    raise SourceError(
                        f"{self._part.parent} cannot be written ({error.strerror}). Free some space, or set "
                        "T5PREP_CACHE to another folder.",
                        code="cache.unwritable",
                    ) from error
                have = self._part.stat().st_size
                if expected is not None and have < expected:
                    retries.wait("the connection broke in the middle")
                    continue
                wrong, sha256 = self._wrong(have, expected)
                if not wrong:
                    self._validator.unlink(missing_ok=True)
                    return sha256
                self._discard()
                if resumed and not clean:  # the first half may be of another version: restart once
                    clean = True
                    continue
                raise SourceError(
                    f"{self.name} is not the published file: {wrong}. The download was deleted. Run the command "
                    "again. If the problem persists, tell the publisher.",
                    code="source.damaged-download",
                )

    def _discard(self) -> None:
        """Delete the partial download."""
        self._part.unlink(missing_ok=True)
        self._validator.unlink(missing_ok=True)

    def _receive(self, start: int, retries: Retries, bar: Progress) -> int | None:
        """Append the bytes that the host sends, and return the length of the complete file, None if it is unknown.

        Raises Broken.
        """
        headers = dict(self.headers)
        if start:
            headers["Range"] = f"bytes={start}-"
            if not self.checksum:
                headers["If-Range"] = self._validator.read_text()
        response = get(self.address(), display_name=self.name, headers=headers, retries=retries)
        with response:
            if response.status_code == 416:  # the part is at least as long as the file
                total_bytes = total_bytes_of(response)
                if total_bytes != start:
                    self._discard()
                    raise Broken("the host has fewer bytes than were fetched before")
                return total_bytes
            continues = response.status_code == 206 and start > 0
            if continues and _first(response) != start:
                self._discard()
                raise Broken("the host sends another range than the requested one")
            if response.headers.get("Content-Encoding", "identity") != "identity" and not self.name.endswith(".gz"):
                raise SourceError(
                    f"The host of {self.name} sends compressed data, although t5prep asked for plain data. "
                    "Download the file yourself, and name the local file.",
                    code="source.unsupported-host",
                )
            total_bytes = total_bytes_of(response)
            self._remember(response)
            missing = (total_bytes or self.size or 0) - (start if continues else 0)
            if missing > (free := shutil.disk_usage(self._part.parent).free):
                raise SourceError(
                    f"{self.name} needs {missing:,} more bytes, but {self._part.parent} has only {free:,}. Free "
                    "some space, or set T5PREP_CACHE to another folder.",
                    code="cache.insufficient-space",
                )
            bar.restart(bytes=start if continues else 0, total=total_bytes or self.size or 0)
            with self._part.open("ab" if continues else "wb") as out:
                self._copy(response, out, retries, bar, first=not continues)
            return total_bytes

    def _copy(
        self, response: requests.Response, out: IO[bytes], retries: Retries, bar: Progress, *, first: bool
    ) -> None:
        """Write the bytes of a response. `first`: they are the begin of the file.

        Raises Broken, and SourceError for a web page instead of the file.
        """
        is_bounded = self.size is not None or total_bytes_of(response) is not None
        for chunk in _pieces(response, self.name):
            if first and looks_like_a_page(response, chunk, self.name):
                out.close()
                self._discard()
                raise SourceError(
                    f"The host of {self.name} sends a web page instead of the data. Open the address in a "
                    "browser, download the file there, and name the local file.",
                    code="source.web-page",
                )
            first = False
            out.write(chunk)
            # A host that always restarts from zero makes no progress.
            if out.tell() >= self._highest_offset + _PROGRESS:
                self._highest_offset = out.tell()
                retries.failed = 0
            bar.add(bytes=len(chunk))
            if self.size is not None and out.tell() > self.size:
                return  # the host may never end
            if not is_bounded and shutil.disk_usage(self._part.parent).free < _RESERVE:
                out.close()
                self._discard()
                raise SourceError(
                    f"{self.name} has no known size, and {self._part.parent} has less than {_RESERVE:,} bytes left. Free "
                    "some space, or set T5PREP_CACHE to another folder.",
                    code="cache.insufficient-space",
                )

    def _start(self) -> int:
        """Return the number of bytes that can be resumed: 0 unless they certainly belong to the same version."""
        if not self._part.exists():
            return 0
        return self._part.stat().st_size if self.checksum or self._validator.exists() else 0

    def _remember(self, response: requests.Response) -> None:
        """Store the version (RFC 9110, 13.1.5: a strong ETag, or a date), because only the same version can be resumed."""
        etag = response.headers.get("ETag", "")
        version = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
        if version:
            self._validator.write_text(version)
        else:
            self._validator.unlink(missing_ok=True)

    def _wrong(self, have: int, expected: int | None) -> tuple[str, str]:
        """Return the problem of the downloaded bytes ("" for none), and their SHA-256."""
        published = self.size if self.size is not None else expected
        if published is not None and have != published:
            return f"{have:,} bytes arrived, but the publisher says {published:,}", ""
        sha256, wrong_checksum = digests(self._part, self.checksum)
        return (
            f"its checksum is {wrong_checksum}, but the publisher says {self.checksum}" if wrong_checksum else ""
        ), sha256

    @property
    def _validator(self) -> Path:
        """The file with the version of the part."""
        return self._part.with_suffix(".version")


def _first(response: requests.Response) -> int | None:
    """Return the first byte of a response's range, or None."""
    match = re.match(r"bytes ([0-9]{1,18})-", response.headers.get("Content-Range", ""))
    return int(match.group(1)) if match else None


def total_bytes_of(response: requests.Response) -> int | None:
    """Return the length of the complete file from Content-Range or Content-Length, or None."""
    match = re.search(r"/([0-9]{1,18})$", response.headers.get("Content-Range", ""))
    if match:
        return int(match.group(1))
    length = response.headers.get("Content-Length", "")
    return int(length) if _LENGTH.fullmatch(length) and response.status_code == 200 else None


_LOCK_NOTICE_SECONDS = 5.0  # seconds of waiting for the lock before a message explains it


@dataclasses.dataclass(frozen=True)
class Blob:
    """A cached file."""

    path: Path
    bytes: int
    sha256: str


def fetch(key: str, download: Download) -> Blob:
    """Return the file with this `key` from the cache, after running `download` if it is missing.

    `key` must name a version ("zenodo:1/a.zip md5:..."), so that a cached file never becomes outdated. Raises
    SourceError if the cache cannot be written, and the errors of `download`.

    A `store.Store` holds its files in memory and writes a signature before them. A download may exceed the memory, resumes
    from its part, and is read at any offset.
    """
    cache_folder, name = store.root() / "sources", hashlib.sha256(key.encode()).hexdigest()[:40]
    try:
        for folder in ("blobs", "refs", "parts", "locks"):
            (cache_folder / folder).mkdir(parents=True, exist_ok=True)
        with _locked(cache_folder / "locks" / f"{name}.lock", cache_folder):
            if cached_blob := _find_cached(cache_folder, name):
                return cached_blob
            part = cache_folder / "parts" / f"{name}.part"
            return _keep(cache_folder, name, part, download.run(part))
    except OSError as error:
        raise SourceError(
            f"The cache {cache_folder} cannot be written ({error.strerror or error}). Free some space, or "
            "set T5PREP_CACHE to another folder.",
            code="cache.unwritable",
        ) from error


def _locked(path: Path, cache_folder: Path) -> AcquireReturnProxy:
    """Return the acquired lock of a download. A message is printed if another process holds it."""
    lock = FileLock(path)
    try:
        return lock.acquire(timeout=_LOCK_NOTICE_SECONDS)
    except Timeout:
        print(f"Waiting for another process that is downloading the same file to {cache_folder} ...", file=sys.stderr)
        return lock.acquire(timeout=-1)


def _find_cached(cache_folder: Path, name: str) -> Blob | None:
    """Return the cached file, or None if it is missing or has another size."""
    try:
        entry = json.loads((cache_folder / "refs" / f"{name}.json").read_text())
        blob = Blob(cache_folder / "blobs" / entry["sha256"], entry["bytes"], entry["sha256"])
        return blob if blob.path.stat().st_size == blob.bytes else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(cache_folder: Path, name: str, part: Path, sha256: str) -> Blob:
    """Move a complete part into the cache, and then write its ref, so that a ref never precedes its bytes."""
    blob = Blob(cache_folder / "blobs" / sha256, part.stat().st_size, sha256)
    with part.open("rb") as arrived:
        # Otherwise a power failure could leave a ref to an empty blob.
        os.fsync(arrived.fileno())
    part.chmod(0o444)
    part.replace(blob.path)
    ref = cache_folder / "refs" / f"{name}.json"
    entry_json = json.dumps({"sha256": blob.sha256, "bytes": blob.bytes}) + "\n"
    atomic_files.write_whole(ref, entry_json.encode(), option="T5PREP_CACHE")
    return blob
