"""JSON lines that Arrow reads are the same rows as Python's reader makes of them."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t5prep.reading import columns, formats, json_by_arrow, row_ends
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


def read(data: bytes, wanted: list[str]) -> list[tuple[int, object]]:
    """Return every row that is not blank: its number, and its texts or why it has none."""
    rows = row_ends.of_buffer(data, quoted=False, final=True).rows
    file, form = RawFile("a.jsonl", "a.jsonl", len(data)), formats.detect("a.jsonl")
    made = columns.read(Block(file, form, (), 1, rows, 0, len(data), data), columns=wanted)
    found: list[tuple[int, object]] = list(zip(made.numbers.tolist(), made.table.to_pylist(), strict=True))
    found += [(row.number, repr(row.record) if row.record else row.reason) for row in made.others]
    return sorted(found, key=lambda row: row[0])


def compare(data: bytes, wanted: list[str]) -> None:
    by_arrow = read(data, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_by_arrow, "table", lambda data, *, wanted: None)
        assert by_arrow == read(data, wanted)


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


def test_arrow_reads_what_is_plain() -> None:
    """Else the tests above would compare Python's reader with itself."""
    rows = [{"text": 'é 🙂 \n "q"', "n": n, "d": n / 2, "l": ["x"]} for n in range(5)]
    for escaped in (False, True):
        data = "\n".join(json.dumps(row, ensure_ascii=escaped) for row in rows).encode()
        table = json_by_arrow.table(data, wanted=["text"])
        assert table is not None
        assert table["text"].to_pylist() == [row["text"] for row in rows]
