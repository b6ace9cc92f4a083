"""Put all cores of this machine to work on the elements of a preparation.

Beam's own local runners start a Beam worker per core, which import all of Beam and talk gRPC, and keep everything that
passes between stages in memory. Here one process goes through the stages and hands each element to a plain process that
knows only t5prep; a window of elements is on its way at any time, so memory is bounded, and a worker that is killed is
replaced and its elements are given out again.
"""

import collections
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import gc
import itertools
import logging
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow

from t5prep.errors import T5prepError
from t5prep.io import atomic_files
from t5prep.reading.blocks import Block

# Twice as many elements are being worked on, or wait for a worker, as there are workers: none of these waits.
IN_FLIGHT = 2
# More elements that may be done and wait behind the first that is not: workers go on beside one that hashes a large file or merges
# runs. Not more, because the rows of a packed file are in the element itself.
AHEAD = 32
# An element that kills its worker this often is itself the reason (out of memory, a bug in native code).
MOST_DEATHS = 3

# Larger arrays are given back to the system when they are freed.
KEPT_BYTES = 32 << 20
# A worker that holds more when an element is done gives all back that is free.
MOST_BYTES = 288 << 20
# Options of mallopt(3), and malloc_trim(3), where workers are to use it.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_trim: Callable[[int], int] | None = None

_POOLS: dict[str, "Pool"] = {}


def find_pool(name: str) -> "Pool":
    """Return the pool of that name in this process."""
    return _POOLS[name]


def window(name: str) -> "Window | InlineWindow":
    """Return a window on the pool of that name, or one that works in this process where there is no name."""
    return Window(name) if name else InlineWindow()


def map_ordered(name: str, work: Callable[[Any], Any], elements: Iterable[Any]) -> Iterator[Any]:
    """Yield the result of each element, in order, by the pool of that name, or in this process where there is no name."""
    pool_window = window(name)
    for element in elements:
        yield from pool_window.put(work, element)
    yield from pool_window.drain()


class InlineWindow:
    """Do the work of each element in this process, at once."""

    def put(self, work: Callable[[Any], Any], element: Any) -> Iterator[Any]:
        """Yield the result of an element."""
        yield work(element)

    def drain(self) -> Iterator[Any]:
        """Yield nothing: all is done."""
        yield from ()


class _Pending(NamedTuple):
    """An element on its way: what is done with it, its result to come, and how many workers died of it."""

    work: Callable[[Any], Any]
    element: Any
    future: concurrent.futures.Future
    deaths: int


class Window:
    """Keep elements on their way through a pool, and give their results in order.

    Once the window is full, another element is put in as soon as one is done.
    """

    def __init__(self, pool: str) -> None:
        self._pool = find_pool(pool)
        self._pending: collections.deque[_Pending] = collections.deque()
        # Elements that were lost with a worker; they are given out again when the first element is done.
        self._to_resubmit: list[_Pending] = []

    def put(self, work: Callable[[Any], Any], element: Any) -> Iterator[Any]:
        """Put an element in, and yield results, in order; wait while more than the window holds are on their way."""
        self._submit(work, element, deaths=0)
        while True:
            while self._pending and self._pending[0].future.done():
                yield self._next()
            unfinished = [pending.future for pending in self._pending if not pending.future.done()]
            if len(self._pending) > IN_FLIGHT * self._pool.workers + AHEAD:
                yield self._next()
            elif len(unfinished) > IN_FLIGHT * self._pool.workers:
                concurrent.futures.wait(unfinished, return_when=concurrent.futures.FIRST_COMPLETED)
            else:
                return

    def drain(self) -> Iterator[Any]:
        """Yield the results that are still to come."""
        while self._pending:
            yield self._next()

    def _submit(self, work: Callable[[Any], Any], element: Any, *, deaths: int) -> None:
        try:
            future = self._pool.submit(work, element)
        except BrokenProcessPool:
            self._pool.restart()
            try:
                future = self._pool.submit(work, element)
            except BrokenProcessPool as error:  # workers end as soon as they begin, which `_next` explains
                future = concurrent.futures.Future()
                future.set_exception(error)
        self._pending.append(_Pending(work, element, future, deaths))

    def _next(self) -> Any:
        while True:
            work, element, future, deaths = self._pending[0]
            try:
                result = future.result()
            except BrokenProcessPool:
                if not self._pool.begun and _is_script():
                    raise T5prepError(
                        "the worker processes end before they begin, because each of them imports this script anew. "
                        'Call this under `if __name__ == "__main__":`, or with workers=0'
                    ) from None
                if deaths + 1 >= MOST_DEATHS:
                    raise T5prepError(
                        f"a worker process died {MOST_DEATHS} times on the same work ({_in_words(element)}). "
                        "If the machine ran out of memory, try fewer: --workers 1"
                    ) from None
                self._pool.restart()
                # Alone, so that another death is known to be its own: all that is on its way is lost with a worker.
                self._to_resubmit += itertools.islice(self._pending, 1, None)
                self._pending.clear()
                self._submit(work, element, deaths=deaths + 1)
                continue
            self._pending.popleft()
            behind, self._to_resubmit = self._to_resubmit, []
            for lost_element in behind:
                self._submit(lost_element.work, lost_element.element, deaths=lost_element.deaths)
            self._pool.done(element, result)
            return result


