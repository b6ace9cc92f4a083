"""Collect the questions of many clients into batches, which one thread that owns the model answers."""

import collections
import concurrent.futures
import threading
import time
from collections.abc import Callable, Sequence

from t5prep.train.predict import Answer
from t5prep.train.rows_to_predict import Question

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
