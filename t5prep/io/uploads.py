"""Upload one file to a bucket over a connection that may break, or a folder to the Hugging Face Hub.

For a bucket, this is Google's resumable upload protocol. The session's URL is saved on disk, so that after a crash the next
process continues at the server's offset. The client library's resumable upload ends with its process.
https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

import contextlib
import hashlib
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from t5prep.errors import OutputError, UsageError
from t5prep.io import atomic_files, gcs, store

if TYPE_CHECKING:
    import huggingface_hub
    import requests

# Bytes of one request. The protocol requires multiples of 256 KiB.
CHUNK_BYTES = 8 << 20
# An upload fails when the server has received no byte for this long.
PATIENCE_SECONDS = 300.0
# Waits between retries double from the first to the longest, with jitter, so that many uploads do not retry at once.
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 32.0
# Statuses that Google's documentation says to retry: https://cloud.google.com/storage/docs/retry-strategy
_RETRYABLE_STATUSES = (408, 429, 500, 502, 503, 504)
# With these statuses the server refuses the session, or the bytes arrived damaged (400). Up to `_SESSIONS` new sessions
# begin without progress; each received byte resets this count.
_EXPIRED_STATUSES = (400, 404, 410)
_SESSIONS = 5


class Conflict(Exception):  # noqa: N818 - not an error yet: the caller checks the object
    """Report that the object no longer has the generation that the upload replaces: somebody else wrote it."""


class Upload:
    """Upload the file `path` to the object `uri`.

    * crc32c: the file's checksum, as `gcs.crc32c` returns it.
    * generation: the generation of the object that the upload replaces, or 0 if there must be none.
    * sent: called with the number of bytes that the server gained, negative if it lost some.
    * stop: an event that ends the upload after the current request.
    """

    def __init__(
        self, path: Path, uri: str, *, crc32c: str, generation: int, sent: Callable[[int], None], stop: threading.Event
    ) -> None:
        self._path, self._uri, self._crc32c, self._generation = path, uri, crc32c, generation
        self._sent, self._stop = sent, stop
        self._size = path.stat().st_size
        key = hashlib.sha256(json.dumps([os.path.abspath(path), uri, crc32c, generation]).encode()).hexdigest()
        self._session_path = store.root() / "uploads" / key[:32]
        # A private attribute of the client, but a session that renews its token by itself; each request names its URL.
        self._http = gcs.client()._http
        self._session = self._session_path.read_text() if self._session_path.exists() else ""
        self._offset, self._highest_offset = 0, -1
        self._session_count = 0  # since the last progress
        self._offset_known = False  # whether `_offset` is what the server reported last

    def run(self) -> None:
        """Send the file, and check the checksum that the server reports.

        Raises OutputError if the file cannot be sent, Conflict if somebody else wrote the object.
        """
        waits, deadline = 0, time.monotonic() + PATIENCE_SECONDS
        while not self._stop.is_set():
            trouble = self._step()
            if trouble is None:
                return
            # Only bytes beyond the highest offset are progress: a server may lose bytes and receive them again.
            if self._offset > self._highest_offset:
                self._highest_offset, waits, deadline = self._offset, 0, time.monotonic() + PATIENCE_SECONDS
                self._session_count = 0
            if not trouble:
                continue
            if time.monotonic() > deadline:
                raise OutputError(
                    f"The upload of {self._uri} made no progress for {PATIENCE_SECONDS:.0f} s ({trouble}). Run "
                    "the same upload again to resume it.",
                    code="bucket.upload-stall",
                )
            waits += 1
            self._stop.wait(random.uniform(0.5, 1) * min(FIRST_WAIT_SECONDS * 2**waits, LONGEST_WAIT_SECONDS))

    def _step(self) -> str | None:
        """Send one request. Return the reason of a failure to retry, "" on success, or None if the upload is complete."""
        import requests

        if not self._session:
            with gcs.speaking(self._uri, need="storage.objects.create"):
                self._begin()
        try:
            response = self._send_chunk() if self._offset_known else self._request_offset()
        except requests.RequestException as error:
            self._offset_known = False
            return f"{type(error).__name__}: {error}"
        if response.status_code in (200, 201):
            return self._finish(response.json())
        if response.status_code == 308:  # "Resume Incomplete": a part has arrived
            self._offset_known = True
            self._advance_to(_received(response))
            return ""
        self._offset_known = False
        if response.status_code in _RETRYABLE_STATUSES:
            return f"{response.status_code} {response.reason}"
        if response.status_code in _EXPIRED_STATUSES and self._session_count < _SESSIONS:
            self._forget()
            return f"{response.status_code} {response.reason}"
        if response.status_code == 412:  # the condition `if_generation_match` failed
            self._forget()
            raise Conflict(self._uri)
        self._refuse(response)

    def _begin(self) -> None:
        """Begin an upload session at offset 0, and save its URL on disk."""
        self._session_count += 1
        blob = gcs.blob(self._uri)
        blob.crc32c = self._crc32c  # the server refuses bytes that do not make this checksum
        self._session = blob.create_resumable_upload_session(
            content_type="application/octet-stream",
            size=self._size,
            checksum=None,
            if_generation_match=self._generation,
            timeout=gcs.TIMEOUT_SECONDS,
        )
        self._offset_known = True
        self._advance_to(0)
        # Written atomically: after a kill, half a URL would be retried for PATIENCE_SECONDS. Without this file the upload
        # works, but cannot resume. Anyone who knows the URL may write the object, so only the owner may read the file. Files of
        # a `store.Store` may be read by others.
        with (
            contextlib.suppress(OutputError),
            atomic_files.scratch(self._session_path) as temporary,
            open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file,
        ):
            file.write(self._session)

    def _forget(self) -> None:
        """Forget the session, also on disk: the upload is complete or begins again."""
        self._session = ""
        self._session_path.unlink(missing_ok=True)

    def _request_offset(self) -> "requests.Response":
        """Request the server's offset. The answer is 308 with a range, or 200 if the server has all bytes."""
        headers = {"Content-Range": f"bytes */{self._size}"}
        return self._http.put(self._session, headers=headers, timeout=gcs.TIMEOUT_SECONDS)

    def _send_chunk(self) -> "requests.Response":
        """Send the next CHUNK_BYTES at the offset, and return the server's answer."""
        with open(self._path, "rb") as file:
            chunk = os.pread(file.fileno(), CHUNK_BYTES, self._offset)
        if not chunk and self._size:
            raise OutputError(
                f"{self._path} became shorter while it was uploaded. Prepare the dataset again.", code="dataset.altered"
            )
        byte_range = f"{self._offset}-{self._offset + len(chunk) - 1}" if chunk else "*"
        headers = {"Content-Range": f"bytes {byte_range}/{self._size}"}
        return self._http.put(self._session, data=chunk, headers=headers, timeout=gcs.TIMEOUT_SECONDS)

    def _advance_to(self, offset: int) -> None:
        """Set the offset, and report the difference to `sent`."""
        self._sent(offset - self._offset)
        self._offset = offset

    def _finish(self, uploaded: dict[str, str]) -> str | None:
        """Return None if the object has the file's checksum, else remove the object and return the reason to retry.

        `uploaded` is the server's description of the object. Raises OutputError after `_SESSIONS` damaged uploads.
        """
        self._forget()
        if uploaded.get("crc32c") != self._crc32c:
            gcs.delete(self._uri, generation=int(uploaded["generation"]))
            if self._session_count >= _SESSIONS:
                raise OutputError(
                    f"{self._uri} arrived damaged and was removed. Run the upload again.",
                    code="bucket.damaged-upload",
                )
            self._offset_known = False
            self._advance_to(0)
            return "it arrived damaged"
        self._advance_to(self._size)
        return None

    def _refuse(self, response: "requests.Response") -> NoReturn:
        """Raise the error of `gcs.speaking` for a response that no retry can mend."""
        from google.api_core.exceptions import from_http_response

        with gcs.speaking(self._uri, need="storage.objects.create"):
            raise from_http_response(response)
        raise AssertionError


