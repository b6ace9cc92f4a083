"""Show a prepared dataset or a training run as one HTML page: manifest or run in, page out."""

from pathlib import Path

from t5prep.dataset import manifest
from t5prep.errors import DatasetError, UsageError
from t5prep.io import atomic_files, paths

PAGE = b"<!doctype html>"  # how a page begins: only a page is replaced by another


def write(
    data: str | Path, *, out: str | Path, tokenizer: str | None = None, answers: str | Path | None = None
) -> Path:
    """Write the page of a prepared dataset, or of a training run, and return its path.

    The page loads nothing from the network, and the same data gives the same bytes. Datasets are read from gs:// too;
    `tokenizer` is needed where the manifest's name no longer leads to it; `answers` is the file that
    `t5prep eval --predictions` wrote, for a run.
    Raises DatasetError, TokenizerError, OutputError, and ModuleNotFoundError if the extra `report` is not installed.
    """
    from t5prep.report import dataset, training

    if training.is_run(data):
        page = training.page(data, answers=answers)
    elif answers:
        raise UsageError(f"{data} is not a training run, and answers (--answers {answers}) are of one.")
    elif "://" not in str(data) and not Path(data).exists():
        raise DatasetError(f"{data} does not exist.{paths.mistyped(data)} Name a prepared dataset, or a training run.")
    else:
        page = dataset.page(data, tokenizer=tokenizer)
    path = Path(out)
    write_page(path, page)
    return path


def write_page(path: Path, page: str, *, option: str = "--out") -> None:
    """Write a page, complete or not at all. Raises OutputError, also where it would replace a file that is no page."""
    atomic_files.check_writable(path, begins=PAGE, option=option)
    atomic_files.write_whole(path, page.encode("utf-8", "replace"), option=option)


def default_out(data: str | Path) -> Path:
    """Return the default path of the page: in the folder of the data, or in the working directory for data on gs://."""
    return Path("report.html") if "://" in str(data) else Path(manifest.folder_of(data)) / "report.html"
