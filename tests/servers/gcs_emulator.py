"""A Google Cloud Storage for tests: fake-gcs-server, and a front before it that keeps sessions and makes faults.

Why fake-gcs-server (Go) and not gcp-storage-emulator (PyPI): it enforces `ifGenerationMatch` and declared checksums,
answers ranged reads and the XML API that TensorFlow reads through. Its limits at 1.56.1, which is why the front exists:

* a status query of a resumable upload (`Content-Range: bytes */N`) commits what has arrived so far, and a chunk is
  appended whatever its range says. The front keeps resumable sessions itself, after Google's protocol
  (https://cloud.google.com/storage/docs/performing-resumable-uploads), and passes on whole objects only;
* it knows neither identities nor permissions: 401 and 403 are the front's.

So what is real here: clients, protocol, preconditions, checksums, listings, ranges. What is not: IAM, regions, rates.
"""

import contextlib
import dataclasses
import http.client
import itertools
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

VERSION = "v1.56.1"
# Google keeps what has arrived of a broken chunk in units of this.
UNIT = 256 << 10
_NAME = "fake-gcs-server"
INSTALL = f"go install github.com/fsouza/{_NAME}@{VERSION}"
_CACHE_FOLDER = Path(__file__).parents[2] / ".cache" / "bin"


def installed() -> str | None:
    """Return the path of fake-gcs-server: on the path, in Go's own folder or in .cache/bin; None where it is not installed."""
    places = (
        os.environ.get("FAKE_GCS_SERVER"),
        shutil.which(_NAME),
        _CACHE_FOLDER / _NAME,
        Path.home() / "go/bin" / _NAME,
    )
    return next((str(path) for path in places if path and Path(path).is_file()), None)


def binary() -> str:
    """Return the path of fake-gcs-server, which Go builds where it is not there."""
    if path := installed():
        return path
    _CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(INSTALL.split(), env=os.environ | {"GOBIN": str(_CACHE_FOLDER)}, check=True)
    return str(_CACHE_FOLDER / _NAME)


@dataclasses.dataclass
class StorageRequest:
    """A request: `name` is the object's, "" for listings; `received` and `answered` count bytes of bodies."""

    method: str
    url: str
    kind: str
    name: str
    token: str = ""
    received: int = 0
    answered: int = 0
    status: int = 0


# What is to go wrong with a request: "" nothing · a status · cut, stall, spoil (the body) · lost (done, unanswered)
Fault = Callable[[StorageRequest], str]


def every(number: int, *faults: str) -> Fault:
    """One request in so many meets the next of these faults, in turn: by count, so that some are always met."""
    turns, coming = itertools.count(1), itertools.cycle(faults)
    return lambda request: "" if next(turns) % number else next(coming)


def once_each(kind: str, fault: str, struck: set[str]) -> Fault:
    """The first request of that kind for each object meets the fault; `struck` are the objects whose request did."""

    def first(request: StorageRequest) -> str:
        if request.kind != kind or request.name in struck:
            return ""
        struck.add(request.name)
        return fault

    return first


class Front:
    """Passes requests on to the emulator. `fault` decides what goes wrong, `seen` is what came."""

    def __init__(self, emulator: int, *, port: int = 0, tls: ssl.SSLContext | None = None):
        self.emulator = emulator
        self.fault: Fault = lambda request: ""
        self.requests: list[StorageRequest] = []
        self.delay = 0.0
        self.stalled = 3.0
        self.sessions: dict[str, _Session] = {}
        self.server = _Quiet(("127.0.0.1", port), type("Handler", (_Handler,), {"front": self}))
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def written_names(self) -> list[str]:
        """The names of objects, in the order in which they appeared."""
        return [
            request.name for request in self.requests if request.kind in ("put", "multipart") and request.status == 200
        ]


