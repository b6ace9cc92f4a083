"""Signals come to the main thread: not to threads of ours, nor to those that libraries start meanwhile."""

import signal
import threading
from collections.abc import Iterable

import pytest

from t5prep.io import signals


def _blocked_in_a_thread() -> set[int]:
    blocked: set[int] = set()
    thread = threading.Thread(target=lambda: blocked.update(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    thread.start()
    thread.join()
    return blocked


def test_threads_that_are_started_meanwhile_take_no_signals() -> None:
    initial_mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with signals.kept_from_new_threads():
        blocked = _blocked_in_a_thread()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGPROF, signal.SIGALRM} <= blocked
    assert signal.SIGSEGV not in blocked
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == initial_mask
    assert _blocked_in_a_thread() == initial_mask


def test_a_signal_just_before_leaves_none_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython's pthread_sigmask runs the handlers of signals that came before, after it has changed the mask."""
    initial_mask, change = signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.pthread_sigmask

    def change_and_handle(how: int, numbers: Iterable[int]) -> set[int]:
        previous = change(how, numbers)
        if how == signal.SIG_BLOCK and numbers:
            raise KeyboardInterrupt
        return previous

    monkeypatch.setattr(signal, "pthread_sigmask", change_and_handle)
    with pytest.raises(KeyboardInterrupt), signals.kept_from_new_threads():
        pass
    assert change(signal.SIG_BLOCK, []) == initial_mask
