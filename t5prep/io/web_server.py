"""Serve HTTP from the standard library: who may ask, how many at once, and for how long. What is answered is said elsewhere."""

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

CONNECTIONS = 256  # most open connections; further clients are told to try again
SLOWEST_SECONDS = 30  # a client that has not sent its whole request after this time is disconnected


class Server(http.server.ThreadingHTTPServer):
    """Serve at an address until `close`. Raises UsageError if the address is not available.

    A request names this server by an IP address, as localhost or by the machine's name: under another name, a page of
    another site could ask here (DNS rebinding).
    """

    daemon_threads = False  # so that closing waits for unfinished answers
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: "type[Handler]") -> None:
        self._hosts = {host.lower() for host in ("localhost", address[0], socket.gethostname())}
        self._deadlines: dict[socket.socket, float] = {}
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        try:
            super().__init__(address, handler)
        except OSError as error:
            endpoint = f"{address[0]}:{address[1]}"
            raise UsageError(
                f"{endpoint} cannot be served ({error.strerror or error}). Choose another --port."
            ) from error

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, or close it if there are too many."""
        if self._free.acquire(blocking=False):
            self._deadlines[request] = time.monotonic() + SLOWEST_SECONDS
            super().process_request(request, client_address)
        else:
            request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n")
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, then allow another one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.received(request)
            self._free.release()

    def received(self, request: socket.socket) -> None:
        """Note that the whole request is here: what it waits for now is the answer."""
        self._deadlines.pop(request, None)

    def service_actions(self) -> None:
        """Disconnect clients whose request is not here in time, also those that send a byte now and then."""
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
        """Answer the requests that are here, disconnect clients that have not sent theirs, and free the address."""
        self.shutdown()
        self.disconnect_idle()
        self.server_close()

    def disconnect_idle(self) -> None:
        """Disconnect the clients that have not sent their whole request."""
        for request in list(self._deadlines):
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RD)  # an answer that is begun meanwhile is still sent

    def until_stopped(self) -> None:
        """Serve until Ctrl-C or SIGTERM, then close; a second one ends the process at once."""
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
        """Return the address as a browser takes it."""
        host, port = self.socket.getsockname()
        return f"http://{host}:{port}/"


class Handler(http.server.BaseHTTPRequestHandler):
    """Handle one request of one client. `policy` is what a page may load, send and be framed by."""

    server: Server
    timeout = SLOWEST_SECONDS
    server_version, sys_version = "t5prep", ""
    policy = "default-src 'none'"

    def do_GET(self) -> None:
        """Answer with a page, unless a page of another site asks."""
        self.server.received(self.connection)
        if refusal := self.refusal():
            self.send(HTTPStatus.FORBIDDEN, json.dumps({"error": refusal}).encode(), kind="application/json")
        else:
            self.get()

    def get(self) -> None:
        """Answer a request for `path`."""
        raise NotImplementedError

    def refusal(self) -> str:
        """Return why a request is refused that a page of another site sent; "" for one of this server's page, or none."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host and not self.server.is_here(host):
            return "This server has another name: ask it by its address."
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return "Pages of other sites may not ask here."
        return ""

    def send(self, status: HTTPStatus, content: bytes, *, kind: str) -> None:
        """Answer with text of a kind, in UTF-8."""
        self.send_start(status, kind=kind, length=len(content))
        self.wfile.write(content)

    def send_start(self, status: HTTPStatus, *, kind: str, length: int | None = None) -> None:
        """Answer with headers alone; without a length, what is written from then on is the answer until the connection ends."""
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("Content-Security-Policy", self.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: requests of clients are private."""