def _received(response: "requests.Response") -> int:
    """Return the number of bytes that the server has, from its header `Range: bytes=0-LAST`; 0 without this header."""
    last = response.headers.get("Range", "").rpartition("-")[2]
    return int(last) + 1 if last else 0


def create_repository(repo: str, *, kind: str, private: bool = False) -> "huggingface_hub.RepoUrl":
    """Create the repository `repo` on the Hub unless it exists, and return its URL; its `repo_id` is `user/name`.

    `kind` is "model" or "dataset". Raises UsageError if the user is not logged in, OutputError if the Hub refuses.
    """
    import huggingface_hub

    with _writing(repo):
        return huggingface_hub.HfApi().create_repo(repo, repo_type=kind, private=private, exist_ok=True)


def upload_to_hub(
    directory: str, *, repo: str, kind: str, private: bool, message: str, names: Sequence[str] | None = None
) -> str:
    """Upload the folder `directory`, or only its files `names`, to the Hub as one commit, and return the repository's URL.

    `kind` is "model" or "dataset", and `message` that of the commit. `private` applies to a new repository. Raises
    UsageError if the user is not logged in, OutputError if the Hub refuses.
    """
    import huggingface_hub

    created = create_repository(repo, kind=kind, private=private)
    with _writing(repo):
        huggingface_hub.HfApi().upload_folder(
            repo_id=created.repo_id,
            repo_type=kind,
            folder_path=directory,
            commit_message=message,
            allow_patterns=None if names is None else list(names),
        )
    return str(created)


@contextlib.contextmanager
def _writing(repo: str) -> Iterator[None]:
    """Convert exceptions of `huggingface_hub` inside `with` to UsageError or OutputError, with one sentence."""
    from huggingface_hub import errors

    try:
        yield
    except errors.LocalTokenNotFoundError as error:
        raise UsageError(
            "You are not logged in to the Hugging Face Hub. Log in: hf auth login", code="hub.missing-login"
        ) from error
    except (errors.HFValidationError, OSError) as error:
        response = error.response if isinstance(error, errors.HfHubHTTPError) else None
        status = response.status_code if response is not None else 0
        if status == 401:
            raise UsageError(
                "The Hugging Face Hub rejects your token (401). Log in again: hf auth login", code="hub.missing-login"
            ) from error
        if status in (403, 404):
            raise OutputError(
                f"{repo} cannot be written on the Hub ({status}). Use a token with write access to this repository.",
                code="hub.missing-permission",
            ) from error
        if status == 429 or status >= 500:
            raise OutputError(
                f"The Hugging Face Hub cannot take {repo} now ({status}). Run the command again later.",
                code="hub.unavailable",
            ) from error
        raise OutputError(
            f"{repo} cannot be pushed: {str(error).splitlines()[0][:200]}", code="hub.upload-failure"
        ) from error
