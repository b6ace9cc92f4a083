"""Damage files at random places, run a command line, and say what of its end no person should see."""

import contextlib
import hashlib
import os
import random
import re
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from t5prep.cli import main

MOST_LINES = 3
# Lines on stderr that tell how far a command is, and what it does: progress, which may have any length.
PROGRESS = re.compile(
    r"step [0-9,]+( of |/)|[0-9,]+ steps|Going on with|Checkpoints take|The step is compiled|[0-9,]+ parameters|"
    r"step [0-9,]+ evaluated|.* of [0-9.,]+ [kMG]?B|\s*$|Trying |Usage: |Try 't5prep"
)
# What libraries print for their own programmers.
NOISE = re.compile(
    r"Traceback \(most recent call last\)|[A-Za-z]*Warning: |^[WEIF]0000 |^WARNING:|absl|libtpu|resource_tracker|^  File \"",
    re.MULTILINE,
)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return the same file with something wrong somewhere."""
    if not content:
        return b"\0"
    place = draw.randrange(len(content))
    other = bytearray(content)
    match draw.randrange(8):
        case 0:
            other[place] ^= 1 << draw.randrange(8)
        case 1:
            other = other[:place]
        case 2:
            other[place : place + draw.randrange(1, 64)] = b""
        case 3:
            other[place:place] = draw.randbytes(draw.randrange(1, 64))
        case 4:
            other[place : place + 32] = bytes(32)
        case 5:
            other += other[place:]
        case 6:
            other = bytearray()
        case _:
            own, size = draw.randrange(len(content)), draw.randrange(1, 200)
            other[place : place + size] = content[own : own + size]
    return bytes(other)


def damage(folder: Path, draw: random.Random) -> str:
    """Damage, remove, or replace by a folder one file of a folder (or the file itself), and return which and how."""
    files = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.is_file())
    path = draw.choice(files)
    before = path.read_bytes()
    path.unlink()
    chance = draw.random()
    if chance < 0.05:
        return f"{path.name} is gone"
    if chance < 0.08:
        path.mkdir()
        return f"{path.name} is a folder"
    path.write_bytes(damaged(before, draw))
    return f"{path.name} is damaged"


def content(folder: Path) -> dict[str, str]:
    """Return a digest of each file under a folder by its path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def fault(line: list[str]) -> str:
    """Return what went wrong with a command line that no person should see; "" when all is well."""
    with _descriptor(2) as noise:
        result = CliRunner().invoke(main, line, input="a line\n{}\n")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return "".join(traceback.format_exception(result.exception))
    if result.exit_code not in (0, 1, 2):
        return f"exit code {result.exit_code}"
    if result.exit_code and not result.output.strip():
        return "it fails and says nothing"
    lines = [line for line in result.stderr.split("\n") if not PROGRESS.match(line)]
    if len(lines) > MOST_LINES and result.exit_code:
        return f"{len(lines)} lines on stderr:\n{result.stderr}"
    printed = result.stderr + "".join(noise)
    return f"noise:\n{printed}" if NOISE.search(printed) or "".join(noise).strip() else ""


@contextlib.contextmanager
def _descriptor(number: int) -> Iterator[list[str]]:
    """Collect what is written to a file descriptor: libraries in C do not know Python's streams."""
    written: list[str] = []
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(number)
        os.dup2(file.fileno(), number)
        try:
            yield written
        finally:
            os.dup2(kept, number)
            os.close(kept)
            file.seek(0)
            written.append(file.read().decode(errors="replace"))


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Refuse the network, workers, the TPU compiler and waiting; keep the cache in a folder; stop servers at once."""
    from pipelines import prepare
    from t5prep.cli import _checks
    from t5prep.errors import UsageError
    from t5prep.plan import compiled
    from t5prep.sources import http

    def refuse(*_: object, **__: object) -> None:
        raise OSError(101, "Network is unreachable")

    def stop(*_: object, **__: object) -> None:
        raise UsageError("here the compiler would start")

    @contextlib.contextmanager
    def nobody(*_: Any, **__: Any) -> Iterator[str]:
        yield ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "create_connection", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        patch.setattr(time, "sleep", lambda seconds: None)
        patch.setattr(http, "_sleep", lambda seconds: None)
        patch.setattr(prepare, "_pool", nobody)
        patch.setattr(compiled, "_run", stop)
        patch.setattr(_checks, "asked", lambda *_: {"error": "not asked here"})
        patch.setattr(threading.Event, "wait", _wait_of(threading.Event.wait))
        patch.setenv("HOME", str(folder))
        patch.setenv("T5PREP_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        yield


def _wait_of(wait: Any) -> Any:
    """Return Event.wait that waits in the main thread for `serve` no longer than a moment."""

    def waited(event: threading.Event, timeout: float | None = None) -> Any:
        serves = sys._getframe(1).f_globals.get("__name__") == "t5prep.cli.predict"
        return wait(event, 0.01 if serves else timeout)

    return waited
