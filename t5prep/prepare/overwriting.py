"""Replace a prepared dataset by another one, and move the old one away only when the new one is whole."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from t5prep.dataset import manifest
from t5prep.errors import DatasetError, OutputError, UsageError
from t5prep.io import gcs
from t5prep.prepare import output_folder
from t5prep.prepare.output_folder import Identity

# Endings of the folders beside the dataset's: where the new one is prepared, and where the old one goes.
NEW, OLD = ".t5prep-new", ".replaced"


@contextlib.contextmanager
def claimed(out: str, *, same: Identity, overwrite: bool) -> Iterator[str]:
    """Yield the place where a dataset is written: `out` itself, or a folder beside it where `out` holds another dataset.

    With `overwrite`, another dataset in `out` is replaced: the new one is written beside it, and when it is whole, the
    old folder is renamed to `OUT.replaced` and the new one takes its place. A run that is killed before that leaves the
    old dataset as it is, and the same command goes on. Without `overwrite`, another dataset is refused. Raises
    OutputError for a folder that holds files of anyone else, and UsageError for a bucket.
    """
    if overwrite and gcs.is_gs(out):
        raise UsageError(f"--overwrite: {out} is in a bucket, where nothing can be renamed. Choose another --out")
    final = output_folder.resolved(out)
    new = final.with_name(final.name + NEW)
    if overwrite and not final.exists() and (new / manifest.NAME).is_file():
        _move(new, final)  # an earlier run was killed between its two renamings
    if not (overwrite and _holds_another(final, out, same)):
        with output_folder.claimed(out, same=same):
            yield out
        return
    with output_folder.claimed(new, same=same):
        yield str(new)
    old = _free(final)
    _move(final, old)
    _move(new, final)
    print(f"{out}: the dataset that was here is now in {old}. Remove it when it is not needed.", file=sys.stderr)


def _holds_another(final: Path, out: str, same: Identity) -> bool:
    """Check whether a folder holds another dataset, and nothing else. Raises OutputError where it holds more."""
    if not (final / manifest.NAME).is_file():
        return False
    try:
        if output_folder.identity(manifest.load(final)) == same:
            return False
    except DatasetError:
        return False  # whose manifest it is cannot be told: it is refused as a stranger's
    entries = sorted(path.name for path in final.iterdir())
    if output_folder.MARKER in entries:
        raise OutputError(f"--overwrite: {out} is being prepared by another t5prep, or one was killed there.")
    if strangers := [name for name in entries if not output_folder.is_of_dataset(name)]:
        raise OutputError(
            f"--overwrite: {out} also holds {strangers[0]}, which is not part of a dataset. Move it away, or choose "
            "another --out."
        )
    return True


def _free(final: Path) -> Path:
    """Return a name beside a folder that nothing has yet: `data.replaced`, `data.replaced-2`, and so on."""
    number, old = 1, final.with_name(final.name + OLD)
    while os.path.lexists(old):
        number += 1
        old = final.with_name(f"{final.name}{OLD}-{number}")
    return old


def _move(there: Path, to: Path) -> None:
    """Rename a folder. Raises OutputError that says where the new dataset is."""
    try:
        there.rename(to)
    except OSError as error:
        raise OutputError(f"{there} cannot be renamed to {to} ({error.strerror}). Nothing was removed.") from error
