"""Lock a prefix in a bucket for one run at a time, because a bucket has no locks of its own."""

import json
from collections.abc import Mapping

from t5prep.errors import OutputError
from t5prep.io import atomic_files, gcs

# While this object exists, a dataset is being written there; its content says which.
MARKER = f"{atomic_files.UNFINISHED}t5prep"


def claim(place: str, what: Mapping[str, str]) -> None:
    """Lock a prefix for writing `what`. A lock that an interrupted run of the same `what` left is taken over.

    Two runs of the same `what` write the same bytes, so they may overlap. Raises OutputError when the prefix is locked
    for something else.
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
    """Release the lock."""
    gcs.delete(f"{place}/{MARKER}")
