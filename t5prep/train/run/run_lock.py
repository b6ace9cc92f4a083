"""Let one process at a time train into a run's directory: two would delete each other's checkpoints."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from t5prep.errors import OutputError
from t5prep.train.runtime import hosts


@contextlib.contextmanager
def held(out: str) -> Iterator[None]:
    """Hold the directory of a run while the block lasts; it is made where it is missing, and removed if it stays empty.

    The system frees it when the process ends, however it ends. Directories on gs://, and on file systems without locks,
    are not held; of several hosts the one that writes holds it.
    Raises OutputError where another process holds it, or where it cannot be made.
    """
    if "://" in out or not hosts.writes():
        yield
        return
    missing = not os.path.exists(out)
    try:
        os.makedirs(out, exist_ok=True)
        handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise OutputError(f"The run {out} cannot be written ({error.strerror}). Choose another --out.") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"{out} is being trained by another process. Wait until it ends, or choose another --out."
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        if missing:
            with contextlib.suppress(OSError):  # it is not empty: the run has begun
                os.rmdir(out)
        os.close(handle)
