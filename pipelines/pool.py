"""Run the work of a preparation on all cores of this machine.

Beam's local runners start one worker for each core, which imports all of Beam and communicates by gRPC. They hold all
data between stages in memory. Here one process executes the stages, and plain worker processes that import only
t5prep process the elements. A bounded window of elements is in flight, so memory is bounded. A killed worker is
replaced and its elements are submitted again.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import pyarrow

from t5prep.errors import T5prepError
from t5prep.io import atomic_files, signals
from t5prep.reading.blocks import Block

# Elements at work or queued for each worker. The second one waits, so that a worker never does.
IN_FLIGHT = 2
# Finished elements that may wait behind an unfinished first one: workers continue while one of them hashes a large
# file or merges spills. The number does not grow with the workers, because an element holds the rows of a compressed
# file.
AHEAD = 32
# An element whose worker dies this often is the cause itself: it needs too much memory, or there is a bug in native
# code.
MOST_DEATHS = 3

# Freed arrays of this size and more are returned to the system at once.
KEPT_BYTES = 32 << 20
# A worker with a larger resident size after an element returns all free memory to the system.
MOST_BYTES = 288 << 20
# Options of mallopt(3); and malloc_trim(3), set in workers whose C library has it (glibc).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_trim: Callable[[int], int] | None = None

In = TypeVar("In")
Out = TypeVar("Out")


def map_ordered(pool: "Pool", work: Callable[[In], Out], elements: Iterable[In]) -> Iterator[Out]:
    """Yield `work(element)` for each element, in order, computed by the processes of `pool`."""
    pool_window = Window[In, Out](pool)
    for element in elements:
        yield from pool_window.put(work, element)
    yield from pool_window.drain()


class InlineWindow(Generic[In, Out]):
    """A window without a pool: each element is processed in this process at once."""

    def put(self, work: Callable[[In], Out], element: In) -> Iterator[Out]:
        """Yield the result of `work(element)`."""
        yield work(element)

    def drain(self) -> Iterator[Out]:
        """Yield nothing, because no result is outstanding."""
        yield from ()


class _Pending(NamedTuple, Generic[In, Out]):
    """An element in flight: its work, its future result, and how many workers died on it."""

    work: Callable[[In], Out]
    element: In
    future: concurrent.futures.Future[Out]
    deaths: int


class Window(Generic[In, Out]):
    """Process elements in `pool` and yield their results in order.

    The number of unfinished elements is bounded: `put` waits until it may submit the next one.
    """

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._pending: collections.deque[_Pending[In, Out]] = collections.deque()
        # Elements that were lost when a worker died. They are submitted again when the first element is finished.
        self._to_resubmit: list[_Pending[In, Out]] = []

    def put(self, work: Callable[[In], Out], element: In) -> Iterator[Out]:
        """Submit an element and yield results that are ready, in order. Waits while the window is full."""
        self._submit(work, element, deaths=0)
        while True:
            while self._pending and self._pending[0].future.done():
                yield self._next()
            unfinished = [pending.future for pending in self._pending if not pending.future.done()]
            # Finished elements wait behind the first one. If there are too many, only the first one helps.
            if len(self._pending) > IN_FLIGHT * self._pool.workers + AHEAD:
                yield self._next()
            elif len(unfinished) > IN_FLIGHT * self._pool.workers:
                concurrent.futures.wait(unfinished, return_when=concurrent.futures.FIRST_COMPLETED)
            else:
                return

    def drain(self) -> Iterator[Out]:
        """Yield all outstanding results."""
        while self._pending:
            yield self._next()

    def _submit(self, work: Callable[[In], Out], element: In, *, deaths: int) -> None:
        """Submit an element to the pool; restart the pool first if a worker has died."""
        try:
            future = self._pool.submit(work, element)
        except BrokenProcessPool:
            self._pool.restart()
            try:
                future = self._pool.submit(work, element)
            except BrokenProcessPool as error:  # workers die at their start; `_next` explains it
                future = concurrent.futures.Future()
                future.set_exception(error)
        self._pending.append(_Pending(work, element, future, deaths))

    def _next(self) -> Out:
        """Return the result of the first element. If a worker died, restart the pool and submit again. Raises T5prepError."""
        while True:
            work, element, future, deaths = self._pending[0]
            try:
                result = future.result()
            except BrokenProcessPool:
                if not self._pool.begun and _is_script():
                    raise T5prepError(
                        "The worker processes end at once, because each of them imports this script again. Put the "
                        'call under `if __name__ == "__main__":`, or use workers=0',
                        code="pipeline.unguarded-script",
                    ) from None
                if deaths + 1 >= MOST_DEATHS:
                    raise T5prepError(
                        f"A worker process died {MOST_DEATHS} times on the same work ({_in_words(element)}). If the "
                        "machine ran out of memory, use fewer workers: --workers 1",
                        code="pipeline.dead-worker",
                    ) from None
                self._pool.restart()
                # A dead worker loses all elements in flight. Submitting only the first one shows whether this element
                # is the cause.
                self._to_resubmit += itertools.islice(self._pending, 1, None)
                self._pending.clear()
                self._submit(work, element, deaths=deaths + 1)
                continue
            self._pending.popleft()
            lost_elements, self._to_resubmit = self._to_resubmit, []
            for lost_element in lost_elements:
                self._submit(lost_element.work, lost_element.element, deaths=lost_element.deaths)
            return result


class Pool:
    """Worker processes. `warm` is what each worker calls first."""

    def __init__(self, workers: int, *, warm: Callable[[], None]) -> None:
        self.workers = workers
        self._warm = warm
        self.begun = False  # whether any worker has finished `warm`
        self._start()

    def _start(self) -> None:
        begin_loading()  # first, because creating an executor's locks starts a process, too
        context = multiprocessing.get_context("forkserver")
        self.executor = concurrent.futures.ProcessPoolExecutor(
            self.workers, mp_context=context, initializer=_start_worker, initargs=(dict(os.environ),)
        )
        # Workers import in the background. A worker that dies at once is noticed when the first element is submitted.
        with contextlib.suppress(BrokenProcessPool):
            for _ in range(self.workers):
                self.executor.submit(self._warm).add_done_callback(self._note)

    def _note(self, warmed: concurrent.futures.Future) -> None:
        """Record that a worker could start."""
        self.begun |= not warmed.cancelled() and warmed.exception() is None

    def submit(self, work: Callable[[In], Out], element: In) -> concurrent.futures.Future[Out]:
        """Return the future of `work(element)`. Raises BrokenProcessPool if a worker has died."""
        return self.executor.submit(_run_and_collect_garbage, work, element)

    def restart(self) -> None:
        """Replace a broken pool's workers by new ones."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        self._start()

    def close(self) -> None:
        """End the workers and drop elements that they have not begun."""
        self.executor.shutdown(wait=True, cancel_futures=True)