class Pool:
    """Worker processes, and a name by which they are found."""

    def __init__(self, workers: int, *, warm: Callable[[], None]) -> None:
        self.workers = workers
        self._warm = warm
        self.name = uuid.uuid4().hex
        self.done: Callable[[Any, Any], None] = lambda element, result: None
        self.begun = False  # whether any worker ever did something
        self._start()
        _POOLS[self.name] = self

    def _start(self) -> None:
        begin_loading()  # first: the locks of an executor start a process too
        context = multiprocessing.get_context("forkserver")
        self.executor = concurrent.futures.ProcessPoolExecutor(
            self.workers, mp_context=context, initializer=_start_worker, initargs=(dict(os.environ),)
        )
        # They load what they need while this process goes on. One that ends at once is noticed when there is work.
        with contextlib.suppress(BrokenProcessPool):
            for _ in range(self.workers):
                self.executor.submit(self._warm).add_done_callback(self._note)

    def _note(self, warmed: concurrent.futures.Future) -> None:
        self.begun |= not warmed.cancelled() and warmed.exception() is None

    def submit(self, work: Callable[[Any], Any], element: Any) -> concurrent.futures.Future:
        """Return the future result of an element. Raises BrokenProcessPool where a worker has died."""
        return self.executor.submit(_run_and_collect_garbage, work, element)

    def restart(self) -> None:
        """Start new workers in place of broken ones."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        self._start()

    def close(self) -> None:
        """End the workers; what they have not begun is dropped."""
        _POOLS.pop(self.name, None)
        self.executor.shutdown(wait=True, cancel_futures=True)


def begin_loading(tokenizer: str = "") -> None:
    """Start the process that workers are forked from, which loads what they need while this one goes on.

    They are not forked from this one: a forked copy of a lock that another thread of it holds is held for ever. A file
    of a `tokenizer` is loaded too.
    """
    _place_sockets()
    with _environment_of_children(_OF_CHILDREN | ({TOKENIZER: tokenizer} if tokenizer else {})):
        resource_tracker.ensure_running()  # before the mask, because it lets SIGINT through again
        # Ctrl-C reaches every process of a terminal: it is for this one, which ends the workers; they inherit the mask.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            multiprocessing.set_forkserver_preload(["pipelines.preloaded"])
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@functools.cache
def _place_sockets() -> None:
    """Let multiprocessing place its sockets in a temporary folder that the next run removes where this process is killed."""
    until_exit = contextlib.ExitStack()
    is_long = len(os.fsencode(tempfile.gettempdir())) > _MOST_BYTES_OF_FOLDER
    folder = until_exit.enter_context(atomic_files.temporary_folder(_SHORT_FOLDER if is_long else ""))
    util.Finalize(None, until_exit.close, exitpriority=_AFTER_SOCKETS)
    previous_tempdir, tempfile.tempdir = tempfile.tempdir, folder
    try:
        util.get_temp_dir()
    finally:
        tempfile.tempdir = previous_tempdir


# The path of a socket has at most 103 bytes on macOS and 107 on Linux, of which 60 follow the folder for temporary files.
_SHORT_FOLDER, _MOST_BYTES_OF_FOLDER = "/tmp", 43
# multiprocessing removes its own folder with the priority -100.
_AFTER_SOCKETS = -101


# What a process that workers are forked from starts with. Files of the current folder are never imported: a `random.py` of
# the user's would be executed. NumPy's BLAS has one thread, not one a core: workers multiply no matrix.
# A second Ctrl-C ends the process at once: multiprocessing's tracker then removes semaphores, and warns that it does.
_OF_CHILDREN = {
    "PYTHONSAFEPATH": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore::UserWarning:multiprocessing.resource_tracker",
}
# The tokenizer that this process loads.
TOKENIZER = "T5PREP_TOKENIZER_OF_WORKERS"


@contextlib.contextmanager
def _environment_of_children(variables: Mapping[str, str]) -> Iterator[None]:
    """Let a process that starts meanwhile have these variables, where the user has not set them."""
    added = variables.keys() - os.environ.keys()
    os.environ.update({name: variables[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def exit_if_respawned_script() -> None:
    """End a worker that runs its parent's script again instead of beginning; its parent then says what is wrong."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(1)


