"""Keep signals away from threads that compute: products in jaxlib put the stack pointer into the heap.

A handler that runs there writes its frame over what lies below. The main thread has a stack of its own for signals
(faulthandler); every other thread takes none.
"""

import contextlib
import signal
from collections.abc import Iterator

# A crash is not put off: the thread that crashes says where.
_OF_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}


@contextlib.contextmanager
def kept_from_new_threads() -> Iterator[None]:
    """Let threads that are started meanwhile, by libraries too, take no signals. They come to the main thread afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OF_CRASHES)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