@dataclasses.dataclass
class _Session:
    query: str
    metadata: dict[str, Any]
    data: bytearray
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    answer: tuple[int, bytes] | None = None


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Cut(OSError):  # noqa: N818
    """The connection is to end here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    front: Front

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        request = StorageRequest(
            self.command, self.path, _kind(self.command, parts.path, query), _name(parts.path, query)
        )
        request.token = self.headers.get("Authorization", "")
        if request.kind == "put" and (session := self.front.sessions.get(query.get("upload_id", ""))):
            request.name = session.metadata["name"]
        self.front.requests.append(request)
        time.sleep(self.front.delay)
        fault = self.front.fault(request)
        try:
            if fault.isdigit():
                self._read(request)
                return self._answer(request, int(fault), _error(int(fault), request))
            if fault == "stall":
                time.sleep(self.front.stalled)
                raise _Cut
            if request.kind == "put":
                status, body, headers = self._store_object(request, query["upload_id"], fault)
            elif request.kind == "begin":
                status, body, headers = self._begin(request, parts.query)
            else:
                if fault == "cut" and self.command != "GET":
                    raise _Cut
                request_body = self._read(request, spoil=fault == "spoil")
                if request.kind == "multipart":
                    request.name = json.loads(request_body[request_body.index(b"{") : request_body.index(b"}") + 1])[
                        "name"
                    ]
                status, body, headers = self._pass_on(request, request_body)
            if fault == "lost":
                raise _Cut
            self._answer(request, status, body, headers, fault if self.command == "GET" else "")
        except _Cut:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _serve  # noqa: N815 - the library's names

    def _read(self, request: StorageRequest, *, spoil: bool = False) -> bytes:
        body = bytearray()
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body += self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request.received += len(body)
        if spoil and len(body) > 100:
            body[-50] ^= 1
        return bytes(body)

    def _pass_on(self, request: StorageRequest, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        hop = ("host", "connection", "content-length", "transfer-encoding", "expect")
        headers = {key: value for key, value in self.headers.items() if key.lower() not in hop}
        # As it came: the emulator tells its XML API from its JSON API by the host.
        headers["Host"] = self.headers.get("Host", "")
        connection = http.client.HTTPConnection("127.0.0.1", self.front.emulator, timeout=300)
        try:
            connection.request(self.command, self.path, body=body, headers=headers)
            answer = connection.getresponse()
            response_headers = {key: value for key, value in answer.getheaders() if key.lower() not in (*hop, "date")}
            response_body = answer.read()
            if "json" in answer.getheader("Content-Type", ""):  # links must lead here, not past us
                response_body = response_body.replace(
                    b"http://127.0.0.1:%d" % self.front.emulator, self._object_path().encode()
                )
            return answer.status, response_body, response_headers
        finally:
            connection.close()

    def _begin(self, request: StorageRequest, query: str) -> tuple[int, bytes, dict[str, str]]:
        metadata = json.loads(self._read(request) or b"{}")
        request.name = metadata.setdefault("name", request.name)  # in the address, as TensorFlow's client says it
        upload = uuid.uuid4().hex
        self.front.sessions[upload] = _Session(query, metadata, bytearray())
        url = self._object_path() + urllib.parse.urlsplit(self.path).path
        return 200, b"{}", {"Location": f"{url}?uploadType=resumable&upload_id={upload}"}

    def _object_path(self) -> str:
        scheme = "https" if isinstance(self.connection, ssl.SSLSocket) else "http"
        return f"{scheme}://{self.headers['Host']}"

    def _store_object(self, request: StorageRequest, upload: str, fault: str) -> tuple[int, bytes, dict[str, str]]:
        session = self.front.sessions.get(upload)
        if session is None:
            self._read(request)
            return 404, b"no such upload", {}
        size = int(self.headers.get("Content-Length") or 0)
        full_range = f"0-{size - 1}/{size}"  # an empty object has no range
        span, _, total = self.headers.get("Content-Range", full_range).removeprefix("bytes ").partition("/")
        with session.lock:
            if session.answer is None and span != "*":
                begin = int(span.partition("-")[0])
                chunk = self._arrive(request, size if fault != "cut" else size // 2, spoil=fault == "spoil")
                if len(chunk) < size:
                    chunk = chunk[: (begin + len(chunk)) // UNIT * UNIT - begin]
                if begin <= len(session.data):
                    session.data[begin:] = chunk if chunk else session.data[begin:]
                if len(chunk) < size:
                    raise _Cut
            else:
                self._read(request)
            if session.answer is None and total != "*" and len(session.data) == int(total):
                session.answer = self._finish(session)
                if session.answer[0] != 200:
                    del self.front.sessions[upload]
        if session.answer is not None:
            return *session.answer, {"Content-Type": "application/json"}
        return 308, b"", {"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {}

    def _arrive(self, request: StorageRequest, size: int, *, spoil: bool) -> bytes:
        """As much of a chunk as comes: the client may be killed in the middle of it."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):  # TensorFlow's, which says its length besides
            return self._read(request, spoil=spoil)[:size]
        chunk = bytearray()
        with contextlib.suppress(OSError):
            while len(chunk) < size and (piece := self.rfile.read1(min(1 << 16, size - len(chunk)))):
                chunk += piece
                request.received += len(piece)
        if spoil and chunk:
            chunk[len(chunk) // 2] ^= 1
        return bytes(chunk)

    def _finish(self, session: _Session) -> tuple[int, bytes]:
        """The whole object, as a multipart upload with what the session was begun with."""
        query = dict(urllib.parse.parse_qsl(session.query)) | {"uploadType": "multipart"}
        path = f"{urllib.parse.urlsplit(self.path).path}?{urllib.parse.urlencode(query)}"
        body = b"\r\n".join(
            (
                b"--part\r\nContent-Type: application/json\r\n",
                json.dumps(session.metadata).encode(),
                b"--part\r\nContent-Type: application/octet-stream\r\n",
                bytes(session.data),
                b"--part--\r\n",
            )
        )
        connection = http.client.HTTPConnection("127.0.0.1", self.front.emulator, timeout=300)
        try:
            connection.request("POST", path, body, {"Content-Type": "multipart/related; boundary=part"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _answer(
        self, request: StorageRequest, status: int, body: bytes, headers: dict[str, str] | None = None, fault: str = ""
    ) -> None:
        request.status = status
        self.send_response_only(status)
        for key, value in ((key, value) for key, value in (headers or {}).items() if key.lower() != "content-length"):
            self.send_header(key, value)
        length = len(body) if self.command != "HEAD" else int((headers or {}).get("Content-Length", 0))
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "spoil" and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        if fault == "cut":
            body = body[: len(body) // 2]
        self.wfile.write(body)
        request.answered += len(body)
        if fault == "cut":
            raise _Cut


def _kind(method: str, path: str, query: dict[str, str]) -> str:
    if path.startswith("/upload"):
        return "put" if method == "PUT" else {"resumable": "begin"}.get(query["uploadType"], query["uploadType"])
    if method == "DELETE":
        return "delete"
    if query.get("alt") == "media" or path.startswith("/download") or not path.startswith("/storage/v1"):
        return "read"
    return "list" if path.rstrip("/").endswith("/o") else "stat" if "/o/" in path else "bucket"


def _name(path: str, query: dict[str, str]) -> str:
    _, _, name = path.partition("/o/")
    if not name and not path.startswith(("/storage", "/upload", "/download", "/b/")):
        name = path.lstrip("/").partition("/")[2]
    return urllib.parse.unquote(name) or query.get("name", "")


def _error(status: int, request: StorageRequest) -> bytes:
    return json.dumps(
        {"error": {"code": status, "message": f"injected {status} for {request.kind} {request.name}"}}
    ).encode()


@contextlib.contextmanager
def running() -> Iterator[int]:
    """The emulator itself, with nothing in it: its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [binary(), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    process = subprocess.Popen([*command, "-log-level", "error"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        answers = False
        while not answers and process.poll() is None:
            time.sleep(0.02)
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_internal/healthcheck", timeout=60).close()
                answers = True
        assert answers, "fake-gcs-server did not start"
        yield port
    finally:
        process.kill()
        process.wait()


def make_bucket(port: int, name: str) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/storage/v1/b?project=test",
        data=json.dumps({"name": name}).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=300).close()


@pytest.fixture(scope="session")
def emulator() -> Iterator[int]:
    """The port of a running emulator. Tests share it: each makes a bucket of its own."""
    with running() as port:
        yield port


@pytest.fixture
def front(emulator: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Front]:
    """A front that the Python client talks to; only a test whose server falls silent makes the client's patience short."""
    from t5prep.io import gcs, uploads

    front = Front(emulator)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{front.port}")
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gcs, "TIMEOUT_SECONDS", (60.0, 60.0))
    monkeypatch.setattr(uploads, "FIRST_WAIT_SECONDS", 0.01)
    forget = gcs.client_of.cache_clear
    forget()
    yield front
    forget()
    front.close()


def upload_objects(bucket: str, objects: dict[str, bytes]) -> None:
    """Upload objects into a bucket, `gs://NAME`, with Google's own client."""
    from t5prep.io import gcs

    for name, body in objects.items():
        gcs.client().bucket(bucket.removeprefix("gs://")).blob(name).upload_from_string(body)


@pytest.fixture
def bucket(front: Front, emulator: int) -> str:
    """An empty bucket, as gs://NAME."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    make_bucket(emulator, name)
    return f"gs://{name}"
