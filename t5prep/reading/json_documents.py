"""Read a JSON document as rows: an array of objects, or nested arrays that a path names.

The rows become JSON lines, so that later code reads them like JSON lines.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from t5prep.errors import SourceError, UsageError
from t5prep.json_values import JSON, JSONObject
from t5prep.reading.encodings import Readable
from t5prep.reading.rows import Record

# Maximum size of a document that is read by a path, because it is parsed as a whole.
LARGEST_BYTES = 512 << 20
_CHUNK = 1 << 20
# The beginning of a table in one object: its first column is a list or an object keyed by row numbers, or its first
# key is a row number, or a schema.
_TABLE = re.compile(rb'\s*\{\s*"([^"]*"\s*:\s*(\[|\{\s*"\d+"\s*:)|\d+"\s*:\s*\{|schema"\s*:\s*\{\s*"fields")')
_ARRAY_OF_OBJECTS = re.compile(rb"\s*\[\s*\{")
_STEP = re.compile(r"[^.\[\]]+(\[\])?|\[\]")
_SPACE = re.compile(r"[ \t\r\n]*")
_ARRAY = "[]"


def is_array(head: bytes) -> bool:
    """Check whether a file begins with one array of objects, instead of JSON lines.

    >>> is_array(b'[{"a": 1},'), is_array(b'[{"a": 1}]'), is_array(b'[{"a": 1}]\\n[{"a": 2}]'), is_array(b"[1]")
    (True, True, False, False)
    """
    if not _ARRAY_OF_OBJECTS.match(head):
        return False
    first, _, remaining_lines = head.strip().partition(b"\n")
    return not (remaining_lines.strip() and _is_whole(first))


def is_document(head: bytes, name: str) -> bool:
    """Check whether a file begins with an object that spans several lines, or with a table in one object.

    >>> is_document(b'{"text": {"0": "a"}}', "a.json"), is_document(b'{"text": "a"}\\n{"text": "b"}', "a.json")
    (True, False)
    """
    first, _, remaining_lines = head.lstrip().partition(b"\n")
    if re.fullmatch(rb'\{\s*("[^"]*"\s*:\s*[\[{]?\s*)?', first.rstrip()):
        return remaining_lines.strip()[:1] in (b'"', b"{", b"[")
    return name.endswith(".json") and not remaining_lines.strip() and _TABLE.match(head) is not None


def lines_of_document(reader: Readable, *, encoding: str, name: str) -> Iterator[bytes]:
    """Yield each row of a document (`is_document`) as one line of JSON: consecutive objects, or the rows of a table.

    Raises SourceError for a document that is one object and no table, with the path to its rows if there is one.
    """
    values: Sequence[JSON] = _values(reader, encoding=encoding, name=name)
    if len(values) == 1 and isinstance(values[0], dict):
        document = values[0]
        if (rows := rows_of_table(document)) is None:
            path = suggest(document)
            records_option = f'--records "{path}"' if path else "--records NAME[]"
            raise SourceError(
                f"{name} is one JSON document, not JSON lines. Name the path to its rows: {records_option}",
                code="file.missing-records-path",
            )
        values = rows
    for value in values:
        yield json.dumps(value).encode(encoding) + b"\n"


def rows_of_table(document: JSONObject) -> Sequence[JSON] | None:
    """Return the rows of a table in one object, as DataFrame.to_json and Dataset.to_dict write it; None for any other object.

    >>> rows_of_table({"text": {"0": "a", "1": "b"}}), rows_of_table({"text": ["a", "b"]})
    ([{'text': 'a'}, {'text': 'b'}], [{'text': 'a'}, {'text': 'b'}])
    >>> rows_of_table({"0": {"text": "a"}}), rows_of_table({"columns": ["text"], "index": [0], "data": [["a"]]})
    ([{'text': 'a'}], [{'text': 'a'}])
    """
    lists = [value for value in document.values() if isinstance(value, list)]
    objects = [value for value in document.values() if isinstance(value, dict)]
    names, rows = document.get("columns"), document.get("data")
    # The forms of DataFrame.to_json by its `orient`: "table" here, "split" and columns as lists (Dataset.to_dict)
    # next, then "columns" (the default), and "index".
    if set(document) == {"schema", "data"} and isinstance(rows, list):
        return rows
    if lists and len(lists) == len(document):
        if set(document) <= {"columns", "data", "index"} and isinstance(names, list) and isinstance(rows, list):
            equally_long = [row for row in rows if isinstance(row, list) and len(row) == len(names)]
            if len(equally_long) == len(rows):
                return [dict(zip(map(str, names), row, strict=True)) for row in equally_long]
        if len(set(map(len, lists))) > 1:
            return None
        return [dict(zip(document, row, strict=True)) for row in zip(*lists, strict=True)]
    if not objects or len(objects) < len(document):
        return None
    first = objects[0]
    if first and all(value.keys() == first.keys() for value in objects) and _are_numbers(first):
        columns = dict(zip(document, objects, strict=True))
        return [{name: column[number] for name, column in columns.items()} for number in first]
    return objects if _are_numbers(document) else None


def _are_numbers(names: Iterable[str]) -> bool:
    """Check whether all names are decimal numbers, as row numbers of pandas are."""
    return all(name.isdecimal() for name in names)


def check_path(path: str) -> None:
    """Raise UsageError if `path` is not a path to rows."""
    steps = path.split(".")
    if not all(_STEP.fullmatch(step) for step in steps) or not steps[-1].endswith(_ARRAY) or _ARRAY in steps[1:]:
        raise UsageError(
            f'--records "{path}" is not a path to an array of rows. Mark each array with [], as in '
            "data[].paragraphs[].qas[]",
            code="option.malformed",
        )


def lines(reader: Readable, path: str, *, encoding: str, name: str) -> Iterator[bytes]:
    """Yield each row of a document as one line of JSON, in its encoding. Raises SourceError for another kind of document.

    A row is an object in the last array of the path, with the texts and numbers of the objects around it. If an outer
    field has the name of an inner one, it is prefixed by its array: `data.id`.
    """
    if path in ("", _ARRAY):
        for element in _elements(reader, encoding=encoding, name=name):
            yield element.encode(encoding, "surrogateescape") + b"\n"
        return
    count = 0
    for record in _walk(_parse_document(reader, encoding=encoding, name=name), path.split("."), []):
        count += 1
        yield json.dumps(record).encode(encoding) + b"\n"
    if not count:
        raise SourceError(
            f"{name} has no rows at --records {path}. Name the path to its array of rows.", code="file.missing-records"
        )


def suggest(record: Record) -> str:
    """Return the longest path to an array of objects inside of an object, such as `data[].paragraphs[].qas[]`, or "".

    >>> suggest({"version": "1", "data": [{"title": "a", "paragraphs": [{"qas": [{"question": "b"}], "context": "c"}]}]})
    'data[].paragraphs[].qas[]'
    """
    best = ""
    for key, value in record.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping) and _STEP.fullmatch(key):
            deeper = suggest(value[0])
            path = f"{key}[].{deeper}" if deeper else f"{key}[]"
            # Objects in a question (the text and the position of an answer) are columns of the row, not rows.
            if deeper or "question" not in record:
                best = max(best, path, key=lambda text: text.count(_ARRAY))
    return best


def _walk(value: JSON, steps: list[str], parents: list[tuple[str, JSONObject]], *, name: str = "") -> Iterator[JSON]:
    """Yield the rows at the end of `steps`. `parents` are the objects around `value`, each with the name of its array."""
    if not steps:
        yield _merged(value, parents) if isinstance(value, Mapping) else value
        return
    key = steps[0].removesuffix(_ARRAY)
    inner = value
    if key:
        if not isinstance(value, Mapping) or key not in value:
            return
        inner = value[key]
        fields = {field: field_value for field, field_value in value.items() if field != key and _is_plain(field_value)}
        parents = [*parents, (name, fields)]
    for element in inner if steps[0].endswith(_ARRAY) and isinstance(inner, list) else [inner]:
        yield from _walk(element, steps[1:], parents, name=key)


def _merged(row: JSONObject, parents: list[tuple[str, JSONObject]]) -> JSONObject:
    """Return a row with the fields of the objects around it, innermost first."""
    record = dict(row)
    for name, fields in reversed(parents):
        for field, field_value in fields.items():
            known_as = f"{name}.{field}" if name and field in record else field
            record.setdefault(known_as, field_value)
    return record


def _is_whole(line: bytes) -> bool:
    """Check whether a line is a complete JSON value."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _is_plain(field: JSON) -> bool:
    """Check whether a field is a text, a number, or a list of texts."""
    return not isinstance(field, dict | list) or (
        isinstance(field, list) and all(isinstance(element, str) for element in field)
    )


