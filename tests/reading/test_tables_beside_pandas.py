"""Drawn tables: `prepare` makes the examples of the rows that pandas, pyarrow and `datasets` read, or refuses in one sentence.

T5PREP_SEEDS says how many are drawn: 30 as a rule, 500 by hand.
"""

import bz2
import csv
import functools
import gzip
import io
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from extras import optional
from random_seeds import seeds
from small_corpora import byt5

from t5prep import sources
from t5prep.errors import T5prepError
from t5prep.preparation import row_limit, task_settings
from t5prep.preparation.block_tokenizer import BlockExamples
from t5prep.tasks import example_table, registry
from t5prep.tasks.example import Example
from t5prep.tokens import loading

pandas = optional("pandas")
pytestmark = pytest.mark.extra("pandas")

SEEDS = seeds(30)
WORDS = [
    "river",
    "stone lamp",
    "été",
    "中文",
    'say "so"',
    "a, b; c",
    "x\ty",
    "back\\slash",
    "it's",
    "#1",
    "  padded ",
    "NA",
    "null",
    "1.0",
    "-",
]
Row = dict[str, Any]


class Table(NamedTuple):
    """A drawn table: its file, the settings and options that read it, and its rows as another library reads them."""

    path: Path
    settings: dict[str, Any]
    options: dict[str, Any]
    rows: list[Row]


def text(draw: random.Random, *, newlines: bool = True) -> str:
    words = draw.choices(WORDS + ["two\nlines"] * newlines, k=draw.randrange(1, 6))
    return draw.choice((" ", " ", "")).join(words)


LABELS: dict[str, tuple[list[Any], str]] = {
    "words": (["good", "bad"], "good=low,bad=high"),
    "free": (["good", "bad", "so so"], ""),
    "numbers": ([0, 1], "0=low,1=high"),
    "fractions": ([0.0, 1.0], "0=low,1=high"),
    "truth": ([False, True], "false=low,true=high"),
    "truth as numbers": ([False, True], "0=low,1=high"),
    "scores": ([0.5, 4.2, 3.0, 1e-7], ""),
}


def drawn_rows(draw: random.Random, *, newlines: bool = True) -> tuple[list[Row], dict[str, Any]]:
    """Rows with a text, perhaps an empty one, a label of some type, perhaps none, and perhaps a context."""
    values, label_map = LABELS[draw.choice(list(LABELS))]
    null_share, empty = draw.choice((0, 0, 0.2)), draw.choice((0, 0, 0.1))
    rows: list[Row] = [
        {
            "text": "" if draw.random() < empty else text(draw, newlines=newlines),
            "label": None if draw.random() < null_share else draw.choice(values),
            "context": None if draw.random() < null_share else text(draw, newlines=newlines),
        }
        for _ in range(draw.randrange(2, 40))
    ]
    return rows, {"label_map": label_map} if label_map else {}


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.Codec("zstd").compress(data).to_pybytes(),
}


def packed(folder: Path, name: str, data: bytes, draw: random.Random) -> Path:
    suffix = draw.choice(list(PACKERS))
    path = folder / f"{name}{suffix}"
    path.write_bytes(PACKERS[suffix](data))
    return path


def as_csv(draw: random.Random, folder: Path) -> Table:
    """A table as pandas or Python's csv module writes it, and as pandas reads it."""
    escape = draw.choice(("", "", "\\"))
    rows, options = drawn_rows(draw)
    headed, name = draw.random() < 0.7, draw.choice(("rows.csv", "rows.csv", "rows.tsv"))
    delimiter = "\t" if name == "rows.tsv" else draw.choice(",,;|\t")
    quoting = draw.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC))
    encoding = draw.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", "gb18030"))
    if name == "rows.tsv":
        escape = ""
    frame = pandas.DataFrame(rows, dtype=object)
    escape_options = {"escapechar": escape, "doublequote": False} if escape else {}
    end = draw.choice(("\n", "\r\n"))
    file = frame.to_csv(
        None, sep=delimiter, index=False, header=headed, quoting=quoting, lineterminator=end, **escape_options
    )
    blank = end * draw.choice((0, 0, 2)) if headed else ""
    settings = {"encoding": encoding} if encoding != "utf-8-sig" else {}
    if delimiter not in ",;" and name == "rows.csv":
        settings["delimiter"] = delimiter
    if not headed:
        settings |= {"columns": "text,label,context", **({"delimiter": delimiter} if name == "rows.csv" else {})}
    settings |= {"escape": escape} if escape else {}
    data = (blank + file).encode(encoding)
    names = None if headed else list(rows[0])
    read = pandas.read_csv(
        io.BytesIO(data), sep=delimiter, encoding=encoding, names=names, dtype=str, keep_default_na=False,
        escapechar=escape or None, doublequote=True,
    )  # fmt: skip
    return Table(packed(folder, name, data, draw), settings, options, read.to_dict("records"))


