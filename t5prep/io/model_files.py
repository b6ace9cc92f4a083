"""Find the files of a model in a directory or in a Hub repository. From the Hub, files are fetched on demand."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

from t5prep.errors import UsageError
from t5prep.io import addresses, paths

# The file of sentence-transformers that lists a model's modules and their folders.
MODULES = "modules.json"
# The start of a Git LFS pointer: a small text that a clone without LFS has in place of a large file.
_LFS = b"version https://git-lfs.github.com/spec/v1"
# The advice for a name that is not found.
MODEL_NAME_HINT = "Pass a directory with config.json and weights, or a name such as google-t5/t5-base."


@dataclasses.dataclass(frozen=True)
class ModelFiles:
    """Hold the names of a model's files (`names`), and fetch or read one. `name` is the model as the user typed it.

    If sentence-transformers' `modules.json` is among the files, `names` includes files in folders: `1_Pooling/config.json`.
    """

    name: str
    names: frozenset[str]
    _path: Callable[[str], Path]

    def path(self, file: str) -> Path:
        """Return the path of `file` on this machine, after fetching the file if needed.

        Raises UsageError if it cannot be fetched, or is only a Git LFS pointer.
        """
        path = self._path(file)
        with contextlib.suppress(OSError), open(path, "rb") as opened:
            if opened.read(len(_LFS)) == _LFS:
                raise UsageError(
                    f"{path} is a Git LFS pointer, not the file itself. Fetch the file in its clone: git lfs pull",
                    code="model.lfs-pointer",
                )
        return path

    def read(self, file: str) -> bytes:
        """Return the content of `file`. Raises UsageError."""
        try:
            return self.path(file).read_bytes()
        except OSError as error:
            raise UsageError(
                f"{self.name}: {file} cannot be read ({error.strerror}).", code="model.unreadable"
            ) from error


def remember(name: str) -> None:
    """Record that this user has named the Hub repository `name`, so that a dataset may name it too (`find_known`)."""
    addresses.remember(_address(name))


def find_known(name: str) -> ModelFiles | None:
    """Return the files of a Hub repository that a stranger's file names.

    The Hub is asked only for a repository that this user has named before. Else the files are those in the Hub's cache on
    this machine, or None if there are none. Raises UsageError.
    """
    if addresses.is_known(_address(name)):
        return find(name)
    try:
        return _in_cache(name, "this user has never named it", KeyError(name))
    except UsageError:
        return None


def _address(name: str) -> str:
    """Return the form in which the name of a model on the Hub is remembered. It is no address of a source."""
    return f"hf:models/{name}"


def find(name: str | Path) -> ModelFiles:
    """Return the files of the model in the directory `name`, else of the Hub repository `name`, which the user has named.

    Raises UsageError if there is neither.
    """
    if Path(name).is_dir():
        return in_directory(Path(name), name=str(name))
    if "/" in str(name) and (suggestion := paths.mistyped(name)):
        raise UsageError(
            f"{name} does not exist.{suggestion} Pass a run, a directory with config.json, or a Hub name.",
            code="model.not-found",
        )
    files = _on_the_hub(str(name))
    remember(str(name))
    return files


def in_directory(folder: Path, *, name: str) -> ModelFiles:
    """Return the files directly in `folder`, and in its folders beside a `modules.json`. `name` is for errors."""
    paths_here = [path for path in folder.iterdir() if path.is_file()]
    if any(path.name == MODULES for path in paths_here):
        paths_here += [
            path for inner in folder.iterdir() if inner.is_dir() for path in inner.iterdir() if path.is_file()
        ]
    return ModelFiles(name, frozenset(path.relative_to(folder).as_posix() for path in paths_here), folder.joinpath)


def _on_the_hub(name: str) -> ModelFiles:
    """Return the files of the Hub repository `name`; if the Hub cannot be reached, those in its cache. Raises UsageError."""
    import huggingface_hub
    from huggingface_hub import errors

    try:
        info = huggingface_hub.HfApi().model_info(name, timeout=30)
    except (errors.HFValidationError, errors.HfHubHTTPError) as error:
        # Other statuses are failures of the Hub, and its cache on this machine may have the model.
        if not isinstance(error, errors.HfHubHTTPError) or error.response.status_code in (401, 403, 404):
            raise _refusal(name, error) from error
        return _in_cache(name, f"the Hugging Face Hub answers {error.response.status_code}", error)
    except (OSError, errors.HTTPError) as error:  # type: ignore[attr-defined]  # httpx's own; offline is an OSError
        return _in_cache(name, "the Hugging Face Hub cannot be reached", error)
    every = [sibling.rfilename for sibling in info.siblings or ()]
    depth = 1 if MODULES in every else 0
    files = frozenset(file for file in every if file.count("/") <= depth)

    def fetch(file: str) -> Path:
        """Return the path of `file` on this machine, of the commit that the repository had when it was opened."""
        try:
            fetched = Path(huggingface_hub.hf_hub_download(name, file))
        except (errors.HfHubHTTPError, errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
            status = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
            raise UsageError(
                f"{name}: {file} could not be fetched from the Hub ({status}). Try again later.", code="hub.unavailable"
            ) from error
        if fetched.parents[file.count("/")].name != info.sha:  # the files would come from two versions
            raise UsageError(
                f"{name} was changed on the Hub during the download. Run the command again.",
                code="hub.concurrent-change",
            )
        return fetched

    return ModelFiles(name, files, fetch)


def _in_cache(name: str, reason: str, error: Exception) -> ModelFiles:
    """Return the model's files in the Hub's cache on this machine. Raises UsageError with `reason` if there are none.

    `reason` says why the Hub was not used, and `error` is its cause.
    """
    from huggingface_hub import errors, snapshot_download

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, OSError):
        raise UsageError(
            f'"{name}" is not a local directory, and {reason}. Try again later, or pass a directory of this machine.',
            code="hub.unavailable",
        ) from error
    return in_directory(folder, name=name)


def _refusal(name: str, error: Exception) -> UsageError:
    """Return the error that says why the Hub does not give this model to this user."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return UsageError(
            f"{name} is gated. Accept its terms at https://huggingface.co/{name}, and log in with `hf auth login`.",
            code="hub.gated-repository",
        )
    return UsageError(
        f'"{name}" is neither a local directory nor a model that you can read on the Hugging Face Hub. If the model is '
        f"private, log in with `hf auth login`. {MODEL_NAME_HINT}",
        code="hub.not-found",
    )
