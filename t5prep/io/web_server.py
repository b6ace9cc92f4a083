"""Serve HTTP with the standard library, and limit clients: which, how many at once, and for how long.

A subclass of `Handler` defines the answers: that of `t5prep explore` is in `report/explore.py`.
"""

import contextlib
import http.server
import ipaddress
import json
import os
import signal
import socket
import threading
import time
from http import HTTPStatus
from typing import Any

from t5prep.errors import UsageError
from t5prep.io import signals

CONNECTIONS = 256  # maximum number of open connections; further clients get 503 with Retry-After
SLOWEST_SECONDS = 30  # a client that has not sent its complete request after this time is disconnected


class Server(http.server.ThreadingHTTPServer):
    """Serve `address`, a host and a port, with `handler` until `close`. Raises UsageError if the address is not available.

    The Host header of a request must be an IP address, localhost or the machine's name. This forbids DNS rebinding, by
    which a page of another site could read from this server under that site's name.
    """

    daemon_threads = False  # so that closing waits for unfinished answers
    request_queue_size = 128  # with the standard library's 5, clients that connect at the same moment wait

    def __init__(self, address: tuple[str, int], handler: "type[Handler]") -> None:
        self._hosts = {host.lower() for host in ("localhost", address[0], socket.gethostname())}
        self._deadlines: dict[socket.socket, float] = {}
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        try:
            super().__init__(address, handler)
        except OSError as error:
            endpoint = f"{address[0]}:{address[1]}"
            raise UsageError(
                f"{endpoint} cannot be served ({error.strerror or error}). Choose another --port.",
                code="option.port-unavailable",
            ) from error

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a new thread, or with 503 if `CONNECTIONS` are open."""
        if self._free.acquire(blocking=False):
            self._deadlines[request] = time.monotonic() + SLOWEST_SECONDS
            super().process_request(request, client_address)
        else:
            request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n")
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, then free its place among `CONNECTIONS`."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.received(request)
            self._free.release()

    def received(self, request: socket.socket) -> None:
        """Cancel the deadline of a connection whose complete request has arrived: an answer may take longer."""
        self._deadlines.pop(request, None)

    def service_actions(self) -> None:
        """Disconnect clients whose request is late. A socket's timeout alone spares clients that send a byte now and then."""
        super().service_actions()
        now = time.monotonic()
        for request, deadline in list(self._deadlines.items()):
            if deadline < now:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def is_here(self, host: str) -> bool:
        """Check whether the Host of a request, with or without a port, is a name of this server."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower() in self._hosts
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing if a client disconnected or does not speak HTTP."""

    def close(self) -> None:
        """Answer the requests that have arrived, disconnect all other clients, and free the address."""
        self.shutdown()
        self.disconnect_idle()
        self.server_close()

    def disconnect_idle(self) -> None:
        """Disconnect the clients that have not sent their complete request."""
        for request in list(self._deadlines):
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RD)  # reading only: an answer that has just begun is still sent

    def until_stopped(self) -> None:
        """Serve until SIGINT or SIGTERM, then close. A second signal ends the process at once."""
        stopping = threading.Event()

        def stop(*_: object) -> None:
            if stopping.is_set():
                os._exit(1)
            stopping.set()

        for number in signals.stopping():
            signal.signal(number, stop)
        threading.Thread(target=self.serve_forever, name="accepts", daemon=True).start()
        stopping.wait()
        self.close()

    @property
    def url(self) -> str:
        """Return the server's URL: `http://127.0.0.1:8000/`."""
        host, port = self.socket.getsockname()
        return f"http://{host}:{port}/"


class Handler(http.server.BaseHTTPRequestHandler):
    """Handle one request of one client. `policy` is the Content-Security-Policy of all answers."""

    server: Server
    timeout = SLOWEST_SECONDS
    server_version, sys_version = "t5prep", ""
    policy = "default-src 'none'"

    def do_GET(self) -> None:
        """Answer by `get`, or with 403 if a page of another site sent the request."""
        self.server.received(self.connection)
        if refusal := self.refusal():
            self.send(HTTPStatus.FORBIDDEN, json.dumps({"error": refusal}).encode(), kind="application/json")
        else:
            self.get()

    def get(self) -> None:
        """Answer the request; `path` is its path with the query. A subclass defines this."""
        raise NotImplementedError

    def refusal(self) -> str:
        """Return the reason to refuse a request that a page of another site sent, else ""."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host and not self.server.is_here(host):
            return "This host name is not that of the server. Use the address of the server."
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return "Requests from pages of other sites are refused."
        return ""

    def send(self, status: HTTPStatus, content: bytes, *, kind: str) -> None:
        """Answer with `content`, text in UTF-8 of the media type `kind`, such as `text/html`."""
        self.send_start(status, kind=kind, length=len(content))
        self.wfile.write(content)

    def send_start(self, status: HTTPStatus, *, kind: str, length: int | None = None) -> None:
        """Send the headers of an answer of `length` bytes; without a length, it ends with the connection."""
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("Content-Security-Policy", self.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: requests of clients are private."""
