"""Find the files of a model in a directory, or in a Hub repository, from which only files asked for are fetched."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

from t5prep.errors import UsageError
from t5prep.io import paths

# The file by which sentence-transformers knows the folders of a model.
MODULES = "modules.json"
# How the small text begins that Git keeps in place of a large file.
_LFS = b"version https://git-lfs.github.com/spec/v1"
# The advice for a name that is not found.
MODEL_NAME_HINT = "pass a directory with config.json and weights, or a name such as google-t5/t5-base."


@dataclasses.dataclass(frozen=True)
class ModelFiles:
    """List a model's files. `name` is the model as the user named it; `names` are the names of its files.

    Beside sentence-transformers' `modules.json` they are also those of the files in its folders, as `1_Pooling/config.json`.
    """

    name: str
    names: frozenset[str]
    _path: Callable[[str], Path]

    def path(self, file: str) -> Path:
        """Return the path of a file on this machine, fetched first if needed.

        Raises UsageError when it cannot be fetched, or is only Git LFS's pointer to the file.
        """
        path = self._path(file)
        with contextlib.suppress(OSError), open(path, "rb") as opened:
            if opened.read(len(_LFS)) == _LFS:
                raise UsageError(
                    f"{path} is a Git LFS pointer: the file itself was not fetched. Fetch it there: git lfs pull"
                )
        return path

    def read(self, file: str) -> bytes:
        """Return a file's content. Raises UsageError."""
        try:
            return self.path(file).read_bytes()
        except OSError as error:
            raise UsageError(f"{self.name}: {file} cannot be read ({error.strerror}).") from error


def find(name: str | Path) -> ModelFiles:
    """Return the files of a model: of the directory `name`, else of the Hub repository of that name.

    Raises UsageError when there is neither.
    """
    if Path(name).is_dir():
        return in_directory(Path(name), name=str(name))
    if "/" in str(name) and (suggestion := paths.mistyped(name)):
        raise UsageError(f"{name} does not exist.{suggestion} Pass a run, a directory with config.json, or a Hub name.")
    return _on_the_hub(str(name))


def in_directory(folder: Path, *, name: str) -> ModelFiles:
    """Return the files directly in a directory; `name` is used in errors."""
    paths_here = [path for path in folder.iterdir() if path.is_file()]
    if any(path.name == MODULES for path in paths_here):
        paths_here += [
            path for inner in folder.iterdir() if inner.is_dir() for path in inner.iterdir() if path.is_file()
        ]
    return ModelFiles(name, frozenset(path.relative_to(folder).as_posix() for path in paths_here), folder.joinpath)


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
    every = [sibling.rfilename for sibling in info.siblings or ()]
    depth = 1 if MODULES in every else 0
    files = frozenset(file for file in every if file.count("/") <= depth)

    def fetch(file: str) -> Path:
        try:
            fetched = Path(huggingface_hub.hf_hub_download(name, file))
        except (errors.HfHubHTTPError, errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
            status = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
            raise UsageError(
                f"{name}: {file} could not be fetched from the Hub ({status}). Try again later."
            ) from error
        if fetched.parents[file.count("/")].name != info.sha:  # the files would come from two versions
            raise UsageError(f"{name} was changed on the Hub just now. Run this again.")
        return fetched

    return ModelFiles(name, files, fetch)


def _in_cache(name: str, reason: str, error: Exception) -> ModelFiles:
    """Return the files of a model that were fetched before. Raises UsageError if there are none."""
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, OSError):
        raise UsageError(
            f'"{name}" is not a directory, and {reason}. Try again when it answers, or pass a directory of this machine.'
        ) from error
    return in_directory(folder, name=name)


def _refused(name: str, error: Exception) -> str:
    """Return the sentence that says why the Hub does not give this model to this user."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return f"{name} is gated: accept its terms at https://huggingface.co/{name}, and log in with `hf auth login`."
    return (
        f'"{name}" is not a directory, and the Hugging Face Hub has no such model, or it is private and you are not logged in'
        f" (`hf auth login`): {MODEL_NAME_HINT}"
    )
