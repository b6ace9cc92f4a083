"""Processes of t5prep that begin with everything imported: importing TensorFlow and jax takes longer than what most tests do there.

One server imports them and forks for each command or piece of code, before any device is opened. A test whose subject is the
start itself starts Python.
"""

import atexit
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

TESTS_FOLDER = Path(__file__).parent
MODULES = (
    "lowered_programs",
    *("t5prep.cli.train_command", "t5prep.cli.predict_commands", "t5prep.cli.embed_command", "t5prep.training.trainer"),
    *("t5prep.training.predict.predictions", "t5prep.training.embed.vectors", "jax.experimental.multihost_utils"),
)


class Process:
    """A forked process, with the methods of a `subprocess.Popen` whose output is read afterwards."""

    def __init__(self, request: Mapping[str, Any], environment: Mapping[str, str] | None) -> None:
        self._stdout, self._stderr = tempfile.NamedTemporaryFile(), tempfile.NamedTemporaryFile()  # noqa: SIM115
        outputs = [self._stdout.name, self._stderr.name]
        environment = dict(os.environ if environment is None else environment)
        self.pid: int = _ask({**request, "environment": environment, "outputs": outputs, "folder": os.getcwd()})
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        if self.returncode is None:
            self.returncode = _ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float = 600) -> int:
        """Wait for the end, and return the exit code. Raises TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to a process that still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 600) -> tuple[bytes, bytes]:
        """Wait for the end, and return stdout and stderr."""
        self.wait(timeout)
        return self._read(self._stdout), self._read(self._stderr)

    def wait_for_line(self, line: bytes, timeout: float = 600) -> None:
        """Wait until stdout has a line. Raises TimeoutExpired, and AssertionError if the process ends without it."""
        deadline = time.monotonic() + timeout
        while line not in self._read(self._stdout).splitlines():
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            assert self.poll() is None, self._read(self._stderr).decode(errors="replace")
            time.sleep(0.01)

    @staticmethod
    def _read(file: IO[bytes]) -> bytes:
        return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def start_command(*arguments: str, environment: Mapping[str, str] | None = None) -> Process:
    """Start a command of t5prep, as `python -m t5prep.cli` does."""
    return Process({"arguments": arguments}, environment)


def start_code(code: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
    """Start code whose `sys.argv` has the arguments, as `python -c` does."""
    return Process({"code": code, "arguments": arguments}, environment)


def _ask(request: Mapping[str, Any]) -> Any:
    server = _server()
    assert server.stdin
    assert server.stdout
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the process that forks; it ends with this one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TESTS_FOLDER, TESTS_FOLDER.parent)))}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = subprocess.Popen([sys.executable, __file__], **pipes, env=environment, text=True)
    atexit.register(server.kill)
    return server


def _serve() -> dict[str, Any] | None:
    """Fork for each request of the standard input. Returns in each child its request, and at last None."""
    for module in MODULES:
        importlib.import_module(module)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        answer: int | None = None
        if process := request.get("poll"):
            finished, status = os.waitpid(process, os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if finished else None
        elif (answer := os.fork()) == 0:
            return request
        print(json.dumps(answer), file=answers, flush=True)
    return None


def _become(request: dict[str, Any]) -> None:
    """Run a request's command or code in this forked process, which then ends as any other does."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, path in enumerate(request["outputs"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["-c", *request["arguments"]]
    importlib.import_module("lowered_programs").use_those_of_the_tests()
    if "code" in request:
        exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
        return
    from t5prep import cli

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as the command begins
    cli.main(request["arguments"])


if __name__ == "__main__":
    if forked_request := _serve():
        _become(forked_request)
