"""Watch whether the other hosts of a run are alive: each holds a connection to the first, which closes if it ends.

The data that devices exchange cannot tell: a TPU waits for ever for a host that is gone. The network's own keep-alive
detects a machine that lost its power.
"""

import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

BYE = b"."
_PORT_WORDS, _SECONDS = 6, 60.0
_KEEP_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
SENTENCE = (
    "Error: a host of this run has ended. What was saved is there: start the same command on all hosts, and it goes on "
    "from the last checkpoint."
)

Ended = Callable[[], None]


class Pulse:
    """Hold connections to the other hosts; call `ended` once, when one closes before `leave` was called there."""

    def __init__(self, connections: list[socket.socket], ended: Ended) -> None:
        self._connections, self._ended = connections, ended
        self._left = False
        for connection in connections:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEP_ALIVE:
                if hasattr(socket, name):
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def leave(self) -> None:
        """Tell the other hosts that this one ends normally."""
        self._left = True
        for connection in self._connections:
            try:
                connection.sendall(BYE)
            except OSError:
                continue

    def _listen(self, connection: socket.socket) -> None:
        try:
            heard = connection.recv(1)
        except OSError:
            heard = b""
        if heard != BYE and not self._left:
            self._left = True
            self._ended()


def begin(*, number: int, count: int, tell: Callable[[Any], Any], ended: Ended | None = None) -> Pulse:
    """Return the pulse of host `number` of `count`, connected.

    `tell`: a function that all hosts call with 6 numbers, and that returns the first host's numbers on all hosts.
    Raises OSError where the first host cannot be reached.
    """
    ended = ended or _end
    if number == 0:
        with socket.create_server(("", 0), backlog=count) as server:
            server.settimeout(_SECONDS)
            address = [int(part) for part in _own_address().split(".")]
            tell([*address, *divmod(server.getsockname()[1], 256)])
            return Pulse([server.accept()[0] for _ in range(count - 1)], ended)
    told = [int(part) for part in tell([0] * _PORT_WORDS)]
    host, port = ".".join(map(str, told[:4])), told[4] * 256 + told[5]
    return Pulse([socket.create_connection((host, port), timeout=_SECONDS)], ended)


def _own_address() -> str:
    """Return the address by which other machines reach this one; no data is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation (RFC 5737)
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _end() -> None:
    """End this process with a message: its main thread may wait for devices that will not answer."""
    print(SENTENCE, file=sys.stderr, flush=True)
    os._exit(1)
