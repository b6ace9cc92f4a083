"""Serve a model over HTTP: JSON in, JSON out, and a page to type into. Standard library only.

GET  /          the page
GET  /health    {"ready": true, ...}
POST /predict   {"inputs": ["text", ...]}, used unchanged, or {"rows": [{column: value}, ...]} through the run's task
                → {"predictions": [{"id", "input", "prediction", ...}, ...]}, as `t5prep predict --json` gives them"""

import collections
import concurrent.futures
import contextlib
import http.server
import importlib.resources
import ipaddress
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from t5prep.io import signals
from t5prep.reading.rows import Record
from t5prep.train.predict.files import as_dict
from t5prep.train.predict.predictor import Answer, Predictor
from t5prep.train.predict.rows import INPUT, Asking, Question, as_they_stand

# Seconds to wait for other clients to share a batch with. It is too short for a person to notice.
PATIENCE_SECONDS = 0.005

_Waiting = tuple[Sequence[Question], "concurrent.futures.Future[list[Answer]]"]


class FullError(Exception):
    """Say that the queue holds as many questions as it may, so that the client should try again later."""


class AnswerQueue:
    """Answer questions in the order in which they come, at most `batch` of several clients together.

    At most `most` questions wait; further ones are refused (FullError), so memory and waiting time stay bounded.
    """

    def __init__(self, answer: Callable[[Sequence[Question]], list[Answer]], *, batch: int, most: int) -> None:
        self._answer, self._batch, self._most = answer, batch, most
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._count, self._closed = 0, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="answers")
        with signals.kept_from_new_threads():
            self._thread.start()

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the answers to these questions, in order; wait until it is their turn. Raises FullError."""
        future: concurrent.futures.Future[list[Answer]] = concurrent.futures.Future()
        with self._changed:
            if self._closed or (self._count and self._count + len(questions) > self._most):
                raise FullError
            self._waiting.append((questions, future))
            self._count += len(questions)
            self._changed.notify()
        return future.result()

    def close(self) -> None:
        """Answer the waiting questions, accept no new ones, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while some := self._together():
            questions = [question for own, _ in some for question in own]
            try:
                answers = iter(self._answer(questions))
                for own, future in some:
                    future.set_result([next(answers) for _ in own])
            except Exception as error:  # an error of the device goes to these clients; others are still served
                for _, future in some:
                    if not future.done():
                        future.set_exception(error)

    def _together(self) -> list[_Waiting]:
        """Return the clients to answer next, a short time after the first one came; none when the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            ready = time.monotonic() + PATIENCE_SECONDS
            while self._waiting and self._count < self._batch and not self._closed and time.monotonic() < ready:
                self._changed.wait(PATIENCE_SECONDS)
            some: list[_Waiting] = []
            held = 0
            while self._waiting and (not some or held + len(self._waiting[0][0]) <= self._batch):
                some.append(self._waiting.popleft())
                held += len(some[-1][0])
            self._count -= held
            return some


BODY_BYTES = 1 << 20
ROWS = 256  # most rows of one request
CONNECTIONS = 256  # most open connections; further clients are told to try again
SLOWEST_SECONDS = 30  # a client that has not sent its whole request after this time is disconnected
# The page loads nothing from other servers and sends only to its own.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


class RefusedError(Exception):
    """The status and the message for a request that is refused."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Server(http.server.ThreadingHTTPServer):
    """Serve one model at an address until `close`. Raises OSError if the address is not available.

    `asking` says how rows become inputs; `name` is the model's name for clients, never a path. A request names this
    server by an IP address, as localhost, by the machine's name or by one of `hosts`: under another name, a page of
    another site could ask here (DNS rebinding).
    """

    daemon_threads = False  # so that closing waits for unfinished answers
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        predictor: Predictor,
        *,
        asking: Asking,
        name: str,
        queue: int = 512,
        hosts: Sequence[str] = (),
    ) -> None:
        self._hosts = {host.lower() for host in ("localhost", address[0], socket.gethostname(), *hosts)}
        self._deadlines: dict[socket.socket, float] = {}
        self.asking, self.name, self.scores = asking, name, predictor.generation.scores
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, _Handler)
        self.queue = AnswerQueue(predictor.answer, batch=predictor.rows, most=queue)

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
        """Answer the open requests, and free the address."""
        self.shutdown()
        self.queue.close()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Handle one request of one client."""

    server: Server
    timeout = SLOWEST_SECONDS
    server_version, sys_version = "t5prep", ""

    def do_GET(self) -> None:
        """Answer with the page, or with whether the model is ready."""
        self.server.received(self.connection)
        if refusal := self._refusal():
            self._send_json(HTTPStatus.FORBIDDEN, {"error": refusal})
        elif self.path == "/":
            self._send(HTTPStatus.OK, page(self.server.asking, name=self.server.name), kind="text/html")
        elif self.path == "/health":
            self._send_json(HTTPStatus.OK, {"ready": True, "model": self.server.name, "task": self.server.asking.name})
        else:
            self._send_json(HTTPStatus.NOT_FOUND, {"error": "There is / (a page), /health, and POST /predict."})

    def do_POST(self) -> None:
        """Answer questions."""
        try:
            if self.path != "/predict":
                raise RefusedError(HTTPStatus.NOT_FOUND, "Questions are sent to /predict.")
            if refusal := self._refusal():
                raise RefusedError(HTTPStatus.FORBIDDEN, refusal)
            answers = self.server.queue.ask(questions_of(self._body(), asking=self.server.asking))
            document = {"predictions": [as_dict(one, scores=self.server.scores) for one in answers]}
            self._send_json(HTTPStatus.OK, document)
        except RefusedError as refused:
            self._send_json(refused.status, {"error": str(refused)})
        except FullError:
            self._send_json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "Too many ask at once. Ask again in a second."})
        except OSError:
            raise
        except Exception as error:  # an error in this program or a device: the client gets no details
            print(f"A request failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self._send_json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "The model could not answer this."})

    def _refusal(self) -> str:
        """Return why a request is refused that a page of another site sent; "" for one of this server's page, or none."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host and not self.server.is_here(host):
            return "This server has another name: ask it by its address, or start it with --allow-host NAME."
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return "Pages of other sites may not ask here."
        return ""

    def _body(self) -> Any:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "A request needs a Content-Length.") from None
        if not 0 <= length <= BODY_BYTES:
            raise RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request has at most {BODY_BYTES:,} bytes; send several."
            )
        try:
            body = self.rfile.read(length)
            self.server.received(self.connection)
            return json.loads(body)
        except (ValueError, RecursionError):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "The request is not JSON.") from None

    def _send_json(self, status: HTTPStatus, value: Any) -> None:
        self._send(
            status, json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace"), kind="application/json"
        )

    def _send(self, status: HTTPStatus, content: bytes, *, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: requests of clients are private."""


def questions_of(document: Any, *, asking: Asking) -> list[Question]:
    """Return the questions of a request's JSON. Raises RefusedError if it has none, too many, or no text."""
    example = '{"inputs": ["text", ...]} or {"rows": [{"column": "value"}, ...]}'
    given = document.get("rows", document.get("inputs")) if isinstance(document, dict) else None
    if not isinstance(given, list) or not given:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"A request is {example}.")
    if len(given) > ROWS:
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request has at most {ROWS} rows; send several.")
    by_row = "rows" in document
    if not all(isinstance(one, dict if by_row else str | list) for one in given):
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"A request is {example}.")
    try:
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "The text has half of a surrogate pair in it.") from None
    how = asking if by_row else as_they_stand()
    records: list[Record] = given if by_row else [{INPUT: one} for one in given]
    return [how.question(record, place=str(number)) for number, record in enumerate(records, 1)]


def page(asking: Asking, *, name: str) -> bytes:
    """Return the page to type into, with a field for each column that the task needs."""
    facts = {"name": name, "task": asking.name, "fields": asking.fields}
    template = importlib.resources.files("t5prep.train.predict").joinpath("serve.html").read_text(encoding="utf-8")
    return template.replace("FACTS", json.dumps(facts).replace("<", "\\u003c")).encode()


def address_of(server: socket.socket | Server) -> str:
    """Return the address as a URL for a browser."""
    host, port = (server.socket if isinstance(server, Server) else server).getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
