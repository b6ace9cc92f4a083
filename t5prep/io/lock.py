"""A prefix in a bucket, claimed by one run at a time: what stands for a directory's lock, which a bucket has not."""

import json
from collections.abc import Mapping

from t5prep.errors import OutputError
from t5prep.io import atomic_files, gcs

# While it is there, a dataset is on its way, and it says which.
MARKER = f"{atomic_files.UNFINISHED}t5prep"


def claim(place: str, what: Mapping[str, str]) -> None:
    """Says that `what` is on its way to a prefix. A run of the same, cut off earlier, is taken up again.

    Two runs of the same write the same bytes, so they may meet. Raises OutputError when it is something else.
    """
    mark = json.dumps(what, sort_keys=True).encode()
    try:
        gcs.write(f"{place}/{MARKER}", mark, generation=0)
    except FileExistsError:
        if gcs.read(f"{place}/{MARKER}") != mark:
            raise OutputError(
                f"Another dataset is on its way to {place}, or was cut off. Let it finish, choose another prefix, or "
                f"give it up: gcloud storage rm -r {place}"
            ) from None
    except FileNotFoundError:
        raise OutputError(f"{place} cannot be written: there is no bucket {gcs.split(place)[0]}.") from None


def release(place: str) -> None:
    """It has arrived."""
    gcs.delete(f"{place}/{MARKER}")
