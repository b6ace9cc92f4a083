"""Describe the table of features that a block of rows is made into."""

import pyarrow as pa

# One row of the source, in the order of the source. A row with a `reason` made no example. `same` is a digest of the
# input's text, where a text that stands twice is to be found; `shingles` are its own, where near-duplicates are. `group`
# decides its split, where it has one, instead of its id.
# `changed` are the filters that changed its text. A row that a filter rejected has `tokens`: what the dataset lost.
SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.string()),
        ("reason", pa.string()),
        ("split", pa.string()),
        ("inputs", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int32())),
        ("references", pa.list_(pa.string())),
        ("tokens", pa.int32()),
        ("target_tokens", pa.int32()),
        ("markup", pa.bool_()),
        ("same", pa.string()),
        ("group", pa.string()),
        ("shingles", pa.list_(pa.uint64())),
        ("changed", pa.list_(pa.string())),
    ]
)
