"""The servers that Beam starts for Flink are ended with the run, not when this process ends."""

import signal
from typing import Any

import pytest

from pipelines import engines


class Server:
    """As Beam's: it takes Ctrl-C over when it is started."""

    def __init__(self) -> None:
        self.stopped = 0

    def start(self) -> None:
        signal.signal(signal.SIGINT, self.handler)

    def handler(self, number: int, frame: Any) -> None:
        self.stop()

    def stop(self) -> None:
        self.stopped += 1
        assert signal.getsignal(signal.SIGINT) != self.handler, "it would wait for itself"


class Runner:
    def __init__(self) -> None:
        self.made: list[Server] = []

    def default_job_server(self, options: Any) -> Server:
        self.made.append(Server())
        return self.made[-1]

    def run(self) -> None:
        self.default_job_server(None).start()


def test_every_server_is_ended_and_ctrl_c_is_what_it_was() -> None:
    previous_handler, runner = signal.getsignal(signal.SIGINT), Runner()
    with engines.servers_ended(runner):
        runner.run()
        runner.run()
    assert [server.stopped for server in runner.made] == [1, 1]
    assert signal.getsignal(signal.SIGINT) == previous_handler


def test_servers_of_a_run_that_fails_are_ended_too() -> None:
    def fails(runner: Runner) -> None:
        with engines.servers_ended(runner):
            runner.run()
            raise ZeroDivisionError

    runner = Runner()
    with pytest.raises(ZeroDivisionError):
        fails(runner)
    assert runner.made[0].stopped == 1


def test_a_handler_that_was_set_meanwhile_stays() -> None:
    """The command line sets another one after the first Ctrl-C."""
    previous_handler, runner = signal.getsignal(signal.SIGINT), Runner()
    try:
        with engines.servers_ended(runner):
            runner.run()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def test_a_server_whose_folder_is_gone_does_not_hide_what_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_not_found(self: Server) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(Server, "stop", raise_not_found)
    runner = Runner()
    with engines.servers_ended(runner):
        runner.run()