def begin_loading(tokenizer: str = "") -> None:
    """Start the process that workers are forked from (the fork server). It imports their modules in the background.

    Workers are not forked from this process: if another of its threads held a lock, the forked copy would stay locked
    forever. With a `tokenizer` (the path of a file), the fork server loads it, too. See
    docs/decisions/023-load-everything-before-workers-fork.md
    """
    _place_sockets()
    with _environment_of_children(_OF_CHILDREN | ({TOKENIZER: tokenizer} if tokenizer else {})):
        resource_tracker.ensure_running()  # before blocking SIGINT, because this call unblocks it
        # A terminal sends Ctrl-C to every process. Only this process shall handle it and end the workers, which
        # inherit the blocked signal.
        with signals.blocked({signal.SIGINT}):
            multiprocessing.set_forkserver_preload(["pipelines.preloaded"])
            forkserver.ensure_running()


@functools.cache
def _place_sockets() -> None:
    """Let multiprocessing create its sockets in a temporary folder that the next run removes if this process is killed."""
    until_exit = contextlib.ExitStack()
    is_long = len(os.fsencode(tempfile.gettempdir())) > _MOST_BYTES_OF_FOLDER
    folder = until_exit.enter_context(atomic_files.temporary_folder(_SHORT_FOLDER if is_long else ""))
    util.Finalize(None, until_exit.close, exitpriority=_AFTER_SOCKETS)
    previous_tempdir, tempfile.tempdir = tempfile.tempdir, folder
    try:
        util.get_temp_dir()
    finally:
        tempfile.tempdir = previous_tempdir


