"""A stand-in for the Dataflow service: takes a job as DataflowRunner submits it, and may do the job itself.

What is real here: the runner, its staging, the request, the staged package and pipeline. What is not: Google's machines.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Dataflow:
    """`request` is the body of the one job that came, `job` the same decoded; `work` is called with it once."""

    def __init__(self, work: Callable[[dict[str, Any]], None]) -> None:
        self.request, self.job, self.state = b"", {}, "JOB_STATE_PENDING"
        self._work = work
        handler = type("Handler", (_Handler,), {"service": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def arguments(self) -> list[str]:
        """Beam options that submit to it."""
        return [
            f"--dataflow_endpoint=http://localhost:{self.server.server_address[1]}",
            "--no_auth",
            "--project=a-project",
            "--region=us-central1",
        ]

    def submit(self, body: bytes) -> dict[str, Any]:
        self.request, self.job = body, json.loads(body)
        self.state = "JOB_STATE_RUNNING"
        threading.Thread(target=self._run, daemon=True).start()
        return self.describe()

    def describe(self) -> dict[str, Any]:
        about = {key: self.job[key] for key in ("name", "clientRequestId", "type") if key in self.job}
        return {**about, "id": "2026-job", "currentState": self.state}

    def _run(self) -> None:
        try:
            self._work(self.job)
            self.state = "JOB_STATE_DONE"
        except KeyboardInterrupt:  # a test's way to fail a job
            self.state = "JOB_STATE_FAILED"
        except BaseException:
            self.state = "JOB_STATE_FAILED"
            raise


# What the service says of a job that failed; without it the runner waits for such a message for most of a minute.
FAILED = "Workflow failed. Causes: a test let it fail."
_ERROR = {"time": "2026-01-01T00:00:00Z", "messageImportance": "JOB_MESSAGE_ERROR", "messageText": FAILED}


class _Handler(BaseHTTPRequestHandler):
    service: Dataflow

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self.service.submit(body))

    def do_GET(self) -> None:
        match = re.search(r"/(messages|metrics)(\?|$)", self.path)
        failed = match and match[1] == "messages" and self.service.state == "JOB_STATE_FAILED"
        of_messages = {"jobMessages": [{"id": "1", **_ERROR}]} if failed else {}
        self._answer(of_messages if match else self.service.describe())

    def _answer(self, payload: Any) -> None:
        data = json.dumps(payload).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def dataflow(work: Callable[[dict[str, Any]], None]) -> Iterator[Dataflow]:
    """The service, up."""
    service = Dataflow(work)
    yield service
    service.server.shutdown()
    service.server.server_close()
