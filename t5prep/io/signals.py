"""Remember signals that stop this process, and block signals in threads that compute.

Python raises KeyboardInterrupt at any instruction, also inside a library's callback, such as jax's for the garbage
collection. There it is ignored. `raised_again` raises it once more a moment later, and long loops call `check`.

Matrix products in jaxlib point the stack pointer into the heap. A signal handler that runs then overwrites heap data with
its stack frame. So only the main thread takes signals, and it has a separate stack for them (`faulthandler`).
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from types import FrameType

# Signals of a crash are never blocked: the crashing thread must print its own traceback.
_OF_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}
_received: list[str] = []  # names of the remembered signals, in their order
# Delay before KeyboardInterrupt is raised again after a callback ignored it. The callback has returned by then.
# Also the delay between two checks of whether an import or a call of TensorFlow has ended (`obey`).
_AGAIN_SECONDS = 0.02
# How long a normal KeyboardInterrupt may take to end the block of `end_at_once`, before the process ends.
GRACE_SECONDS = 1.0


def stopping() -> list[signal.Signals]:
    """Return SIGINT and SIGTERM, without those that this process ignores: `command &` in a script ignores SIGINT."""
    return [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def blocked(numbers: Iterable[int]) -> Iterator[None]:
    """Block signals in this thread inside `with`. It gets those of that time afterwards."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # After it has blocked, this call runs the handler of a signal that came before. If that raises KeyboardInterrupt, the
        # call returns no mask, so the mask is read before.
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def kept_from_new_threads() -> contextlib.AbstractContextManager[None]:
    """Block signals in all threads that are started inside `with`, by libraries too. The main thread gets them afterwards.

    A new thread inherits the signal mask of the thread that starts it.
    """
    return blocked(signal.valid_signals() - _OF_CRASHES)


@contextlib.contextmanager
def end_at_once(message: str) -> Iterator[None]:
    """End the process with `message` within GRACE_SECONDS of SIGTERM or SIGINT, even if a compiler runs for minutes.

    Python runs signal handlers only between two of its instructions, so not during a long call into C. Here a separate
    thread reads each signal's number from a pipe (`signal.set_wakeup_fd`). Outside the main thread, do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = stopping()
    listening, pipe = os.pipe()
    os.set_blocking(pipe, False)
    end_event = threading.Event()

    def listen() -> None:
        """End the process if a signal arrives and the block does not end within GRACE_SECONDS."""
        while received := os.read(listening, 1):
            if received[0] in numbers and not end_event.wait(GRACE_SECONDS):
                with contextlib.suppress(OSError):
                    os.write(2, f"Error: {signal.Signals(received[0]).name}: {message}\n".encode())
                os._exit(1)
        os.close(listening)

    previous_pipe: int | None = None
    try:
        with kept_from_new_threads():
            threading.Thread(target=listen, name="end at once", daemon=True).start()
            previous_pipe = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
        yield
    finally:
        end_event.set()
        if previous_pipe is not None:
            signal.set_wakeup_fd(previous_pipe)
        os.close(pipe)  # this ends the thread: its read returns b""


def note(name: str) -> None:
    """Remember the signal `name`, such as "SIGINT"."""
    _received.append(name)


def received() -> str:
    """Return the name of the first remembered signal, or ""."""
    return _received[0] if _received else ""


def forget() -> None:
    """Forget all remembered signals, after the caller has stopped as they required."""
    _received.clear()


def check() -> None:
    """Raise KeyboardInterrupt if a signal is remembered. A callback may have ignored the first KeyboardInterrupt."""
    if _received:
        raise KeyboardInterrupt


def obey(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt if a signal is remembered: a handler for `signal.signal`.

    During an import or a call of TensorFlow, try again after `_AGAIN_SECONDS`: an interrupted import makes jax's C++ raise
    an error of its own.
    """
    while frame is not None:
        path = frame.f_code.co_filename
        if path == "<frozen importlib._bootstrap>" or "/tensorflow/python/" in path:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
            return
        frame = frame.f_back
    check()


@contextlib.contextmanager
def raised_again() -> Iterator[None]:
    """Inside `with`, raise a KeyboardInterrupt again that a callback ignored or `obey` delayed. For the main thread only."""
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
