"""Arrow's reading of CSV never differs from Python's: each row is the same, or Python is asked."""

import csv
import dataclasses
import io
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from t5prep.reading import blocks, csv_by_arrow
from t5prep.reading.blocks import Block
from t5prep.reading.formats import Format
from t5prep.sources import RawFile

fields = st.text(st.sampled_from("abé🙂 ,;\"\n\r\t\0'\\\ufeff0.5NA\u2028\x85"), max_size=6)
written = st.builds(
    lambda rows, end, quoting: _written(rows, end, quoting),
    st.lists(st.lists(fields, min_size=3, max_size=3), min_size=1, max_size=5),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
anything = st.text(st.sampled_from('ab ,"\n\r\0\ufeff'), max_size=24)


def _written(rows: list[list[str]], end: str, quoting: int) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end, quoting=quoting).writerows(rows)  # type: ignore[arg-type]
    return text.getvalue()


def check(text: str, path: Path, *, encoding: str = "utf-8", columns: str = "x,y,z") -> list[Block]:
    """The blocks of a file of that text, each read as Python reads it."""
    path.write_bytes(f"{columns}\n{text}".encode(encoding))
    found = list(blocks.scan(RawFile("f.csv", str(path), path.stat().st_size), Format("csv", encoding), block_bytes=16))
    for block in found:
        slowly = dataclasses.replace(block, regular=False)
        assert list(blocks.read(block)) == list(blocks.read(slowly))
        only_z = [row._replace(record=row.record and {"z": row.record["z"]}) for row in blocks.read(slowly)]
        assert [
            row._replace(record=row.record and {"z": row.record["z"]}) for row in blocks.read(block, columns=("z",))
        ] == only_z
    return found


@given(text=st.one_of(written, anything))
@example(text='a,b,c\r\n"a\rb",b,c\r\n')
@example(text="a,b,c\rd,e,f\n")
@example(text="\n\na,b,c\n\n")
@example(text='a,5" disk,c\n')
@example(text='"a""","",""""\n')
@example(text="\ufeffa,b,c\n")
def test_rows_are_those_of_python(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(text, tmp_path_factory.mktemp("csv") / "f.csv")


def test_another_encoding(tmp_path: Path) -> None:
    found = check('1,"«é» ""x""\n",b\n2,c,d\n', tmp_path / "f.csv", encoding="cp1252")
    assert all(block.regular for block in found)


def test_ordinary_csv_is_read_by_arrow() -> None:
    assert csv_by_arrow.read(b'1,"a\nb",c\n2,,d\n', "utf-8", columns=("x", "y", "z"), wanted=("y", "z")) == [
        {"y": "a\nb", "z": "c"},
        {"y": "", "z": "d"},
    ]


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        (b"1\n\n2\n", "x"),
        (b"1,2\n", "xx"),
        (b"1,2\r3,4\n", "xy"),
        (b"1,\0\n", "xy"),
        (b"1,\xff\n", "xy"),
        (b"1,2,3\n", "xy"),
        (b"1,2\n\n", "xy"),
        ("\ufeff1,2\n".encode(), "xy"),
    ],
)
def test_what_could_be_read_in_two_ways_is_left_to_python(data: bytes, columns: str) -> None:
    assert csv_by_arrow.read(data, "utf-8", columns=tuple(columns)) is None


def test_real_rows(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "stackoverflow/questions_cp1252.csv"
    found = list(blocks.scan(RawFile("q.csv", str(source), source.stat().st_size), Format("csv", "cp1252")))
    assert [block.regular for block in found] == [True] * len(found) != []
    for block in found:
        assert list(blocks.read(block)) == list(blocks.read(dataclasses.replace(block, regular=False)))
