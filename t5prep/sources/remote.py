"""Read a file of the Hub or of any other host by ranges, seekable, where its host allows it.

HfFileSystem is not used: in every thread it first asks the Hub's API for the repository and for the listing of each folder,
then for the address of every range again, and it accepts a range of any length as the one asked for. Here the Hub is asked
once per file, and the storage host after that, so hundreds of workers do not reach the Hub's rate limits.
"""

import io
import os
import re
from typing import BinaryIO, cast

import requests

from t5prep.errors import SourceError
from t5prep.io.ranges import RangedFile
from t5prep.sources.http import Broken, Refused, Retries, connection_errors, get

_SMALL = 32 << 20  # bytes: the largest file that is read whole from a host that does not serve ranges
_HUB = re.compile(r"hf://datasets/(?P<repo>[^@]+)@(?P<revision>[^/]+)/(?P<file>.+)")
_ADVICE = "Set HF_TOKEN in the environment of every worker to a token that may read it."


def open_range(path: str, *, size: int | None, ahead: int = 1 << 20) -> BinaryIO:
    """Return a seekable file of `hf://datasets/OWNER/NAME@COMMIT/FILE` or `https://`; if `size` is None, ask the host.

    A request costs a round trip, so each asks for at least `ahead` bytes.

    Raises SourceError here and while reading; broken connections, 429 and 5xx are retried without an error.
    """
    url, headers = path, {}
    if match := _HUB.fullmatch(path):
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        url = hf_hub_url(
            match["repo"], match["file"], repo_type="dataset", revision=match["revision"], endpoint=hub_endpoint()
        )
        headers = build_hf_headers()
    return cast(BinaryIO, io.BufferedReader(_Ranges(url, headers, what=path, size=size), ahead))


def _is_whole(response: requests.Response, size: int) -> bool:
    return response.status_code == 200 and response.headers.get("Content-Length") == str(size)


def hub_endpoint() -> str | None:
    """Return the Hub's address in HF_ENDPOINT, or None for the usual one."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


class _Ranges(RangedFile):
    """Read by one request each, sent to the last redirect as long as that signed address works."""

    def __init__(self, url: str, headers: dict[str, str], *, what: str, size: int | None):
        self._url, self._headers, self._what = url, headers, what
        self._session = requests.Session()  # one connection for all reads
        self._redirected = ""
        self._whole = b""  # the content of a small file whose host does not serve ranges
        super().__init__(self._ask_size() if size is None else size)

    def range(self, start: int, length: int) -> bytes:
        """Return exactly these bytes. Raises SourceError."""
        retries = Retries(self._what)
        while True:
            if self._whole:
                return self._whole[start : start + length]
            response = self._get(f"bytes={start}-{start + length - 1}", retries)
            if self._size <= _SMALL and _is_whole(response, self._size):
                self._whole = self._content(response, self._size, retries)
                continue
            if response.status_code != 206:
                response.close()
                raise SourceError(f"{self._what}: its host does not send parts of it. Download it: name a local copy.")
            whole = re.fullmatch(
                rf"bytes {start}-{start + length - 1}/(\d+)", response.headers.get("Content-Range", "")
            )
            if not whole or int(whole.group(1)) != self._size:
                response.close()
                raise SourceError(
                    f"{self._what} is not the {self._size:,} bytes that were listed: it changed. "
                    "Run this again from the start."
                )
            if data := self._content(response, length, retries):
                return data

    def _content(self, response: requests.Response, length: int, retries: Retries) -> bytes:
        """Return a body of this length, or wait and return b"" when fewer bytes came."""
        try:
            with connection_errors(), response:
                data = response.raw.read(length, decode_content=False)
        except Broken as broken:
            retries.wait(str(broken))
            return b""
        if len(data) == length:
            return bytes(data)
        retries.wait("less came than was asked for")
        return b""

    def close(self) -> None:
        self._session.close()
        super().close()

    def _get(self, asked: str, retries: Retries) -> requests.Response:
        if self._redirected:
            try:
                return self._ask(self._redirected, {"Range": asked}, retries)
            except Refused:
                self._redirected = ""  # signed addresses expire: ask for a new one
        try:
            response = self._ask(self._url, {**self._headers, "Range": asked}, retries)
        except Refused as refused:
            raise SourceError(f"{refused} {_ADVICE if refused.status in (401, 403) else ''}".rstrip()) from None
        self._redirected = response.url if response.history else ""
        return response

    def _ask(self, url: str, headers: dict[str, str], retries: Retries) -> requests.Response:
        return get(url, what=self._what, headers=headers, stream=True, retries=retries, session=self._session)

    def _ask_size(self) -> int:
        with self._get("bytes=0-0", Retries(self._what)) as response:
            match = re.search(r"/(\d+)$", response.headers.get("Content-Range", ""))
            if not match:
                raise SourceError(f"{self._what}: its host does not send parts of it. Download it: name a local copy.")
            return int(match.group(1))