# A socket's path may have 103 bytes on macOS and 107 on Linux, and 60 bytes follow the folder for temporary files. So
# a longer folder is replaced by /tmp.
_SHORT_FOLDER, _MOST_BYTES_OF_FOLDER = "/tmp", 43
# Finalizers run by descending priority. multiprocessing removes its own folder at -100, which must come first.
_AFTER_SOCKETS = -101


# Environment of the fork server. PYTHONSAFEPATH: a `random.py` in the user's folder must not be imported.
# OPENBLAS_NUM_THREADS: workers multiply no matrices. PYTHONWARNINGS: after a second Ctrl-C, multiprocessing's tracker
# would warn that it removes semaphores.
_OF_CHILDREN = {
    "PYTHONSAFEPATH": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore::UserWarning:multiprocessing.resource_tracker",
}
# The variable with the path of the tokenizer that the fork server loads.
TOKENIZER = "T5PREP_TOKENIZER_OF_WORKERS"


@contextlib.contextmanager
def _environment_of_children(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that the user has not set, for processes started in the body, and remove them afterwards."""
    added = variables.keys() - os.environ.keys()
    os.environ.update({name: variables[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def exit_if_respawned_script() -> None:
    """Exit if this process is a worker that executes its parent's script again. The parent then explains the error.

    It happens if a script calls `prepare` without `if __name__ == "__main__":`, because workers import the script.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(1)


def _in_words(element: object) -> str:
    """Describe an element of work for an error message, such as "rows 1 to 5,000 of train.csv"."""
    if isinstance(element, list):  # parts of one row group; or a block or file after hashed files
        parts = [part for part in element if isinstance(part, Block)]
        rows = sum(part.rows for part in parts)
        element = dataclasses.replace(parts[0], rows=rows) if parts else element[-1]
    if isinstance(element, Block) and element.joined:
        return f"{element.rows:,} rows of {len(element.joined):,} files from {element.file.name} on"
    if isinstance(element, Block):
        return f"rows {element.first_row:,} to {element.first_row + element.rows - 1:,} of {element.file.name}"
    if isinstance(element, tuple) and element:  # a shard or group with its items
        element = element[0]
    return str(getattr(element, "name", None) or getattr(element, "path", None) or f"{element!r:.80}")


def _is_script() -> bool:
    """Check whether this process runs a user's script, such as `python prepare_mine.py`."""
    main = sys.modules["__main__"]
    return main.__spec__ is None and str(getattr(main, "__file__", "")).endswith(".py")


def _run_and_collect_garbage(work: Callable[[In], Out], element: In) -> Out:
    """Return `work(element)`, and collect garbage only after it.

    A block creates tens of thousands of objects that live until its end. Automatic collections would traverse them
    repeatedly, which takes a twentieth of the time. `gc.freeze` excludes the surviving objects from the next
    collection.
    """
    try:
        return work(element)
    finally:
        gc.collect()
        gc.freeze()
        with contextlib.suppress(OSError):  # /proc does not exist on every system
            if _trim and int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() > MOST_BYTES:
                _trim(0)


def _start_worker(environment: dict[str, str]) -> None:
    """Initialize a worker process: environment, garbage collection, memory allocation, and the watch on its parent."""
    # The fork server has the environment of the first pool; the program may have changed it since.
    os.environ.clear()
    os.environ.update(environment)
    # A worker that cannot start for lack of memory or threads exits, and its parent explains that. The executor's
    # traceback would come first.
    logging.getLogger("concurrent.futures").disabled = True
    gc.disable()
    # A block's arrays are freed together and needed again at once. By default glibc returns their pages to the system
    # and faults them in again, which takes as long as writing the records. Arrays above KEPT_BYTES are returned: the
    # remains of their pages, with smaller arrays between, doubled a worker's memory.
    global _trim
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        _trim = ctypes.CDLL(None).malloc_trim
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            set_option(option, KEPT_BYTES)
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # Arrow's return pages, too: 5.8 s instead of 5.1 s

    # Without this thread, a worker whose parent was killed would wait for work forever.
    def watch() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
