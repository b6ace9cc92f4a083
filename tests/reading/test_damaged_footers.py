"""Damage the footer of a Parquet file: its rows are read, or one sentence refuses it, in little time.

Arrow ends the whole process for some damage, and takes counts in a footer as they are.
"""

import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from random_seeds import seeds

from t5prep import sources
from t5prep.errors import SourceError
from t5prep.reading import blocks, columns, parquet_rows
from t5prep.reading.formats import Format

SEEDS = seeds(400)
NUMBERS = (2**62, -1, 2**31)
COLUMNS = ("text", "label")


def table() -> pa.Table:
    texts = [{"a": f"x {i}", "b": [f"y {i}", None]} for i in range(20)]
    return pa.table({"text": [f"text {i}" for i in range(20)], "label": ["a", "b"] * 10, "nested": texts})


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    path = tmp_path / "good.parquet"
    pq.write_table(table(), path, store_schema=False)
    return path.read_bytes()


def footer(content: bytes) -> bytes:
    return content[-8 - struct.unpack("<I", content[-8:-4])[0] : -8]


def with_footer(content: bytes, new: bytes) -> bytes:
    return content[: -8 - len(footer(content))] + new + struct.pack("<I", len(new)) + b"PAR1"


def zigzag(value: int) -> bytes:
    """Return a number as Thrift's compact protocol writes it.

    >>> zigzag(-1), zigzag(300)
    (b'\\x01', b'\\xd8\\x04')
    """
    rest, digits = value << 1 if value >= 0 else ~(value << 1), bytearray()
    while rest > 127:
        digits.append(rest & 127 | 128)
        rest >>= 7
    return bytes(digits) + bytes([rest])


def forged_numbers(footer: bytes) -> Iterator[bytes]:
    """Yield a footer for each value of NUMBERS in place of each of its whole numbers."""
    for begin in range(len(footer) - 1):
        if footer[begin] & 15 in (5, 6) and 1 <= footer[begin] >> 4 <= 9:  # a field's header: i32 or i64
            end = begin + 1
            while footer[end] & 128:
                end += 1
            for number in NUMBERS:
                yield footer[: begin + 1] + zigzag(number) + footer[end + 1 :]


def fault(path: Path, content: bytes) -> str:
    """Return what is wrong with how a file is read; "" if it is read, or refused in a sentence."""
    path.write_bytes(content)
    began = time.process_time()
    try:
        (file,) = sources.resolve(str(path)).files
        for block in blocks.scan(file, Format("parquet")):
            present = [name for name in COLUMNS if name in block.columns]
            columns.read(block, names=present)
            for _ in blocks.read(block, columns=present):
                pass
            parquet_rows.digest(file, block.begin, columns=present)
            parquet_rows.digest(file, block.begin, columns=())
    except SourceError:
        return ""
    except Exception as error:
        return repr(error)
    return "" if time.process_time() - began < 2 else f"{time.process_time() - began:.1f} s"


def test_any_number_of_a_footer(tmp_path: Path, content: bytes) -> None:
    for number, new in enumerate(forged_numbers(footer(content))):
        path = tmp_path / f"{number}.parquet"
        assert not (wrong := fault(path, with_footer(content, new))), wrong
        path.unlink()


@pytest.mark.fuzz
def test_drawn_bytes_of_a_footer(tmp_path: Path, content: bytes) -> None:
    for seed in SEEDS:
        draw, new = random.Random(seed), bytearray(footer(content))
        for _ in range(draw.choice((1, 1, 2, 4))):
            new[draw.randrange(len(new))] = draw.choice((0, 127, 128, 255, draw.randrange(256)))
        path = tmp_path / f"{seed}.parquet"
        wrong = fault(path, with_footer(content, bytes(new)))
        assert not wrong, f"seed {seed}: {wrong}"
        path.unlink()


def test_a_size_that_no_row_group_has_makes_no_million_parts(tmp_path: Path, content: bytes) -> None:
    size = pq.ParquetFile(tmp_path / "good.parquet").metadata.row_group(0).total_byte_size
    new = footer(content).replace(zigzag(size), zigzag(2**62))
    path = tmp_path / "forged.parquet"
    path.write_bytes(with_footer(content, new))
    with path.open("rb") as opened:
        assert len(parquet_rows.parts(opened, name="it")[1]) == 20
