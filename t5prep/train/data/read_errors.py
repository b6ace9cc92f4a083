"""Give batches to Python, and turn what stops reading them into one sentence."""

import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from t5prep.errors import DatasetError

# TensorFlow hands on the traceback of an exception as text; the exception itself is its last line.
_OURS = re.compile(r"^t5prep\.errors\.\w+: (.+)$", re.MULTILINE)
# The names of nodes of the graph, before and after a message.
_NODES = re.compile(r"^\{\{.*?\}\} |\s*\[(\[|Op:).*$")


def arrays(batches: tf.data.Dataset) -> Iterator[dict[str, Any]]:
    """Yield batches as numpy arrays. Raises DatasetError where a shard cannot be read or was altered."""
    return explained(batches.as_numpy_iterator())


def explained(batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield batches. Raises DatasetError where TensorFlow cannot read one."""
    try:
        yield from batches
    except tf.errors.OpError as error:
        ours = _OURS.findall(error.message)
        why = _NODES.sub("", error.message.partition("\n")[0])
        raise DatasetError(
            ours[-1] if ours else f"The data cannot be read ({why}). Check it: t5prep verify DATA"
        ) from error
