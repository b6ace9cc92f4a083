"""Turn errors that are not bugs into one sentence for the user, without a traceback."""

import contextlib
import errno
import os
import sys
from typing import IO

import click

from t5prep.errors import T5prepError, UsageError
from t5prep.io import addresses
from t5prep.io.installation import install_command

# Modules that the base install lacks → the extra that installs them.
_EXTRAS = {
    **dict.fromkeys(("tensorflow", "keras", "tensorboard"), "train"),
    **dict.fromkeys(("sacrebleu", "rouge_score"), "train"),
    **dict.fromkeys(("jax", "jaxlib"), "train"),
    "libtpu": "plan",
    **dict.fromkeys(("matplotlib", "jinja2"), "report"),
}

# Errors of the Hugging Face Hub's clients when no server answers (that of requests is an OSError).
_NETWORK = {"httpx.TransportError", "httpx2.TransportError"}

# What the loader of libraries says where their code finds no room.
_NO_ROOM = ("failed to map segment", "annot allocate memory", "cannot create shared object")
# What Python says, and what libraries in C++ say, where no thread can be started.
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")
# Errors of TensorFlow when a place of the user cannot be read or written; its other errors are bugs.
_TENSORFLOW = (
    *("NotFoundError", "PermissionDeniedError", "UnauthenticatedError", "UnavailableError", "UnimplementedError"),
    *("FailedPreconditionError", "ResourceExhaustedError", "DeadlineExceededError"),
)


class EndsAtOnceError(click.ClickException):
    """Say what is wrong, and end the process at once: libraries may crash while Python takes them down."""

    def show(self, file: IO[str] | None = None) -> None:
        super().show(file)
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.fileno() == 2:  # not where a caller in this process reads it
                sys.stdout.flush()
                os._exit(1)


def make_exception(message: str) -> click.ClickException:
    """Return an error with this message; where jax is loaded, one that ends the process at once.

    XLA's threads may still compute what was begun, and would use memory that the end of Python frees. What exit handlers would
    do is not missed: the error has left every `with` that writes, so that checkpoints, answers and curves are closed;
    the handlers left only wait for threads that read ahead, and the system frees locks and sockets.
    """
    return (EndsAtOnceError if "jax" in sys.modules else click.ClickException)(message)


def sentence(error: Exception) -> click.ClickException | None:
    """Return the sentence for an error that is not a bug, on one line: no name or value in it begins one. None for all others."""
    exception = _sentence(error)
    return exception and type(exception)(exception.message.replace("\n", " "))


def _sentence(error: Exception) -> click.ClickException | None:
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
    """Check whether an error says that there is no memory: for objects, for a library's code, or for a thread."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, ImportError) and any(words in str(error) for words in _NO_ROOM))
        or (isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_THREAD))
    )


def _missing(error: ModuleNotFoundError) -> click.ClickException | None:
    """Return the sentence for a missing package that an extra installs; None for any other, which is a bug."""
    name = (error.name or "").partition(".")[0]
    if name not in _EXTRAS:
        return None
    if _EXTRAS[name] == "train":
        from t5prep.training import need_tensorflow

        try:
            need_tensorflow()  # whose sentence also says where there is none for this Python
        except UsageError as error:
            return click.ClickException(str(error))
    return click.ClickException(f"This needs {name}, which is not installed. Get it: {install_command(_EXTRAS[name])}")


def _system(error: OSError) -> click.ClickException | None:
    """Return the sentence for an error of the operating system; None for a closed pipe, which click ends quietly."""
    if error.errno == errno.EPIPE:
        return None
    if isinstance(error, FileNotFoundError) and _folder_is_gone():
        return click.ClickException("The current folder was deleted. Change to another one: cd")
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return click.ClickException(f"{reason[:1].upper()}{reason[1:]}.")
    return click.ClickException(addresses.public_text(f"{_text(error.filename)} cannot be read or written ({reason})."))


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def _text(path: object) -> str:
    return path.decode(errors="replace") if isinstance(path, bytes) else str(path)
