"""End the servers that Beam starts for pipelines."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def ended(runner: Any) -> Iterator[None]:
    """End every job server that this Beam runner starts meanwhile, whatever becomes of its pipelines.

    Beam keeps each, a Java process of hundreds of megabytes, until this process ends, and ends them then one after the
    other: a process that is given only some seconds for its end leaves those behind that it did not come to.
    """
    start, before, servers = runner.default_job_server, signal.getsignal(signal.SIGINT), list[Any]()

    def remember(options: Any) -> Any:
        servers.append(start(options))
        return servers[-1]

    runner.default_job_server = remember
    try:
        yield
    finally:
        # Beam's handler of Ctrl-C waits for a lock that is held while its server is ended.
        if before is not None and getattr(signal.getsignal(signal.SIGINT), "__self__", None) in servers:
            signal.signal(signal.SIGINT, before)
        for server in servers:
            with contextlib.suppress(OSError):  # its temporary folder is gone
                server.stop()
