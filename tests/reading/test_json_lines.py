"""JSON lines that Arrow reads are the same rows as Python's reader makes of them."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t5prep.reading import columns, formats, text_rows
from t5prep.reading.blocks import Block
from t5prep.sources import RawFile

ODD = (
    *(b"", b" ", b"{}", b"[]", b"7", b'"text"', b'{"text": "a"} ', b' {"text": "a"}', b'{"text": "a"}{"text": "b"}'),
    *(b'{"text": null}', b'{"text": 7}', b'{"text": ["a"]}', b'{"id": "1"}', b'{"text": "a", "text": "b"}'),
    *(b'{"text": "a", "n": 1, "n": 2}', b'{"text": "a", "n": {"m": 1, "m": 2}}', b'{"text": "a", "n": {"m": [{}, {"k": 1}]}}'),
    *(b'{"text": "a", "n": NaN}', b'{"text": "a", "n": -Infinity}', b'{"text": "a", "n": 1e999}', b'{"text": "a", "n": 01}'),
    *(b'{"text": "\\u0000"}', b'{"text": "\\ud83d\\ude00"}', b'{"text": "\\ud83d"}', b'{"text": "\\ude00"}'),
    *(b'{"text": "a", "n": "\\udc80"}',),
    *(b'{"te\\u0078t": "a"}', b'{"text": "\\\\u0000"}', b'{"text": "\\/\\b\\f\\n\\r\\t\\"\\\\"}', b'{"text": "\\x"}'),
    *(b'{"text": "a\tb"}',),
    *(b'{"text": "\xff"}', b'{"text": "a", "n": "\xed\xa0\x80"}', b'{"text": "a\0b"}', b'{"text": "}', b'"}', b'{"text": "a",}'),
    *(b'{"text": "a", "": 1}', b'{"text": "a", "n": true}', b'{"text": "a", "n": "2020-01-01"}', b'{"text": "a", "n": [1, "x"]}'),
    *(b'{"text": "a", "n": ' + b"9" * 5000 + b"}", b'{"text": "a", "n": 1.' + b"9" * 5000 + b"}"),
    *(b'{"text": "a", "n": ' + b"[" * 2000 + b"]" * 2000 + b"}", b'{"text": "a", "n": ' + b"[" * 20 + b"]" * 20 + b"}"),
    *('{"text": "ｅ\u2028\u0085\ufeff é 🙂"}'.encode(), b'{"text": ""}', b'\xef\xbb\xbf{"text": "a"}', b'{"text": "a" , "n" : 1 }'),
)  # fmt: skip

SHORT = [line for line in ODD if len(line) < 200]
plain = st.dictionaries(
    st.sampled_from(["text", "id", "n", "é"]), st.text(max_size=8) | st.integers() | st.none(), max_size=3
).map(lambda row: json.dumps({"text": "x", **row}, ensure_ascii=bool(len(row) % 2)).encode("utf-8", "surrogatepass"))


def read(data: bytes, typed_columns: list[str]) -> list[tuple[int, object]]:
    """Return every row that is not blank: its number, and what it has of the `typed_columns` or why it has nothing."""
    count = text_rows.of_buffer(data, quoted=False, final=True).rows
    file, form = RawFile("a.jsonl", "a.jsonl", len(data)), formats.detect("a.jsonl")
    block_columns = columns.read(Block(file, form, (), 1, count, 0, len(data), data), names=typed_columns)
    return [
        (
            row.number,
            row.reason or repr({name: row.record[name] for name in typed_columns if name in (row.record or {})}),
        )
        for row in block_columns.rows(np.ones(len(block_columns.numbers), bool))
    ]


def compare(data: bytes, column_names: list[str]) -> None:
    by_arrow = read(data, column_names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "json_table", lambda data, *, needed_columns: None)
        assert by_arrow == read(data, column_names)


@pytest.mark.parametrize("line", ODD, ids=range(len(ODD)))
def test_an_odd_line_among_plain_ones(line: bytes) -> None:
    for end in (b"", b"\n"):
        compare(b'{"text": "x", "n": 1}\n' + line + b'\n{"text": "y"}' + end, ["text"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    lines=st.lists(plain | st.sampled_from(SHORT), min_size=1, max_size=5),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_any_lines(lines: list[bytes], end: bytes) -> None:
    data = end.join([b'{"text": "x"}', *lines])
    compare(data, ["text"])
    compare(data, ["id", "text"])
    compare(data, ["n", "id", "text"])
    compare(data, ["is in no line"])


def test_arrow_reads_what_is_plain() -> None:
    """Else the tests above would compare Python's reader with itself."""
    rows = [{"text": 'é 🙂 \n "q"', "n": n, "d": n / 2, "l": ["x"]} for n in range(5)]
    for escaped in (False, True):
        data = "\n".join(json.dumps(row, ensure_ascii=escaped) for row in rows).encode()
        plain_columns = text_rows.json_table(data, needed_columns=["text", "n", "d"])
        assert plain_columns is not None
        assert plain_columns.lines.tolist() == [False, True, False, True, False]  # 1.0 may be written as 1
        assert plain_columns.table.to_pylist() == [
            {name: row[name] for name in ("text", "n", "d")} for row in rows[1::2]
        ]


NUMBERS = (
    *("0", "-0", "7", "-12", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1" * 30),
    *("0.5", "-0.0", "1.0", "1e3", "1E400", "-1e-400", "0.1234567890123456789", "1e22", "5e-324", "2.5", "1.7976931348623157e308"),
    *("true", "null", '"7"', "[1]", "NaN", "01", "+1", ".5", "1."),
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from(NUMBERS) | st.integers().map(str) | st.floats().map(json.dumps), min_size=1, max_size=6)
)
def test_numbers_are_those_that_python_reads(numbers: list[str]) -> None:
    data = "".join(f'{{"text": "x", "n": {number}, "m": {i}}}\n' for i, number in enumerate(numbers)).encode()
    compare(data, ["text", "n"])
    compare(data, ["m", "n"])
