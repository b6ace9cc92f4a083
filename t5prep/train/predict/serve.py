"""Serve a model over HTTP: JSON in, JSON out, and a page to type into. Standard library only.

GET  /          the page
GET  /health    {"ready": true, ...}
POST /predict   {"inputs": ["text", ...]}, used unchanged, or {"rows": [{column: value}, ...]} through the run's task
                → {"predictions": [{"id", "input", "prediction", ...}, ...]}, as `t5prep predict --json` gives them"""

import collections
import concurrent.futures
import importlib.resources
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from t5prep.io import signals, web_server
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
            questions = [question for asked, _ in some for question in asked]
            try:
                answers = iter(self._answer(questions))
                for asked, future in some:
                    future.set_result([next(answers) for _ in asked])
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
# The page loads nothing from other servers and sends only to its own.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


class RefusedError(Exception):
    """The status and the message for a request that is refused."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Server(web_server.Server):
    """Serve one model at an address until `close`. Raises UsageError if the address is not available.

    `asking` says how rows become inputs; `name` is the model's name for clients, never a path. `hosts` are further names
    of this server.
    """

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
        self.asking, self.name, self.scores = asking, name, predictor.generation.scores
        super().__init__(address, _Handler, hosts=hosts)
        self.queue = AnswerQueue(predictor.answer, batch=predictor.rows, most=queue)

    def close(self) -> None:
        """Answer the open requests, and free the address."""
        self.shutdown()
        self.queue.close()
        self.server_close()


class _Handler(web_server.Handler):
    """Handle one request of one client."""

    server: Server
    policy = _POLICY
    advice = "ask it by its address, or start it with --allow-host NAME"

    def get(self) -> None:
        """Answer with the page, or with whether the model is ready."""
        if self.path == "/":
            self.send(HTTPStatus.OK, page(self.server.asking, name=self.server.name), kind="text/html")
        elif self.path == "/health":
            self.send_json(HTTPStatus.OK, {"ready": True, "model": self.server.name, "task": self.server.asking.name})
        else:
            self.send_json(HTTPStatus.NOT_FOUND, {"error": "There is / (a page), /health, and POST /predict."})

    def do_POST(self) -> None:  # noqa: N802 - the name is http.server's
        """Answer questions."""
        try:
            if self.path != "/predict":
                raise RefusedError(HTTPStatus.NOT_FOUND, "Questions are sent to /predict.")
            if refusal := self.refusal():
                raise RefusedError(HTTPStatus.FORBIDDEN, refusal)
            answers = self.server.queue.ask(questions_of(self._body(), asking=self.server.asking))
            document = {"predictions": [as_dict(one, scores=self.server.scores) for one in answers]}
            self.send_json(HTTPStatus.OK, document)
        except RefusedError as refused:
            self.send_json(refused.status, {"error": str(refused)})
        except FullError:
            self.send_json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "Too many ask at once. Ask again in a second."})
        except OSError:
            raise
        except Exception as error:  # an error in this program or a device: the client gets no details
            print(f"A request failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self.send_json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "The model could not answer this."})

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
