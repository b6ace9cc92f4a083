"""Serve a model over HTTP: JSON in, JSON out, and a page to type into. Standard library only.

GET  /          the page
GET  /health    {"ready": true, ...}
POST /predict   {"inputs": ["text", ...]}, used unchanged, or {"rows": [{column: value}, ...]} through the run's task
                → {"predictions": [{"id", "input", "prediction", ...}, ...]}, as `t5prep predict --json` gives them
"""

import http.server
import importlib.resources
import json
import socket
import sys
import threading
from http import HTTPStatus
from typing import Any

from t5prep.reading.rows import Record
from t5prep.train.answer_queue import AnswerQueue, FullError
from t5prep.train.predict import Predictor
from t5prep.train.predict_formats import as_dict
from t5prep.train.rows_to_predict import INPUT, Asking, Question, as_they_stand

BODY_BYTES = 1 << 20
ROWS = 256  # most rows of one request
CONNECTIONS = 256  # most open connections; further clients are told to try again
SLOWEST_SECONDS = 30  # a client that sends nothing for this long is disconnected
# The page loads nothing from other servers and sends only to its own.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


class RefusedError(Exception):
    """Hold the status and the message for a request that is refused."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Server(http.server.ThreadingHTTPServer):
    """Serve one model at an address until `close`. Raises OSError where the address is not available.

    `asking` says how rows become inputs; `name` is the model's name for clients, never a path.
    """

    daemon_threads = False  # so that closing waits for unfinished answers
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], predictor: Predictor, *, asking: Asking, name: str, queue: int = 512
    ) -> None:
        self.asking, self.name, self.scores = asking, name, predictor.generation.scores
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, _Handler)
        self.queue = AnswerQueue(predictor.answer, batch=predictor.rows, most=queue)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, or close it where there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n")
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, then allow another one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing where a client disconnected or does not speak HTTP."""

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
        if self.path == "/":
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
            return json.loads(self.rfile.read(length))
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
    """Return the questions of a request's JSON. Raises RefusedError where it has none, too many, or no text."""
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
    template = importlib.resources.files("t5prep.train").joinpath("serve.html").read_text(encoding="utf-8")
    return template.replace("FACTS", json.dumps(facts).replace("<", "\\u003c")).encode()


def address_of(server: socket.socket | Server) -> str:
    """Return the address as a URL for a browser."""
    host, port = (server.socket if isinstance(server, Server) else server).getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
