"""What reaches the terminal: text whose control characters are shown as signs, and one sentence where somebody stops a run."""

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, TextIO

import click

# What a terminal obeys or hides: control characters, marks of direction, tags. A newline and a tab stay.
_HIDDEN = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\U000e0000-\U000e007f"
)
# Colours and weights as click writes them, and the beginning of a line of progress.
_OURS = r"\x1b\[(?:[0-2]|3[0-7])m"
_PIECES = re.compile(f"({_OURS})|([{_HIDDEN}])")
_LINE_ANEW = "\r\x1b[K"
# Commands that go on where they were stopped.
_GOES_ON = ("prepare", "train", "upload", "predict")


def visible(text: str) -> str:
    r"""Return a text in which nothing moves the cursor, hides or turns around: such characters become their JSON escapes.

    >>> visible("a\x1b]0;title\x07b\u202ec\td")
    'a\\u001b]0;title\\u0007b\\u202ec\td'
    """
    return _PIECES.sub(lambda found: found[1] or _escaped(found[2]), text)


def _escaped(character: str) -> str:
    """Return the escape of a character, the one that JSON has, so that JSON says the same as before."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


class _Visible:
    """Pass a stream's text on as visible text; everything else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the visible form of a text."""
        start = _LINE_ANEW if text.startswith(_LINE_ANEW) else ""
        self._stream.write(start + visible(text[len(start) :]))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def shown(*, data: bool) -> Iterator[None]:
    """Let only visible text reach stdout and stderr; `data` on a stdout that is no terminal stays as it is."""
    before = sys.stdout, sys.stderr
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is None:  # closed before the command began: what is said goes nowhere
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
        elif name == "stderr" or not data or stream.isatty():
            setattr(sys, name, _Visible(stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into one KeyboardInterrupt, so that everything is put away; a second one ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for again in (signal.SIGINT, signal.SIGTERM):
            signal.signal(again, lambda *_: os._exit(1))
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopped(command: str | None) -> click.ClickException:
    """Return the sentence for a command that somebody stopped."""
    again = "goes on: what was done is kept" if command in _GOES_ON else "begins again"
    return click.ClickException(f"Stopped. The same command {again}.")