def _in_words(element: Any) -> str:
    """Return what an element of work is, for a user."""
    if isinstance(element, list):  # parts of one row group, or one block or file behind others that are done
        parts = [part for part in element if isinstance(part, Block)]
        rows = sum(part.rows for part in parts)
        element = dataclasses.replace(parts[0], rows=rows) if parts else element[-1]
    if isinstance(element, Block) and element.joined:
        return f"{element.rows:,} rows of {len(element.joined):,} files from {element.file.name} on"
    if isinstance(element, Block):
        return f"rows {element.first_row:,} to {element.first_row + element.rows - 1:,} of {element.file.name}"
    if isinstance(element, tuple) and element:  # a shard or a group, and what it is made of
        element = element[0]
    return str(getattr(element, "name", None) or getattr(element, "path", None) or f"{element!r:.80}")


def _is_script() -> bool:
    """Return whether this process runs a file of the user's: `python prepare_mine.py`."""
    main = sys.modules["__main__"]
    return main.__spec__ is None and str(getattr(main, "__file__", "")).endswith(".py")


def _run_and_collect_garbage(work: Callable[[Any], Any], element: Any) -> Any:
    """Collect garbage once an element, and do not look again at what outlives one.

    A block is ten thousands of objects that all live until its end: looking through them again and again on the way is a
    twentieth of the work, for nothing.
    """
    try:
        return work(element)
    finally:
        gc.collect()
        gc.freeze()
        with contextlib.suppress(OSError):  # there may be no /proc
            if _trim and int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() > MOST_BYTES:
                _trim(0)


def _start_worker(environment: dict[str, str]) -> None:
    # The process that workers are forked from has the variables of the first pool; a program may have set others since.
    os.environ.clear()
    os.environ.update(environment)
    # A worker that cannot begin, for lack of memory or threads, ends, which its parent explains: no traceback before that.
    logging.getLogger("concurrent.futures").disabled = True
    gc.disable()
    # A block's arrays are freed together and wanted again at once: glibc would give their pages back to the system and
    # fault each of them in again, which takes as long as writing the records. Larger arrays are given back: what is left of
    # their pages between smaller ones made a worker hold twice what it needs.
    global _trim
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        _trim = ctypes.CDLL(None).malloc_trim
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            set_option(option, KEPT_BYTES)
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # Arrow's own gives pages back too

    # A worker whose parent was killed would wait for work for ever: it ends instead.
    def watch() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
