"""The server of pages: which names a request may use for it, and how long a request may take."""

import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from t5prep.io import web_server


class _Handler(web_server.Handler):
    def get(self) -> None:
        self.send(HTTPStatus.OK, b"here", kind="text/plain")


@pytest.fixture
def server() -> Iterator[web_server.Server]:
    server = web_server.Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.close()
    thread.join(timeout=300)
    assert not thread.is_alive()


def answer(server: web_server.Server, request: bytes) -> bytes:
    """Return the bytes that the server answers to a request."""
    with socket.create_connection(server.server_address[:2], timeout=300) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(4096), b""))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: 127.0.0.1:8000", b"200"),
        ("Host: localhost", b"200"),
        ("Host: [::1]:80", b"200"),
        ("Host: evil.example", b"403"),
        ("Host: localhost:80\r\nOrigin: http://localhost:80", b"200"),
        ("Host: localhost:80\r\nOrigin: http://evil.example", b"403"),
        ("Host: localhost:80\r\nOrigin: http://localhost:81", b"403"),
        ("Host: localhost:80\r\nOrigin: null", b"403"),
    ],
)
def test_pages_of_other_sites_are_refused(server: web_server.Server, headers: str, status: bytes) -> None:
    assert answer(server, f"GET / HTTP/1.0\r\n{headers}\r\n\r\n".encode()).split()[1] == status


def test_a_slow_request_is_ended_at_its_deadline(server: web_server.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time; the whole request does not."""
    monkeypatch.setattr(web_server, "SLOWEST_SECONDS", 0.3)  # set before the server accepts: the time begins there
    with socket.create_connection(server.server_address[:2], timeout=300) as client:
        client.sendall(b"GET / HTTP/1.0\r\nHost: ")
        is_closed = False
        for _ in range(6000):
            try:
                client.sendall(b"a")
            except OSError:
                is_closed = True
                break
            threading.Event().wait(0.05)
    monkeypatch.undo()
    assert is_closed
    assert answer(server, b"GET / HTTP/1.0\r\n\r\n").split()[1] == b"200"
