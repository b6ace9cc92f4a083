"""A server of pages ends when it is told to, whoever is connected, and obeys how it was started."""

import signal
import socket
import subprocess
import sys
import time

import pytest

SERVES = """
from t5prep.io import web_server

class Page(web_server.Handler):
    def get(self):
        self.send(200, b"here", kind="text/plain")

server = web_server.Server(("127.0.0.1", 0), Page)
print(server.server_address[1], flush=True)
server.until_stopped()
"""
IGNORES = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"


def started(*, ignores: bool = False) -> tuple[subprocess.Popen, int]:
    command = [sys.executable, "-c", SERVES]
    command = [sys.executable, "-c", IGNORES, *command] if ignores else command
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, int(process.stdout.readline())


def answer(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(1000), b""))


@pytest.mark.parametrize("request_so_far", [b"", b"GET / HTTP/1.0\r\nHo"])
def test_idle_clients_do_not_keep_it(request_so_far: bytes) -> None:
    process, port = started()
    with socket.create_connection(("127.0.0.1", port)) as idle:
        idle.sendall(request_so_far)
        assert answer(port).endswith(b"here")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(25) == 0
        assert time.monotonic() - began < 20, "it waits for a client that says nothing"


def test_a_second_signal_ends_it_while_an_answer_is_not_taken() -> None:
    never_taken = SERVES.replace('b"here"', "bytes(1 << 28)")
    process = subprocess.Popen([sys.executable, "-c", never_taken], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    port = int(process.stdout.readline())
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.recv(1)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 1


def test_an_inherited_ignored_interrupt_is_obeyed() -> None:
    process, port = started(ignores=True)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert answer(port).endswith(b"here")
    process.terminate()
    assert process.wait(20) == 0