def _parse_document(reader: Readable, *, encoding: str, name: str) -> JSON:
    """Return the single value of a document. Raises SourceError."""
    values = _values(reader, encoding=encoding, name=name)
    if len(values) != 1:
        raise SourceError(
            f"{name} contains {len(values):,} JSON documents instead of one. If the file is JSON lines, "
            "remove --records.",
            code="file.invalid-json",
        )
    return values[0]


def _values(reader: Readable, *, encoding: str, name: str) -> list[JSON]:
    """Return all consecutive values in a file, held in memory. Raises SourceError."""
    data = bytearray()
    while chunk := reader.read(_CHUNK):
        data += chunk
        if len(data) > LARGEST_BYTES:
            raise SourceError(
                f"{name} is one JSON document of more than {LARGEST_BYTES >> 20} MiB. Convert its rows to JSON lines.",
                code="file.oversized-document",
            )
    text, values = data.decode(encoding, "surrogateescape"), list[JSON]()
    decode, offset = json.JSONDecoder().raw_decode, 0
    try:
        while (offset := _after_space(text, offset)) < len(text) or not values:
            value, offset = decode(text, offset)
            values.append(value)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{name} is not one JSON document: {error}.", code="file.invalid-json") from None
    return values


def _elements(reader: Readable, *, encoding: str, name: str) -> Iterator[str]:
    """Yield each value of an array as its source text, in one line. Memory holds only about one value."""
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    decode = json.JSONDecoder().raw_decode
    text, offset, count, read_size, is_end = "", 0, 0, _CHUNK, False
    while True:
        offset = _after_space(text, offset)
        if offset < len(text) and count == 0 and text[offset] == "[":
            offset = _after_space(text, offset + 1)
            count = 1
        if offset < len(text) and text[offset] == "]":
            if text[offset + 1 :].strip() or reader.read(1).strip():
                raise SourceError(
                    f"{name} has more content after the end of its array of rows. Remove that content.",
                    code="file.invalid-json",
                )
            return
        try:
            _, end = decode(text, offset)
            next_offset = _after_space(text, end)
            if next_offset == len(text) and not is_end:
                raise ValueError("the next character decides whether the value is whole")
            if text[next_offset : next_offset + 1] not in (",", "]"):
                raise SourceError(
                    f"{name} is not one JSON document: a comma is missing after row {count:,} of its array.",
                    code="file.invalid-json",
                )
        except (ValueError, RecursionError) as error:
            if is_end:
                raise SourceError(
                    f"{name} is not one JSON document: row {count:,} of its array is broken ({error}).",
                    code="file.invalid-json",
                ) from None
            if len(text) - offset > LARGEST_BYTES:
                raise SourceError(
                    f"{name} is not one JSON document: row {count:,} of its array has no end.", code="file.invalid-json"
                ) from None
            chunk = reader.read(read_size)
            is_end = not chunk
            text, offset = text[offset:] + decoder.decode(chunk, is_end), 0
            # For a value longer than a chunk the buffer doubles, so that the time to find its end stays linear.
            read_size = max(_CHUNK, len(text))
            continue
        yield text[offset:end].replace("\r", " ").replace("\n", " ")
        count += 1
        offset = next_offset + (text[next_offset] == ",")


def _after_space(text: str, offset: int) -> int:
    """Return the offset after the white space that begins at `offset`."""
    space = _SPACE.match(text, offset)
    return space.end() if space else offset
