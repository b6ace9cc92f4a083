"""Keep what Beam's workers and threads print while they are ended from the user: a run that succeeded looks like one.

What goes wrong in a worker reaches this process as an error; it is not read from what the worker prints.
"""

import contextlib
import os
import shlex
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def started_quietly() -> Iterator[None]:
    """Let Beam meanwhile find a `python` that is this one and prints nothing on stderr: it starts workers by that name.

    A worker of Flink prints a traceback of twenty lines when the engine closes its connection at the end of a run. What
    this process starts later finds the `python` that it found before.
    """
    before = os.environ.get("PATH")
    with tempfile.TemporaryDirectory(prefix="t5prep-python-") as folder:
        script = Path(folder) / "python"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@" 2>/dev/null\n')
        script.chmod(0o755)
        os.environ["PATH"] = os.pathsep.join([folder, *([before] if before else [])])
        try:
            yield
        finally:
            if before is None:
                del os.environ["PATH"]
            else:
                os.environ["PATH"] = before


def ignore_closed_connections() -> None:
    """Let threads of Beam end without a traceback where the engine has closed the connection that they read from."""
    before = threading.excepthook
    if getattr(before, "ignores_closed_connections", False):
        return

    def hook(args: Any) -> None:
        import grpc

        if not isinstance(args.exc_value, grpc.RpcError):
            before(args)

    hook.ignores_closed_connections = True  # type: ignore[attr-defined]
    threading.excepthook = hook
