"""Show a prepared dataset or a training run as one HTML page."""

from pathlib import Path

from t5prep.dataset import manifest
from t5prep.errors import DatasetError, UsageError
from t5prep.io import atomic_files, paths

PAGE = b"<!doctype html>"  # the start of a page: an existing file is replaced only if it has this start


def write(
    data: str | Path, *, out: str | Path, tokenizer: str | None = None, answers: str | Path | None = None
) -> Path:
    """Write the page of a prepared dataset or of a training run to `out`, and return its path.

    The page loads nothing from the network, and equal data gives equal bytes.

    * data: a dataset or a run, also on gs://.
    * tokenizer: the dataset's tokenizer, if the one in the manifest cannot be found.
    * answers: the output of `t5prep eval --predictions` for a run.

    Raises DatasetError, TokenizerError, UsageError, OutputError, and ModuleNotFoundError without the extra `report`.
    """
    from t5prep.report import dataset_page, training_report  # imported here, because jinja2 and matplotlib are an extra

    if training_report.is_run(data):
        if tokenizer:
            raise UsageError(
                f"--tokenizer {tokenizer} is for a dataset, but {data} is a run. Remove --tokenizer.",
                code="option.inapplicable",
            )
        page = training_report.page(data, answers=answers)
    elif answers:
        raise UsageError(
            f"--answers {answers} needs a training run, but {data} is not a run. Name a run, or remove --answers.",
            code="run.foreign-folder",
        )
    elif "://" not in str(data) and not Path(data).exists():
        raise DatasetError(
            f"{data} does not exist.{paths.mistyped(data)} Name a prepared dataset, or a training run.",
            code="dataset.not-found",
        )
    else:
        page = dataset_page.page(data, tokenizer=tokenizer)
    path = Path(out)
    write_page(path, page)
    return path


def write_page(path: Path, page: str, *, option: str = "--out") -> None:
    """Write a page atomically. Raises OutputError, also if it would replace a file that is not a page."""
    atomic_files.check_writable(path, begins=PAGE, option=option)
    atomic_files.write_whole(path, page.encode("utf-8", "replace"), option=option)


def default_out(data: str | Path) -> Path:
    """Return the default path of a page: `report.html` in the folder of the data, or for gs:// in the current folder."""
    return Path("report.html") if "://" in str(data) else Path(manifest.folder_of(data)) / "report.html"
