"""Convert errors that are not bugs to one sentence for the user, without a traceback."""

import contextlib
import errno
import os
import sys
from typing import IO

import click

from t5prep.errors import T5prepError, UsageError
from t5prep.io import addresses
from t5prep.io.installation import install_command

# Module that the base install lacks → the extra that installs it.
_EXTRAS = {
    **dict.fromkeys(("tensorflow", "keras", "tensorboard"), "train"),
    **dict.fromkeys(("sacrebleu", "rouge_score"), "train"),
    **dict.fromkeys(("jax", "jaxlib"), "train"),
    "libtpu": "plan",
    **dict.fromkeys(("matplotlib", "jinja2"), "report"),
}

# Errors of `huggingface_hub`'s HTTP clients if no server answers. Those of `requests` are OSErrors.
_NETWORK = {"httpx.TransportError", "httpx2.TransportError"}

# Parts of the dynamic loader's messages if there is no memory for a library's code.
_NO_ROOM = ("failed to map segment", "annot allocate memory", "cannot create shared object")
# Parts of the messages of Python and of C++ libraries if no thread can be started.
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")
# TensorFlow's errors if a path of the user cannot be read or written. Its other errors are bugs.
_TENSORFLOW = (
    *("NotFoundError", "PermissionDeniedError", "UnauthenticatedError", "UnavailableError", "UnimplementedError"),
    *("FailedPreconditionError", "ResourceExhaustedError", "DeadlineExceededError"),
)


class EndsAtOnceError(click.ClickException):
    """Print the message, and end the process at once, because libraries may crash during Python's shutdown."""

    def show(self, file: IO[str] | None = None) -> None:
        """Print the message, flush stdout, and end the process with exit code 1."""
        super().show(file)
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.fileno() == 2:  # not if a caller in this process, such as a test, captures stderr
                sys.stdout.flush()
                os._exit(1)


def make_exception(message: str) -> click.ClickException:
    """Return a click error with this message. If jax is loaded, the error ends the process without Python's shutdown.

    XLA's threads may still run a computation, and would use memory that the shutdown frees. Skipping exit handlers is safe.
    The exception has left every `with` block, so checkpoints, answers and curves are closed. The remaining handlers only
    wait for threads that read ahead, and the system frees locks and sockets.
    """
    return (EndsAtOnceError if "jax" in sys.modules else click.ClickException)(message)


def sentence(error: Exception) -> click.ClickException | None:
    """Return a click error with one line for an error that is not a bug, and None for a bug.

    Newlines become spaces, because a file name in the message may contain one, and fake a message of its own.
    """
    exception = _sentence(error)
    return exception and type(exception)(exception.message.replace("\n", " "))


def _sentence(error: Exception) -> click.ClickException | None:
    """Return a click error for an error that is not a bug, possibly with newlines, and None for a bug."""
    if isinstance(error, T5prepError):
        return make_exception(addresses.public_text(str(error)))
    if isinstance(error, ModuleNotFoundError):
        return _missing(error)
    if _of_memory(error):
        return EndsAtOnceError(
            "There is not enough memory for this on this machine, or `ulimit -v` or `ulimit -u` allows too little. Free some, or "
            "allow more"
        )
    if isinstance(error, OSError):
        return _system(error)
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        return click.ClickException("A name here holds bytes that are not text in UTF-8. Rename it, or type it again.")
    if _NETWORK & {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(error).__mro__}:
        return click.ClickException(
            f"The network does not answer: {str(error) or type(error).__name__}. Try again when it does."
        )
    if type(error).__module__.startswith("tensorflow."):
        message = (getattr(error, "message", "") or str(error)).splitlines()[0]
        name, of_disk = type(error).__name__, message.endswith(os.strerror(errno.EIO))
        if name not in _TENSORFLOW and not (name == "UnknownError" and of_disk):
            return None
        return click.ClickException(f"TensorFlow says: {message}")
    return None


def _of_memory(error: Exception) -> bool:
    """Check whether the cause of an error is missing memory: for objects, for a library's code, or for a thread."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, ImportError) and any(words in str(error) for words in _NO_ROOM))
        or (isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_THREAD))
    )


def _missing(error: ModuleNotFoundError) -> click.ClickException | None:
    """Return a click error for a missing package that an extra installs; None for any other module, which is a bug."""
    name = (error.name or "").partition(".")[0]
    if name not in _EXTRAS:
        return None
    if _EXTRAS[name] == "train":
        from t5prep.training import need_tensorflow

        try:
            need_tensorflow()  # its message differs if there is no TensorFlow for this Python
        except UsageError as error:
            return click.ClickException(str(error))
    return click.ClickException(f"This needs {name}, which is not installed. Get it: {install_command(_EXTRAS[name])}")


def _system(error: OSError) -> click.ClickException | None:
    """Return a click error for an error of the operating system; None for a closed pipe, at which click exits quietly."""
    if error.errno == errno.EPIPE:
        return None
    if isinstance(error, FileNotFoundError) and _folder_is_gone():
        return click.ClickException("The current folder was deleted. Change to another one: cd")
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return click.ClickException(f"{reason[:1].upper()}{reason[1:]}.")
    return click.ClickException(addresses.public_text(f"{_text(error.filename)} cannot be read or written ({reason})."))


def _folder_is_gone() -> bool:
    """Check whether the current folder was deleted, after which every relative path fails."""
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def _text(path: object) -> str:
    return path.decode(errors="replace") if isinstance(path, bytes) else str(path)
