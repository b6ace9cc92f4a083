"""Files as nobody should write them, and what an independent reader of whole files makes of them.

The reader knows nothing of blocks: it splits the decoded text of a file at line ends and hands the lines to Python's csv
module, from the next line on wherever that refuses one.
"""

import codecs
import csv
import io
import json
import random
import re
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "shift_jis", "iso2022_jp", "gb18030")
# Wrong bytes before this are another encoding, and refuse a file; those after it only cost their row.
SNIFFED_BYTES = 16
ENDS = ("\n", "\r", "\r\n", "\r\r\n", "\n\r", "\n\n", "\r\n\r\n")
_CHARACTERS = {"cp1252": "é", "shift_jis": "中ソ", "iso2022_jp": "中ソ", "gb18030": "中é"}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class Nasty(NamedTuple):
    """Hold one file: its name, its bytes, the encoding to say, and its rows: records, "rejected" or "blank"."""

    name: str
    data: bytes
    encoding: str
    rows: list[dict | str]


def generate(seed: int, *, kind: str = "", encoding: str = "") -> Nasty:
    """Return the file of a seed; each has the columns `id` and `text`, or `text` alone where it is plain lines."""
    draw = random.Random(seed)
    kind = kind or draw.choice(("csv", "csv", "csv", "tsv", "jsonl", "text", "parquet"))
    encoding = encoding or draw.choice(ENCODINGS)
    if kind == "parquet":
        return _parquet(draw, seed, encoding)
    characters = _CHARACTERS.get(encoding, "é🙂\u2028")
    header = {"csv": draw.choice(("id,text", '"id","text"', 'id,"text"')), "tsv": "id\ttext"}.get(kind, "")
    end = draw.choice(ENDS) if draw.random() < 0.6 else ""
    lines = [_row(draw, kind, characters) for _ in range(draw.randrange(40))]
    body = "".join(line + (end or draw.choice(ENDS)) for line in lines)
    if draw.random() < 0.3:
        body = body.rstrip("\r\n")
    start = header and header + (
        end.replace("\n\n", "\n").replace("\r\n\r\n", "\r\n") or draw.choice(("\n", "\r", "\r\n"))
    )
    data = bytearray((start + body).encode(encoding, "replace"))
    if draw.random() < 0.2 and len(data) > SNIFFED_BYTES and encoding in ("utf-8", "utf-8-sig", "cp1252"):
        at = draw.randrange(SNIFFED_BYTES, len(data))
        data[at:at] = draw.choice((b"\x81", b"\xff", b"\xe4\xb8")) if encoding != "cp1252" else b"\x81"
    said = {"utf-8-sig": "utf-8"}.get(encoding, encoding)
    return Nasty(
        f"{seed:06d}.{'txt' if kind == 'text' else kind}", bytes(data), said, reference(bytes(data), kind, said)
    )


def _row(draw: random.Random, kind: str, characters: str) -> str:
    plain = [*"ab 1x", *characters, "word ", "\0" if draw.random() < 0.02 else "."]
    text = "".join(draw.choices(plain, k=draw.randrange(1, 30)))
    if draw.random() < 0.08:
        return draw.choice(("", " ", "\t"))
    if kind == "text":
        return text
    if kind == "tsv":
        return draw.choice((f"{draw.randrange(99)}\t{text}",) * 9 + (text, f"1\t2\t{text}", f'"\t{text}'))
    if kind == "jsonl":
        value = draw.choice((text,) * 9 + (True, float("nan"), {"a": [text]}, [1], None, [text]))
        line = json.dumps({"id": draw.randrange(99), "text": value}, ensure_ascii=draw.random() < 0.5)
        return draw.choice((line,) * 9 + (line[:-1], "[1]", "{}", '{"id": 1, "id": 2, "text": "x"}'))
    odd = (
        *(f'"{text}"', f'1,"{text}', f'1,{text}"', f'"1"x,{text}', f'1,"{text}" ', f"1,{text},3", '"', '""', ","),
        *(f'1,"{text}\n', f'1,"a\rb{text}"', '1,"a\r\n"'),
    )
    inner = text.replace(" ", draw.choice((" ", "\n", "\r", "\r\n", '""', ",")))
    return draw.choice((f'{draw.randrange(99)},"{inner}"',) * 9 + (f"{draw.randrange(99)},{text}",) * 9 + odd)


