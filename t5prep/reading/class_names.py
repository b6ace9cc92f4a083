"""Find the names of numbered classes: in the metadata of Parquet files, else as the source's card gives them."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from t5prep import sources
from t5prep.reading import formats
from t5prep.sources import Resolved

# The key under which Hugging Face's `datasets` describes the columns of a Parquet file.
_KEY = b"huggingface"


def of_source(source: Resolved, column: str) -> list[str]:
    """Return the names of a column's classes, the name of 0 first; [] where the source gives none.

    Raises SourceError for a file that cannot be opened.
    """
    first = source.files[0]
    if formats.unpacked(first.name).endswith(".parquet"):
        with sources.open_random(first) as file:
            try:
                schema = pyarrow.parquet.read_schema(file)
            except (pa.ArrowException, OSError):
                return []  # what is wrong with it is said where it is read
        if column not in schema.names or not pa.types.is_integer(schema.field(column).type):
            return []
        if names := of_schema(schema, column):
            return names
    return list(source.class_names.get(column, ()))


def of_schema(schema: pa.Schema, column: str) -> list[str]:
    """Return the names of a column's classes that the schema's metadata has; [] where it has none."""
    try:
        features = json.loads((schema.metadata or {})[_KEY])["info"]["features"]
        feature: Any = features[column]
        names = feature["names"]
    except (KeyError, TypeError, ValueError):
        return []
    return [str(name) for name in names] if isinstance(names, list) and feature.get("_type") == "ClassLabel" else []


def label_map(names: Sequence[str]) -> str:
    """Return `0=World,1=Sports`, as the option --label-map takes it; "" where a name cannot be written so.

    >>> label_map(["World", "Sports"])
    '0=World,1=Sports'
    """
    if any("," in name or "=" in name or not name.strip() for name in names) or len(set(names)) != len(names):
        return ""
    return ",".join(f"{number}={name.strip()}" for number, name in enumerate(names))
