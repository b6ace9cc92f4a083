"""A small HTTP server for tests: answers with ranges and validators, and misbehaves when told to.

It is also an HTTPS proxy that answers for every host itself: with HTTPS_PROXY pointing here, a client talks to
"https://zenodo.org" and never leaves this machine.
"""

import dataclasses
import hashlib
import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclasses.dataclass
class Request:
    """A request as it came: host without port, path without query, header names in lower case."""

    method: str
    host: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""


@dataclasses.dataclass
class Answer:
    """An answer. `ranges` makes the server honour Range and If-Range, as storage hosts do.

    `pieces` makes the pieces of a body whose length is not announced; it may never end.
    """

    status: int = 200
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    body: bytes = b""
    ranges: bool = False
    pieces: Callable[[], Iterable[bytes]] | None = None


@dataclasses.dataclass
class Fault:
    """What goes wrong with the next `times` answers to requests whose `host/path` contains `match`.

    cut: the connection closes after so many bytes of the body · stall: after these it falls silent instead ·
    answer: this one instead · spoil: a byte of the body is changed · shorten: so many bytes are missing at its end
    """

    match: str
    times: int = 1
    cut: int | None = None
    answer: Answer | None = None
    stall: bool = False
    spoil: bool = False
    shorten: int = 0
    method: str = "GET"


App = Callable[[Request], Answer]


class Server:
    """One server for all hosts. `requests` are what came; `faults` what is to go wrong."""

    def __init__(self, tls: ssl.SSLContext | None = None):
        self.apps: dict[str, App] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"owner": self, "tls": tls})
        self._server = _Quiet(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def requests_of(self, match: str, method: str = "GET") -> list[Request]:
        """The requests so far whose `host/path` contains `match`."""
        return [
            request for request in self.requests if match in request.host + request.path and request.method == method
        ]

    def answer(self, request: Request) -> tuple[Answer, Fault | None]:
        with self._lock:
            self.requests.append(request)
            address = request.host + request.path
            fault = next(
                (f for f in self.faults if f.times and f.match in address and f.method == request.method), None
            )
            if fault:
                fault.times -= 1
        app = self.apps.get(request.host)
        answer = fault.answer if fault and fault.answer else app(request) if app else Answer(404, body=b"no such host")
        if fault and not fault.answer and answer.status == 200:
            body = answer.body[: len(answer.body) - fault.shorten] if fault.shorten else answer.body
            body = bytes([body[0] ^ 1]) + body[1:] if fault.spoil else body
            answer = dataclasses.replace(answer, body=body)
        return answer, fault


class _Quiet(ThreadingHTTPServer):
    """Says nothing of clients that hang up."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Server
    tls: ssl.SSLContext | None
    timeout = 10

    def log_message(self, *_: object) -> None:
        pass

    def do_CONNECT(self) -> None:
        self.send_response_only(200, "Connection established")
        self.end_headers()
        self.connection = self.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb", -1)
        self.wfile = self.connection.makefile("wb", -1)
        self.close_connection = False

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        host = (self.headers.get("Host") or parts.netloc).partition(":")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        headers = {key.lower(): value for key, value in self.headers.items()}
        request = Request(self.command, host, parts.path, query, headers, body)
        answer, fault = self.owner.answer(request)
        if answer.ranges:
            answer = _ranged(request, answer)
        self._send(answer, fault)

    do_GET = do_POST = do_HEAD = _serve  # noqa: N815 - the library's names

    def _send(self, answer: Answer, fault: Fault | None) -> None:
        self.send_response(answer.status)
        length = {"Transfer-Encoding": "chunked"} if answer.pieces else {"Content-Length": str(len(answer.body))}
        for key, value in {**length, **answer.headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if answer.pieces:
            for piece in answer.pieces():
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            return
        cut = fault.cut if fault and not fault.answer else None
        if self.command != "HEAD":
            self.wfile.write(answer.body if cut is None else answer.body[:cut])
        self.wfile.flush()
        if cut is not None:
            self.close_connection = True
            if fault and fault.stall:
                self.connection.settimeout(10)
                self.rfile.read(1)  # until the client has enough of it
            self.connection.shutdown(socket.SHUT_RDWR)


def _ranged(request: Request, answer: Answer) -> Answer:
    """What a storage host makes of Range and If-Range (RFC 9110, 13 and 14)."""
    body = answer.body
    etag = answer.headers.get("ETag", "")
    headers = {"Accept-Ranges": "bytes", **answer.headers}
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
    changed = "if-range" in request.headers and request.headers["if-range"] != (
        etag or answer.headers.get("Last-Modified")
    )
    if not match or changed:
        return dataclasses.replace(answer, headers=headers)
    start, end = int(match[1]), int(match[2] or len(body) - 1)
    if start >= len(body):
        return Answer(416, {**headers, "Content-Range": f"bytes */{len(body)}"})
    end = min(end, len(body) - 1)
    headers["Content-Range"] = f"bytes {start}-{end}/{len(body)}"
    return Answer(206, headers, body[start : end + 1])


def file_answer(body: bytes, **headers: str) -> Answer:
    """A file as a storage host serves it: with a strong ETag and by range."""
    return Answer(headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"', **headers}, body=body, ranges=True)