def as_json(draw: random.Random, folder: Path) -> Table:
    """Lines or one document, with null or a key left out, as Python's json module reads them."""
    rows, options = drawn_rows(draw)
    if draw.random() < 0.5:
        rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
    ascii = draw.random() < 0.5
    written = {
        "lines": lambda: "\n".join(json.dumps(row, ensure_ascii=ascii) for row in rows) + "\n" * draw.randrange(3),
        "array": lambda: json.dumps(rows, ensure_ascii=ascii, indent=draw.choice((None, 1))),
        "objects": lambda: "\n".join(json.dumps(row, ensure_ascii=ascii, indent=2) for row in rows),
    }  # fmt: skip
    for orient in ("columns", "index", "split", "table"):
        written[orient] = functools.partial(pandas.DataFrame(rows, dtype=object).to_json, orient=orient)
    kind = draw.choice(list(written))
    if kind not in ("lines", "array", "objects"):
        frame = pandas.DataFrame(rows, dtype=object)
        rows = json.loads(frame.to_json(orient="records", double_precision=15))
    data = written[kind]().encode()
    settings = {}
    if kind == "lines" and draw.random() < 0.2:
        data, settings = data.decode().encode("utf-16"), {"encoding": "utf-16"}
    return Table(packed(folder, "rows.jsonl" if kind == "lines" else "rows.json", data, draw), settings, options, rows)


def as_parquet(draw: random.Random, folder: Path) -> Table:
    """Columns of odd types, some inside of others, as pyarrow reads them."""
    rows, options = drawn_rows(draw)
    label = pa.array([row["label"] for row in rows])
    castable_types = {
        "double": [pa.float32(), pa.float64()],
        "int64": [pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.decimal128(21, 2)],
        "bool": [pa.bool_()],
        "string": [
            pa.string(),
            pa.large_string(),
            pa.binary(),
            pa.string_view(),
            pa.dictionary(pa.int8(), pa.string()),
        ],
    }
    texts = pa.array([row["text"] for row in rows], pa.string())
    scores = options or str(label.type) != "double"  # float32 has other digits
    label = label.cast(draw.choice(castable_types.get(str(label.type), [label.type]) if scores else [pa.float64()]))
    columns: dict[str, Any] = {
        "text": texts.cast(draw.choice(castable_types["string"][:4])),
        "label": label,
        "context": pa.array([row["context"] for row in rows], pa.string()),
    }
    # pyarrow cannot cut a string_view into row groups.
    views = any(pa.types.is_string_view(column.type) for column in columns.values())
    chosen = {}
    if draw.random() < 0.5:
        name = draw.choice(list(columns))
        columns["inside"] = pa.StructArray.from_arrays([columns.pop(name)], [name])
        chosen[name] = f"inside.{name}"
    path = folder / "rows.parquet"
    groups = 100 if views else draw.randrange(1, 50)
    codec = draw.choice(("none", "snappy", "zstd", "gzip", "brotli"))
    pq.write_table(pa.table(columns), path, compression=codec, row_group_size=groups)
    read = pq.read_table(path).to_pylist()
    flat = [{**row, **(row.pop("inside", None) or {})} for row in read]
    return Table(path, {}, {**options, "renamed": chosen}, flat)


KINDS = (as_csv, as_json, as_parquet)


