"""Remember that a signal asked this process to stop, and keep signals away from threads that compute.

Python raises KeyboardInterrupt wherever it happens to be. Inside a callback that a library calls, such as jax's of the
garbage collection, it is ignored. There it is raised again a moment later, and long loops call `check`.
Products in jaxlib put the stack pointer into the heap: a signal handler that runs there writes its frame over what lies
below. The main thread has a separate stack for signals (faulthandler); every other thread takes none.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

# A crash is not put off: the thread that crashes says where.
_OF_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}
_received: list[str] = []
# How long after an ignored KeyboardInterrupt the next one is raised: the callback that ignored it has then returned.
# And how long after a signal that came in an import or in TensorFlow it is asked again whether that has ended.
_AGAIN_SECONDS = 0.02
# How long Python's own KeyboardInterrupt may take to end what `end_at_once` encloses.
GRACE_SECONDS = 1.0


def stopping() -> list[signal.Signals]:
    """Return the signals that ask this process to stop, without those that it was started to ignore, as by `&` in a script."""
    return [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def kept_from_new_threads() -> Iterator[None]:
    """Let threads that are started meanwhile, by libraries too, take no signals. They come to the main thread afterwards."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OF_CRASHES)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


@contextlib.contextmanager
def end_at_once(message: str) -> Iterator[None]:
    """End the process with a message soon after SIGTERM or SIGINT, also while a compiler runs for minutes in the main thread.

    Python calls its handlers only between two of its own instructions. So a thread of its own hears of each signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = stopping()
    listening, pipe = os.pipe()
    os.set_blocking(pipe, False)
    end_event = threading.Event()

    def listen() -> None:
        while received := os.read(listening, 1):
            if received[0] in numbers and not end_event.wait(GRACE_SECONDS):
                with contextlib.suppress(OSError):
                    os.write(2, f"Error: {signal.Signals(received[0]).name}: {message}\n".encode())
                os._exit(1)
        os.close(listening)

    with kept_from_new_threads():
        threading.Thread(target=listen, name="end at once", daemon=True).start()
    previous_pipe = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    try:
        yield
    finally:
        end_event.set()
        signal.set_wakeup_fd(previous_pipe)
        os.close(pipe)  # the thread ends


def note(name: str) -> None:
    """Remember a signal by its name, such as "SIGINT"."""
    _received.append(name)


def received() -> str:
    """Return the name of the first signal that came, or ""."""
    return _received[0] if _received else ""


def forget() -> None:
    """Forget all signals: what they asked for is done."""
    _received.clear()


def check() -> None:
    """Raise KeyboardInterrupt if a signal has come: the one that Python raised may have been ignored."""
    if _received:
        raise KeyboardInterrupt


def obey(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, as a handler of signals, if a signal has come; later if an import or TensorFlow is under way."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path == "<frozen importlib._bootstrap>" or "/tensorflow/python/" in path:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
            return
        frame = frame.f_back
    check()


@contextlib.contextmanager
def raised_again() -> Iterator[None]:
    """Raise a KeyboardInterrupt again that Python could only ignore or that was put off. In the main thread only."""
    previous_hook = sys.unraisablehook

    def hook(about: "sys.UnraisableHookArgs") -> None:
        if not (_received and issubclass(about.exc_type, KeyboardInterrupt)):
            previous_hook(about)
        else:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    handler = signal.signal(signal.SIGALRM, obey)
    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
