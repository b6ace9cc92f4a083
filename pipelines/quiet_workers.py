"""Keep what Beam's workers and threads print while they are ended from the user: a run that succeeded looks like one.

What goes wrong in a worker reaches this process as an error; it is not read from what the worker prints.
"""

import atexit
import functools
import os
import shlex
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any


@functools.cache
def python_folder() -> str:
    """Return a folder with a `python` that is this one and prints nothing on stderr. Beam starts workers by that name.

    A worker of Flink prints a traceback of twenty lines when the engine closes its connection at the end of a run.
    """
    folder = tempfile.mkdtemp(prefix="t5prep-python-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = Path(folder) / "python"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@" 2>/dev/null\n')
    script.chmod(0o755)
    return folder


def start_workers_quietly() -> None:
    """Let Beam find that `python` first."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    if python_folder() not in folders:
        os.environ["PATH"] = os.pathsep.join([python_folder(), *folders])


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
