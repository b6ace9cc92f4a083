"""Remember that a signal asked this process to stop.

Python raises KeyboardInterrupt wherever it happens to be. Inside a callback that a library calls, such as jax's of the
garbage collection, it is printed and ignored. So long loops ask here too.
"""

_received: list[str] = []


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
    """Raise KeyboardInterrupt where a signal has come, whose own one was ignored somewhere."""
    if _received:
        raise KeyboardInterrupt
