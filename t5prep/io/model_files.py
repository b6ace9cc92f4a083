"""The files of a model by their names: a directory's, or a Hub repository's, of which only what is asked for is fetched."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t5prep.errors import UsageError
from t5prep.io import suggestions

# What to type instead of a name that leads nowhere.
WANTED = "pass a directory with config.json and weights, or a name such as google-t5/t5-base."


@dataclasses.dataclass(frozen=True)
class ModelFiles:
    """A model's files. `name` is the model as the user named it; `names` are the files there are."""

    name: str
    names: frozenset[str]
    _path: Callable[[str], Path]

    def path(self, file: str) -> Path:
        """Return where a file lies on this machine, fetched first if need be. Raises UsageError when it cannot be."""
        return self._path(file)

    def read(self, file: str) -> bytes:
        """Return a file's content. Raises UsageError."""
        try:
            return self.path(file).read_bytes()
        except OSError as error:
            raise UsageError(f"{self.name}: {file} cannot be read ({error.strerror}).") from error


def find(name: str | Path) -> ModelFiles:
    """Return the files of a model: of the directory `name`, else of the Hub's repository of that name.

    Raises UsageError when there is neither.
    """
    if Path(name).is_dir():
        return in_directory(Path(name), name=str(name))
    if "/" in str(name) and (meant := suggestions.mistyped(name)):
        raise UsageError(f"{name} does not exist.{meant} Pass a run, a directory with config.json, or a Hub name.")
    return _on_the_hub(str(name))


def in_directory(folder: Path, *, name: str) -> ModelFiles:
    """Return the files right in a directory, under the name that errors shall say."""
    return ModelFiles(name, frozenset(path.name for path in folder.iterdir() if path.is_file()), folder.joinpath)


def _on_the_hub(name: str) -> ModelFiles:
    import huggingface_hub
    from huggingface_hub import errors

    try:
        info = huggingface_hub.HfApi().model_info(name, timeout=30)
    except (errors.HFValidationError, errors.HfHubHTTPError) as error:
        if not isinstance(error, errors.HfHubHTTPError) or error.response.status_code in (401, 403, 404):
            raise UsageError(_refused(name, error)) from error
        return _in_cache(name, f"the Hugging Face Hub answers {error.response.status_code}", error)
    except (OSError, errors.HTTPError) as error:  # type: ignore[attr-defined]  # httpx's own; offline is an OSError
        return _in_cache(name, "the Hugging Face Hub cannot be reached", error)
    files = frozenset(one.rfilename for one in info.siblings or () if "/" not in one.rfilename)

    def fetch(file: str) -> Path:
        try:
            found = Path(huggingface_hub.hf_hub_download(name, file))
        except (errors.HfHubHTTPError, errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
            status = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
            raise UsageError(
                f"{name}: {file} could not be fetched from the Hub ({status}). Try again later."
            ) from error
        if found.parent.name != info.sha:  # its files would be of two models
            raise UsageError(f"{name} was changed on the Hub just now. Run this again.")
        return found

    return ModelFiles(name, files, fetch)


def _in_cache(name: str, why: str, error: Exception) -> ModelFiles:
    """Return what was fetched of a model before, as far as it was. Raises UsageError where nothing was."""
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, OSError):
        raise UsageError(f'"{name}" is no directory, and {why}: {WANTED}') from error
    return in_directory(folder, name=name)


def _refused(name: str, error: Any) -> str:
    """Return why the Hub gives no such model to this user."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return f"{name} is gated: accept its terms at https://huggingface.co/{name}, and log in with `hf auth login`."
    return (
        f'"{name}" is no directory, and the Hugging Face Hub has no such model, or it is private and you are not logged in'
        f" (`hf auth login`): {WANTED}"
    )
