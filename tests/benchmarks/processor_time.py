"""Count the processor time of a command and of all that it starts, workers of a fork server among them."""

import ctypes
import os
import resource

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def adopt_orphans() -> None:
    """Make processes whose parent ends children of this one: the fork server of `prepare` outlives the command."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def of_orphans() -> float:
    """Wait for all children of this process, and return the seconds (user and system) that they took."""
    seconds = 0.0
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return seconds
        seconds += of_usage(usage)


def of_usage(usage: resource.struct_rusage) -> float:
    """Return the seconds (user and system) of a process and the children that it waited for."""
    return usage.ru_utime + usage.ru_stime