def _parquet(draw: random.Random, seed: int, encoding: str) -> Nasty:
    values = draw.choices([b"text", "é".encode(), b"", b"a\0b", b"\xff", None, b"x\ry"], k=draw.randrange(1, 60))
    array = pa.array(values, draw.choice((pa.binary(), pa.large_binary())))
    if draw.random() < 0.5:
        array = pa.Array.from_buffers(pa.string(), len(array), array.cast(pa.binary()).buffers())
    table = pa.table({"id": [str(i) for i in range(len(values))], "text": array})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=draw.randrange(1, 40))
    rows = []
    for i, value in enumerate(values):
        try:
            text = None if value is None else value.decode()
            rows.append("rejected" if text and "\0" in text else {"id": str(i), "text": text})
        except UnicodeDecodeError:
            rows.append("rejected")
    return Nasty(f"{seed:06d}.parquet", file.getvalue(), {"utf-8-sig": "utf-8"}.get(encoding, encoding), rows)


def reference(data: bytes, kind: str, encoding: str) -> list[dict | str]:
    """Return every row of a whole file after its header: its record, "rejected" or "blank"."""
    for mark, name in ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le")):
        if data.startswith(mark):
            data, encoding = data[len(mark) :], name
    text = data.decode(encoding, "surrogateescape" if encoding in ("utf-8", "cp1252") else "strict")
    lines = _LINE.findall(text)
    assert "".join(lines) == text
    if kind != "csv":
        parse = {"tsv": _tab, "jsonl": _json, "text": lambda line: {"text": line} if line.strip() else "blank"}[kind]
        rows = [parse(line.removesuffix("\n").removesuffix("\r")) for line in lines[kind == "tsv" :]]
    else:
        rows = list(_csv(lines))[1:]
    return [_sound(row) for row in rows]


def _csv(lines: list[str]) -> list[dict | str]:
    rows: list[dict | str] = []
    at = 0
    while at < len(lines):
        reader = csv.reader(iter(lines[at:]), strict=True)
        try:
            fields = next(reader)
            at += reader.line_num
        except csv.Error:
            rows.append("rejected")
            at += 1
            continue
        rows.append(
            dict(zip(("id", "text"), fields, strict=True)) if len(fields) == 2 else "rejected" if fields else "blank"
        )
    return rows


def _tab(line: str) -> dict | str:
    fields = line.split("\t")
    return "blank" if not line else dict(zip(("id", "text"), fields, strict=True)) if len(fields) == 2 else "rejected"


def _json(line: str) -> dict | str:
    if not line.strip():
        return "blank"
    try:
        row = json.loads(line)
    except ValueError:
        return "rejected"
    text = row.get("text") if isinstance(row, dict) else None
    good = isinstance(row, dict) and row and line.count('"id"') == 1
    good = good and (text is None or isinstance(text, str) or (isinstance(text, list) and isinstance(text[0], str)))
    return row if good else "rejected"


def _sound(row: dict | str) -> dict | str:
    if isinstance(row, str):
        return row
    try:
        said = "".join(
            [*row, *("".join(map(str, value)) if isinstance(value, list) else str(value) for value in row.values())]
        ).encode()
    except UnicodeEncodeError:
        return "rejected"
    return "rejected" if b"\0" in said else row


def write(nasty: Nasty, folder: Path) -> Path:
    """Write a file into a folder, and return its path."""
    path = folder / nasty.name
    path.write_bytes(nasty.data)
    return path
