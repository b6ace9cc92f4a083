"""Convert errors that are not bugs to one sentence for the user, without a traceback."""

import contextlib
import errno
import json
import os
import sys
from typing import IO

import click

from t5prep.errors import T5prepError, UsageError, shortened
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


# Errors of click that say no code of their own → the code.
_CLICK_CODES = (
    (click.NoSuchOption, "option.unknown"),
    (click.MissingParameter, "option.missing"),
    (click.BadParameter, "option.malformed"),
    (click.BadOptionUsage, "option.malformed"),
)
# What click raises to show the help of a group without a command; older ones raise nothing.
_HELP: tuple[type[Exception], ...] = tuple(filter(None, [getattr(click.exceptions, "NoArgsIsHelpError", None)]))


class CodedError(click.ClickException):
    """Print a sentence that ends with the code of its error: exit code 1."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(f"{message} [{code}]")
        self.sentence, self.code = message, code


class CodedUsageError(click.UsageError):
    """Print how a command is called, and a sentence that ends with the code of its error: exit code 2."""

    def __init__(self, message: str, ctx: click.Context | None = None, *, code: str) -> None:
        super().__init__(f"{message} [{code}]", ctx)
        self.sentence, self.code = message, code


class EndsAtOnceError(CodedError):
    """End the process as soon as the sentence is printed: libraries may crash while Python takes them down."""

    def show(self, file: IO[str] | None = None) -> None:
        """Print the message, flush stdout, and end the process with exit code 1."""
        super().show(file)
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.fileno() == 2:  # not if a caller in this process, such as a test, captures stderr
                sys.stdout.flush()
                os._exit(1)


def make_exception(message: str, *, code: str) -> CodedError:
    """Return an error with this message; where jax is loaded, one that ends the process at once.

    XLA's threads may still run a computation, and would use memory that the shutdown frees. Skipping exit handlers is safe.
    The exception has left every `with` block, so checkpoints, answers and curves are closed. The remaining handlers only
    wait for threads that read ahead, and the system frees locks and sockets.
    """
    return (EndsAtOnceError if "jax" in sys.modules else CodedError)(message, code=code)


def add_code(error: click.UsageError) -> click.UsageError:
    """Return an error of click with a code at the end of its sentence; click's way to show help stays as it is."""
    if isinstance(error, (CodedUsageError, *_HELP)):
        return error
    code = next((code for kind, code in _CLICK_CODES if isinstance(error, kind)), "option.unexpected-argument")
    return CodedUsageError(error.format_message(), error.ctx, code=code)


def print_json(error: CodedError | CodedUsageError) -> None:
    """Print an error as the last line of a command that prints JSON: `{"error": {"code": ..., "message": ...}}`."""
    with contextlib.suppress(OSError):  # nobody reads stdout any more
        click.echo(json.dumps({"error": {"code": error.code, "message": error.sentence}}))


def sentence(error: Exception) -> CodedError | None:
    """Return the sentence for an error that is not a bug, on one line: no name or value in it begins one. None for all others."""
    exception = _sentence(error)
    return exception and type(exception)(shortened(exception.sentence.replace("\n", " ")), code=exception.code)


def _sentence(error: Exception) -> CodedError | None:
    if isinstance(error, T5prepError):
        return make_exception(addresses.public_text(str(error)), code=error.code)
    if isinstance(error, ModuleNotFoundError):
        return _missing(error)
    if _of_memory(error):
        return EndsAtOnceError(
            "This machine has too little memory for the command, or `ulimit -v` or `ulimit -u` allows too little. Free some "
            "memory, or raise the limit.",
            code="pipeline.out-of-memory",
        )
    if isinstance(error, OSError):
        return _system(error)
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        return CodedError(
            "A name holds bytes that are not text in UTF-8. Rename it, or type it again.", code="file.invalid-name"
        )
    if _NETWORK & {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(error).__mro__}:
        return CodedError(
            f"The network does not answer: {str(error) or type(error).__name__}. Run the same command again later.",
            code="hub.unavailable",
        )
    if type(error).__module__.startswith("tensorflow."):
        message = (getattr(error, "message", "") or str(error)).splitlines()[0]
        name, of_disk = type(error).__name__, message.endswith(os.strerror(errno.EIO))
        if name not in _TENSORFLOW and not (name == "UnknownError" and of_disk):
            return None
        return CodedError(f"TensorFlow says: {message}", code="file.inaccessible")
    return None


def _of_memory(error: Exception) -> bool:
    """Check whether the cause of an error is missing memory: for objects, for a library's code, or for a thread."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, ImportError) and any(words in str(error) for words in _NO_ROOM))
        or (isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_THREAD))
    )


def _missing(error: ModuleNotFoundError) -> CodedError | None:
    """Return the sentence for a missing package that an extra installs; None for any other, which is a bug."""
    name = (error.name or "").partition(".")[0]
    if name not in _EXTRAS:
        return None
    if _EXTRAS[name] == "train":
        from t5prep.training import need_tensorflow

        try:
            need_tensorflow()  # its message differs if there is no TensorFlow for this Python
        except UsageError as error:
            return CodedError(str(error), code=error.code)
    return CodedError(
        f"The command needs {name}, which is not installed. Install it: {install_command(_EXTRAS[name])}",
        code="install.extra-missing",
    )


def _system(error: OSError) -> CodedError | None:
    """Return the sentence for an error of the operating system; None for a closed pipe, which click ends quietly."""
    if error.errno == errno.EPIPE:
        return None
    if isinstance(error, FileNotFoundError) and _folder_is_gone():
        return CodedError("The current folder was deleted. Change to another one: cd", code="terminal.deleted-folder")
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return CodedError(f"{reason[:1].upper()}{reason[1:]}.", code="file.inaccessible")
    return CodedError(
        addresses.public_text(f"{_text(error.filename)} cannot be read or written ({reason})."),
        code="file.inaccessible",
    )


def _folder_is_gone() -> bool:
    """Check whether the current folder was deleted, after which every relative path fails."""
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def _text(path: object) -> str:
    return path.decode(errors="replace") if isinstance(path, bytes) else str(path)
