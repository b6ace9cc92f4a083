"""Escape control characters in printed text, and end an interrupted command with one sentence.

Texts of strangers are printed: rows, file names, labels. An escape sequence in them could hide text or retitle the
terminal.
"""

import contextlib
import os
import re
import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TextIO

import click

from t5prep.cli._failing import CodedError, make_exception
from t5prep.io import signals

# Characters that a terminal obeys or hides: control characters, direction marks, tags. Newlines and tabs are allowed.
_HIDDEN = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\U000e0000-\U000e007f"
)
# Our own colours begin with a secret number, drawn for each process, which a stranger's text cannot contain.
_OURS = f"\x1b[{secrets.randbelow(1 << 62)};"
# A colour of ours, which stays, or a hidden character, which is escaped.
_PIECES = re.compile(f"({re.escape(_OURS)})|([{_HIDDEN}])")
_LINE_ANEW = "\r\x1b[K"  # the start of a progress line (io/progress.py)
# Commands that resume after an interruption.
_GOES_ON = ("prepare", "train", "upload", "predict")


def visible(text: str) -> str:
    r"""Return `text` with a JSON escape for each character that moves the cursor, is invisible or changes direction.

    >>> visible("a\x1b]0;title\x07b\u202ec\td")
    'a\\u001b]0;title\\u0007b\\u202ec\td'
    """
    return _PIECES.sub(lambda match: "\x1b[" if match[1] else _escaped(match[2]), text)


def styled(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """Return `text` in a colour or weight that `visible` does not escape. Escape sequences inside `text` are escaped."""
    # `or None`, because click writes an escape sequence for False, too.
    begin, end = click.style("\0", fg=fg, bold=bold or None, dim=dim or None).replace("\x1b[", _OURS).split("\0")
    return begin + text + end


def _escaped(character: str) -> str:
    """Return the JSON escape of a character, so that JSON on stdout keeps its meaning."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


class _Visible:
    """Wrap a stream so that `write` writes visible text. All other attributes are the stream's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the visible form of `text`, and return the length of `text`."""
        start = _LINE_ANEW if text.startswith(_LINE_ANEW) else ""
        self._stream.write(start + visible(text[len(start) :]))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextlib.contextmanager
def escape_output(*, data: bool) -> Iterator[None]:
    """Write only visible text to stdout and stderr inside `with`.

    With `data`, a stdout that is a file or a pipe gets its text unchanged: answers of a model are data.
    """
    previous_streams = sys.stdout, sys.stderr
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is None:  # closed by the shell (`>&-`): its text is dropped
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
        elif name == "stderr" or not data or stream.isatty():
            setattr(sys, name, _Visible(stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = previous_streams


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Convert the first SIGINT or SIGTERM to a KeyboardInterrupt, so that files are closed. A second signal ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for signal_number in previous_handlers:
            signal.signal(signal_number, lambda *_: os._exit(1))
        signals.note(signal.Signals(number).name)
        signals.obey(number, frame)

    previous_handlers = {number: signal.signal(number, stop) for number in signals.stopping()}
    try:
        with signals.raised_again():
            yield
    finally:
        signals.forget()
        # CPython remembers that a KeyboardInterrupt left code run by `exec`, such as a dataclass's methods, even if it was
        # caught later. It then ends its process by SIGINT at its exit. The next `exec` resets this.
        exec("")
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def dropped_at_end() -> Iterator[None]:
    """Discard text that a broken stdout did not take. Python's flush at exit would fail again, with exit code 120."""
    try:
        yield
    finally:
        if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:
            try:
                sys.__stdout__.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())


def stopped(command: str | None) -> CodedError:
    """Return the message for a command that was interrupted."""
    resume_note = "resumes where it stopped" if command in _GOES_ON else "starts from the beginning"
    return make_exception(f"Stopped. The same command {resume_note}.", code="terminal.interrupted")