def written(value: Any) -> str:
    """The text of a value, said a second time."""
    if isinstance(value, bytes):
        return value.decode()
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def expected(table: Table, *, with_context: bool) -> list[tuple[str, str] | None]:
    """The example of each row, None for one that makes none."""
    words = dict(pair.split("=") for pair in table.options.get("label_map", "").split(",") if pair)
    pairs: list[tuple[str, str] | None] = []
    for row in table.rows:
        inputs, label, context = (written(row.get(name)) for name in ("text", "label", "context"))
        if words and label:
            as_number = str(int(float(label))) if label.replace(".", "", 1).isdigit() else label.lower()
            as_number = as_number if as_number in words else {"true": "1", "false": "0"}.get(as_number, as_number)
            label = words.get(label) or words.get(as_number, "")
        used = (inputs + context if with_context else inputs).strip()
        example = (f"{inputs} context: {context}" if with_context else inputs, label)
        pairs.append(example if used and label.strip() else None)
    return pairs


def examples_of(table: Table, *, with_context: bool, tokenizer: Path) -> list[tuple[str, str] | None]:
    """The same as `prepare` makes them, before they are tokenized. Raises T5prepError."""
    options = dict(table.options)
    names = {name: options.get("renamed", {}).get(name, name) for name in ("text", "label", "context")}
    options.pop("renamed", None)
    inputs = (
        {"inputs": f"{{{names['text']}}} context: {{{names['context']}}}"}
        if with_context
        else {"inputs_column": names["text"]}
    )
    definition = registry.get("text2text")
    task = definition.choose({**options, **inputs, "targets_column": names["label"]})
    source = sources.resolve(str(table.path))
    requested = task_settings.requested(task, table.settings)
    decided = task_settings.decide(definition, task, requested, source=source, tokenizer=loading.load(str(tokenizer)))
    make, pairs = BlockExamples(decided.settings, decided.task), dict[int, tuple[str, str] | None]()
    for file in row_limit.limited_files(decided.source.files, decided.settings, decided.task):
        for block in row_limit.scan(file, decided.settings, decided.task.task.corpus, block_bytes=700):
            examples = make(block)
            for row, example in zip(examples["row"].to_pylist(), example_table.examples_of(examples), strict=True):
                text = (
                    "".join(part if isinstance(part, str) else part.text for part in example.inputs)
                    if isinstance(example, Example)
                    else ""
                )  # type: ignore[union-attr]
                pairs[block.first_row + row] = (text, example.targets) if isinstance(example, Example) else None
    return [pairs[number] for number in sorted(pairs)]


def by_datasets(table: Table, cache: Path) -> list[Row]:
    """The rows of a file that is not packed, as `datasets` reads them."""
    import datasets

    kind = "parquet" if table.path.suffix == ".parquet" else "json"
    read = datasets.load_dataset(kind, data_files=str(table.path), split="train", cache_dir=str(cache))
    return [{**row, **(row.pop("inside", None) or {})} for row in read.to_list()]


@pytest.mark.fuzz
@pytest.mark.extra("datasets")
@pytest.mark.parametrize("seed", SEEDS[1::6])
def test_rows_are_those_of_datasets(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    table = as_json(draw, tmp_path)
    if table.path.name != "rows.jsonl" or table.settings:  # datasets reads no other tables of JSON as they are
        table = as_parquet(draw, tmp_path)
    table = table._replace(rows=by_datasets(table, tmp_path / "cache"))
    right = expected(table, with_context=True)
    if any(right):
        assert examples_of(table, with_context=True, tokenizer=byt5(tmp_path / "byt5")) == right, table


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_and_texts_are_those_that_others_read(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    table = KINDS[seed % len(KINDS)](draw, tmp_path)
    with_context = draw.random() < 0.5
    right = expected(table, with_context=with_context)
    refusal = None
    try:
        examples = examples_of(table, with_context=with_context, tokenizer=byt5(tmp_path / "byt5"))
    except T5prepError as error:
        refusal = error
    else:
        assert examples == right, table
    assert "\n" not in str(refusal)
    assert not (refusal and any(right)) or refusal.code in ("column.missing", "file.ambiguous-delimiter"), (
        refusal,
        table,
    )
