"""`report`: a prepared dataset as one HTML page, for people who would rather look than read."""

from pathlib import Path

from t5prep import files
from t5prep.errors import UsageError


def write(data: str | Path, *, out: str | Path, tokenizer: str | None = None) -> Path:
    """Write the page of a prepared dataset, and say where it is.

    Nothing in it comes from the network, and the same data gives the same bytes. Datasets are read from gs:// as well;
    `tokenizer` is needed where the manifest's name no longer leads to it.
    Raises DatasetError, TokenizerError, OutputError, and UsageError where the extra `report` is not installed.
    """
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"report draws with {error.name}, which is missing. Get it: pip install 't5prep[report]'"
        ) from None
    from t5prep.report import dataset

    path = Path(out)
    files.write_whole(path, dataset.page(data, tokenizer=tokenizer).encode("utf-8", "replace"))
    return path


def default_out(data: str | Path) -> Path:
    """Where the page goes when nobody says: into a dataset on disk, else into the working directory."""
    return Path("report.html") if "://" in str(data) else Path(data) / "report.html"
