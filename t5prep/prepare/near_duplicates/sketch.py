"""What the search for near-duplicates needs of one block: its sorted LSH bands and the shingles of each row."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.io import atomic_files
from t5prep.prepare.near_duplicates import minhash
from t5prep.prepare.near_duplicates.minhash import Bands
from t5prep.prepare.near_duplicates.shingles import Shingles

# One row that can repeat another. `high` and `low` are its position, `split` where it goes, `row` its place in its file.
ROWS = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.string()),
        ("split", pa.string()),
        ("high", pa.uint64()),
        ("low", pa.uint64()),
        ("shingles", pa.list_(pa.uint64())),
    ]
)


@dataclasses.dataclass(frozen=True)
class Sketch:
    """The bands and rows of one block: `bands` entries, then the table of ROWS as Arrow's IPC.

    The `size` bytes are in `data`, or in the file at `path`.
    """

    file: str
    first_row: int
    rows: int
    bands: int
    size: int = 0
    data: bytes = b""
    path: str = ""

    @property
    def table_begins(self) -> int:
        """Return where the table begins: Arrow reads buffers in place that lie on 64 bytes."""
        return -(-12 * self.bands // 64) * 64

    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of all bands, `uint64[bands]` sorted, and the place of each one's row, `uint32[bands]`."""
        if self.path:
            values: np.ndarray = np.memmap(self.path, np.uint64, "r", shape=(self.bands,))
            return values, np.memmap(self.path, np.uint32, "r", offset=8 * self.bands, shape=(self.bands,))
        values = np.frombuffer(self.data, np.uint64, self.bands)
        return values, np.frombuffer(self.data, np.uint32, self.bands, offset=8 * self.bands)

    def part(self, places: np.ndarray) -> "RowsOfSketch":
        """Return the rows with these numbers, in their order: without a copy where they lie in a file."""
        if self.path:
            return RowsOfSketch(self.file, self, places)
        table = pa.ipc.open_stream(pa.py_buffer(self.data)[self.table_begins :]).read_all()
        return RowsOfSketch(self.file, table.take(pa.array(places)))

    def spooled(self, path: Path) -> "Sketch":
        """Write the bytes to a file that need not outlive the run, and return the sketch that reads them there."""
        atomic_files.write_scratch(path, self.data)
        return dataclasses.replace(self, data=b"", path=str(path))


class RowsOfSketch(NamedTuple):
    """Rows of a file: as a table (ROWS), or as places in a sketch whose bytes are in a file of this machine."""

    file: str
    there: pa.Table | Sketch
    places: np.ndarray | None = None

    def read(self) -> pa.Table:
        """Return the rows (ROWS)."""
        if not isinstance(self.there, Sketch):
            return self.there
        with pa.memory_map(self.there.path) as opened:
            opened.seek(self.there.table_begins)
            return pa.ipc.open_stream(opened).read_all().take(pa.array(self.places))


def sketch(table: pa.Table, *, file: str, first_row: int, bands: Bands) -> Sketch:
    """Return the sketch of a block's rows (ROWS). Rows without a shingle repeat nothing and are left out."""
    table = table.filter(pc.greater(pc.list_value_length(table["shingles"]), 0))
    values = np.zeros((0, bands.bands), np.uint64)
    if len(table):
        signatures = minhash.signatures(of_lists(table["shingles"]), hashes=bands.bands * bands.rows)
        values = minhash.band_values(signatures, bands=bands)
    order = np.argsort(values, axis=None, kind="stable")
    places = (order // bands.bands).astype(np.uint32)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS) as writer:
        writer.write_table(table)
    sketch = Sketch(file, first_row, len(table), len(order))
    index = values.reshape(-1)[order].tobytes() + places.tobytes()
    data = index.ljust(sketch.table_begins, b"\0") + sink.getvalue().to_pybytes()
    return dataclasses.replace(sketch, size=len(data), data=data)


def of_lists(column: pa.ChunkedArray) -> Shingles:
    """Return a column of lists as one array and where each list begins, without a copy where it is one chunk."""
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    lists = pa.concat_arrays(chunks) if chunks else pa.array([], column.type)
    begins = lists.offsets.to_numpy().astype(np.int64)
    return Shingles(lists.values.to_numpy()[begins[0] : begins[-1]], begins - begins[0])
