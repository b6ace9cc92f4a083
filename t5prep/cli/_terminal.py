"""Protect the terminal: escape control characters in what is printed, and end an interrupted run with one sentence."""

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

from t5prep.cli._failing import make_exception
from t5prep.io import signals

# Characters that a terminal acts on or hides: control characters, marks of direction, tags. Newlines and tabs stay.
_HIDDEN = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\U000e0000-\U000e007f"
)
# A colour or weight of ours has a number that no text of a stranger can know; and the start of a progress line.
_OURS = f"\x1b[{secrets.randbelow(1 << 62)};"
_PIECES = re.compile(f"({re.escape(_OURS)})|([{_HIDDEN}])")
_LINE_ANEW = "\r\x1b[K"
# Commands that resume where they were stopped.
_GOES_ON = ("prepare", "train", "upload", "predict")


def visible(text: str) -> str:
    r"""Return a text with a JSON escape for each character that moves the cursor, is invisible or changes direction.

    >>> visible("a\x1b]0;title\x07b\u202ec\td")
    'a\\u001b]0;title\\u0007b\\u202ec\td'
    """
    return _PIECES.sub(lambda match: "\x1b[" if match[1] else _escaped(match[2]), text)


def styled(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """Return a text in a colour or weight, which `visible` lets through; one that stands in the text itself is escaped."""
    # click writes an escape for False, too.
    begin, end = click.style("\0", fg=fg, bold=bold or None, dim=dim or None).replace("\x1b[", _OURS).split("\0")
    return begin + text + end


def _escaped(character: str) -> str:
    """Return the JSON escape of a character, so that JSON on stdout keeps its meaning."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


class _Visible:
    """Wrap a stream so that it writes visible text only; everything else goes to the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the visible form of a text."""
        start = _LINE_ANEW if text.startswith(_LINE_ANEW) else ""
        self._stream.write(start + visible(text[len(start) :]))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextlib.contextmanager
def escape_output(*, data: bool) -> Iterator[None]:
    """Let only visible text reach stdout and stderr; with `data`, a stdout that is not a terminal is left as it is."""
    previous_streams = sys.stdout, sys.stderr
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is None:  # closed before the command began: its text is dropped
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
        elif name == "stderr" or not data or stream.isatty():
            setattr(sys, name, _Visible(stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = previous_streams


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into one KeyboardInterrupt, so that everything is closed; a second one ends at once."""
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
        # Python remembers a KeyboardInterrupt that left code given as text, such as a dataclass's, even if it was caught,
        # and then kills its own process at its end. The next code that is given as text makes it forget.
        exec("")
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def dropped_at_end() -> Iterator[None]:
    """Drop what a broken stdout has not taken at the end: Python would fail on it once more, with exit code 120."""
    try:
        yield
    finally:
        if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:
            try:
                sys.__stdout__.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())


def stopped(command: str | None) -> click.ClickException:
    """Return the message for a command that was interrupted."""
    resume_note = "goes on: what was done is kept" if command in _GOES_ON else "begins again"
    return make_exception(f"Stopped. The same command {resume_note}.")
