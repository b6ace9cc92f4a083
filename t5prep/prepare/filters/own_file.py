"""Load a filter from a user's own file: a function in it."""

import dataclasses
import types
from collections.abc import Callable
from pathlib import Path

from t5prep.errors import Reject, T5prepError, UsageError, did_you_mean
from t5prep.prepare.filters import user_files


@dataclasses.dataclass(frozen=True)
class OwnFilter:
    """Apply a function of the user's to texts: it returns the text that goes on, or raises Reject. `files` has its file."""

    function: Callable[[str], str]
    name: str
    files: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """Return what the function returns. Raises Reject, and UsageError where it returns no text."""
        try:
            result = self.function(text)
        except (Reject, T5prepError):
            raise
        except (Exception, SystemExit) as error:
            excerpt = " ".join(text.split())[:60]
            raise UsageError(
                f'--filter {self.name} fails at the text "{excerpt}" ({type(error).__name__}: {error})'
            ) from error
        if not isinstance(result, str):
            raise UsageError(f"--filter {self.name} returned {result!r}: it must return the text, or raise Reject(why)")
        return result


def load(path: str, name: str) -> OwnFilter:
    """Return the filter that is the function `name` of the Python file at `path`. Raises UsageError."""
    try:
        source = user_files.read(path)
    except OSError as error:
        raise UsageError(f"--filter {path}:{name}: the file cannot be read ({error.strerror})") from None
    module = types.ModuleType(Path(path).stem)
    module.__file__ = path
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise UsageError(f"--filter {path}:{name}: the file cannot be run ({type(error).__name__}: {error})") from error
    functions = [key for key, value in vars(module).items() if isinstance(value, types.FunctionType)]
    if not callable(function := getattr(module, name, None)):
        has = f" It has: {', '.join(functions)}" if functions else ""
        raise UsageError(
            f'--filter {path}:{name}: the file has no function "{name}".{did_you_mean(name, functions)}{has}'
        )
    return OwnFilter(function, f"{path}:{name}", (path,))
