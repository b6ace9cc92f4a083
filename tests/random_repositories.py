"""Draw folders and Hub repositories as people have them: layouts, formats, types, dialects, packings and cards."""

import bz2
import csv
import datetime
import decimal
import gzip
import io
import json
import lzma
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
CLASSES = ("bad", "good", "fine")
KEYWORDS = ("train", "training", "dev", "val", "validation", "test", "testing", "eval", "evaluation")
STEMS = (*KEYWORDS, "data", "part", "holdout")
SHAPES = (
    *("{}", "{}", "{}-1", "my_{}", "{}/0", "data/{}", "data/{}-00000-of-00001", "a/{}/0", "{}_1/b"),
    *("{} en", "{}.v2", "x-{}.en", "en_{}1", "a/b/{}", "data/{}/x", "{}-00000-of-00001", "corpus_{}_en/x"),
)
IGNORED = (
    *(".hidden/x{}", ".cache{}", "__pycache__/x{}", "a/__old__/y{}"),
    *("config.json", "dataset_dict.json", "dataset_info.json", "LICENSE", ".gitattributes"),
)
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def packing_of(name: str) -> str:
    """Return the suffix of PACKINGS that a name ends with, "" for none."""
    return next((suffix for suffix in PACKINGS if suffix and name.endswith(suffix)), "")


class Repository(NamedTuple):
    """A drawn repository, and how prepare and `datasets` are asked for it.

    files: the content of each file
    card: the metadata of its card
    is_standalone: the card is .huggingface.yaml
    config: the config to read, "" for the default
    inputs, targets: the columns
    choices: options of prepare that say what names and contents do not
    arguments: the same for load_dataset
    unpacked: the files that `datasets` reads instead, where it cannot read these as they are meant
    """

    files: dict[str, bytes]
    card: dict[str, Any]
    is_standalone: bool
    config: str
    inputs: str
    targets: str
    choices: dict[str, Any]
    arguments: dict[str, Any]
    unpacked: dict[str, bytes] | None

    def write(self, folder: Path, *, for_datasets: bool) -> None:
        """Write the files and the card into a folder."""
        files = self.unpacked if for_datasets and self.unpacked is not None else self.files
        for name, content in (files | self.card_files()).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    def card_files(self) -> dict[str, bytes]:
        """Return the file of the card, if there is a card."""
        if not self.card:
            return {}
        text = json.dumps(self.card)
        return (
            {".huggingface.yaml": text.encode()}
            if self.is_standalone
            else {"README.md": f"---\n{text}\n---\n".encode()}
        )


class Kind(NamedTuple):
    """A kind of target values: its values, the formats that hold it, its Arrow types, and the column that prepare is told."""

    value: Callable[[random.Random], Any]
    formats: str = "csv json parquet"
    types: tuple[Any, ...] = (None,)
    column: str = "label"
    features: Any = None  # of class numbers, as a card describes them: CLASSES stands for the names


def answer(draw: random.Random) -> str:
    """Return a short answer."""
    return f"answer {draw.randrange(9)}"


STRUCT = pa.struct([("text", pa.list_(pa.string())), ("start", pa.list_(pa.int32()))])
KINDS = {
    "words": Kind(lambda draw: draw.choice(CLASSES)),
    "numbers": Kind(lambda draw: draw.randrange(3), types=(pa.int64(), pa.int8(), pa.uint64()), features="class"),
    "names": Kind(lambda draw: draw.choice(CLASSES), "csv json", features="class"),
    "truth": Kind(lambda draw: draw.random() < 0.5, types=(pa.bool_(),)),
    "scores": Kind(lambda draw: draw.choice((0.5, 4.25, -3.5)), types=(pa.float64(), pa.float32())),
    "lost": Kind(lambda draw: draw.choice((*CLASSES, None))),
    "list": Kind(
        lambda draw: [answer(draw) for _ in range(draw.randint(1, 3))],
        "json parquet",
        (pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_(pa.large_string())),
    ),
    "class list": Kind(
        lambda draw: [draw.randrange(3)] * draw.randint(1, 2),
        "json parquet",
        (pa.list_(pa.int64()), pa.large_list(pa.int8())),
        features="list",
    ),
    "struct": Kind(lambda draw: {"label": answer(draw), "id": 7}, "json parquet", column="label.label"),
    "class struct": Kind(lambda draw: {"name": draw.randrange(3)}, "json parquet", column="label.name", features="struct"),
    "answers": Kind(
        lambda draw: {"text": [answer(draw)] * draw.randint(1, 2), "start": [1]}, "json parquet", (STRUCT,), "label.text"
    ),
    "answer list": Kind(
        lambda draw: [{"text": answer(draw), "start": 1} for _ in range(draw.randint(1, 2))], "json parquet", column="label.text"
    ),
    "deep": Kind(lambda draw: {"a": {"b": answer(draw)}}, "json parquet", column="label.a.b"),
    "mixed": Kind(lambda draw: draw.choice((7, "seven", True, 2.5)), "json"),
    "large": Kind(answer, "parquet", (pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view())),
    "dictionary": Kind(answer, "parquet", (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string()))),
    "decimal": Kind(lambda draw: decimal.Decimal(draw.randrange(999)) / 100, "parquet", (pa.decimal128(7, 2),)),
    "time": Kind(
        lambda draw: datetime.datetime(2020, 1, draw.randint(1, 28), 12, 30),
        "parquet",
        (pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("s"), pa.timestamp("us", "UTC")),
    ),
    "date": Kind(lambda draw: datetime.date(2020, 1, draw.randint(1, 28)), "parquet", (pa.date32(),)),
}  # fmt: skip


class Dialect(NamedTuple):
    """How text files are written, and what prepare and `datasets` are told about it."""

    encoding: str = "utf-8"
    mark: bytes = b""
    delimiter: str = ","
    end: str = "\n"
    blank: int = 0
    headed: bool = True
    quoting: int = csv.QUOTE_MINIMAL
    layout: str = "lines"  # of JSON
    leaves_out: bool = False  # keys of JSON lines that have no value
    repeats: str = ""  # a column name that stands twice
    ragged: bool = False


class Generator:
    """Make a repository of a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rows = 0

    def chance(self, share: float) -> bool:
        """Return True for this share of calls."""
        return self.draw.random() < share

    def repository(self) -> Repository:
        """Return a repository: usual names, shards, folders of splits, or a card with configs; sometimes in two formats."""
        draw = self.draw
        self.suffix = draw.choice(
            [".csv", ".csv", ".tsv", ".jsonl", ".json", ".ndjson", ".parquet", ".parquet", ".txt"]
        )
        self.family = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".txt": "text"}.get(self.suffix, "json")
        kinds = [name for name, kind in KINDS.items() if self.family in kind.formats]
        self.kind = KINDS[draw.choice(["words", "numbers", *kinds])] if kinds else KINDS["words"]
        self.type = draw.choice(self.kind.types)
        self.has_classes = bool(self.kind.features) and self.chance(0.6)
        self.is_inside = self.family in ("json", "parquet") and self.chance(0.15)
        self.beside = draw.choice(["", "", "", "id", "null", "list", "index"]) if self.family != "text" else ""
        self.class_names = draw.sample(CLASSES, 3)
        self.describes_itself = self.has_classes and self.family == "parquet" and self.chance(0.4)
        if self.describes_itself:  # `datasets` wants the types that it writes itself
            self.type = self.kind.types[0]
        self.dialect, choices, arguments = self._dialect()
        names = self._names(self.suffix)
        if self.suffix not in (".tsv", ".txt") and self.chance(0.2) and not choices:
            suffix_families = {".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}
            allowed_suffixes = [
                suffix
                for suffix, family in suffix_families.items()
                if family in self.kind.formats and not self.is_inside
            ]
            names += self._names(draw.choice(allowed_suffixes))[: draw.randint(1, 2)] if allowed_suffixes else []
        names = [
            name for name in dict.fromkeys(names) if not any(other_name.startswith(f"{name}/") for other_name in names)
        ]
        if self.kind is KINDS["mixed"]:  # `datasets` casts later files to the types of the first one
            names = names[:1]
        files = {name: self._content(name) for name in names}
        if self.chance(0.1) and self.kind is not KINDS["mixed"]:
            files |= self._empty()
        card, config, unpacked = dict[str, Any](), "", None
        if self.chance(0.5):
            card, config = self._card(list(files), arguments, choices)
        elif self.has_classes and self.chance(0.3):
            files["dataset_infos.json"] = self._infos()
        elif self.chance(0.3):
            files, unpacked = self._archives(files)
        elif self.chance(0.15) and not any("-of-" in name for name in files):
            unpacked = {name.lower(): content for name, content in files.items()}
            files = {name.upper() if self.chance(0.5) else name.capitalize(): data for name, data in files.items()}
        for name in draw.sample(IGNORED, 2) if self.chance(0.3) else ():
            content = self._content(f"x{self.suffix}") if "{}" in name else b'{"a": 1}\n'
            files[name.format(self.suffix)] = content
            unpacked = unpacked if unpacked is None else {**unpacked, name.format(self.suffix): content}
        inputs = "inside.text" if self.is_inside else "text"
        targets = "text" if self.family == "text" else self.kind.column
        return Repository(files, card, self.chance(0.2), config, inputs, targets, choices, arguments, unpacked)

    def _dialect(self) -> tuple[Dialect, dict[str, Any], dict[str, Any]]:
        """Return how text files are written, the choices of prepare for it, and the arguments of load_dataset."""
        draw, choices, arguments = self.draw, dict[str, Any](), dict[str, Any]()
        dialect = Dialect(end=draw.choice(["\n", "\n", "\r\n"]))
        if self.family == "parquet":
            return dialect, choices, arguments
        if self.chance(0.15):
            dialect = dialect._replace(mark=b"\xef\xbb\xbf")
        elif self.chance(0.15):
            dialect = dialect._replace(encoding=draw.choice(["latin-1", "cp1252"]))
            choices["encoding"] = arguments["encoding"] = dialect.encoding
        if self.family == "json":
            dialect = dialect._replace(leaves_out=self.chance(0.3))
            if self.suffix == ".json":
                dialect = dialect._replace(layout=draw.choice(["lines", "array", "indented", "field"]))
            if dialect.layout == "field":
                choices["records"], arguments["field"] = "data[]", "data"
        if self.family != "csv":
            return dialect, choices, arguments
        dialect = dialect._replace(
            delimiter="\t" if self.suffix == ".tsv" else ",",
            quoting=draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
            blank=draw.choice([0, 0, 0, 1, 2]),
            repeats=draw.choice([""] * 14 + ["again", "again", "text"]),
            ragged=self.chance(0.08),
        )
        if self.suffix == ".csv" and self.chance(0.15):
            dialect = dialect._replace(delimiter=draw.choice([";", "|", "\t"]))
            choices["delimiter"] = arguments["sep"] = dialect.delimiter
        if self.chance(0.15):
            dialect = dialect._replace(headed=False, repeats="", blank=0)
            names = list(self._row())
            self.rows = 0
            choices["columns"] = ",".join(names)
            arguments |= {"names": names, "header": None}
            self.beside = "" if self.beside == "index" else self.beside
        return dialect, choices, arguments

    def _names(self, suffix: str) -> list[str]:
        draw = self.draw
        packing = draw.choice(["", "", *PACKINGS]) if suffix != ".parquet" else ""
        stems = draw.sample(STEMS, draw.randint(1, 3))
        shape = draw.choice(SHAPES)
        names = [shape.format(stem) + suffix + packing for stem in stems]
        if "-00000-of-00001" in shape and self.chance(0.6):
            shards = [name.replace("-of-00001", "-of-00002") for name in names]
            names = [*shards, *(name.replace("-00000-of-", "-00001-of-") for name in shards)]
        return names

    def _text(self) -> str:
        self.rows += 1
        words = [f"this is line {self.rows}"]
        if self.chance(0.3):
            extra_words = ['"so"', "a, b; c|d", "it's", "été", "#1"]
            words.append(
                self.draw.choice(extra_words if self.family == "text" else [*extra_words, "two\nlines", '""', "a\tb"])
            )
        text = " ".join(words)
        return text.replace("\t", " ") if self.suffix == ".tsv" else text

    def _row(self) -> Row:
        text = self._text()
        row: Row = {"inside": {"text": text}} if self.is_inside else {"text": text}
        if self.beside == "index":
            row = {"" if self.family == "csv" and not self.has_classes else "number": self.rows, **row}
        row["label"] = self.kind.value(self.draw)
        if self.beside in ("id", "null"):
            row["other"] = self.rows if self.beside == "id" else None
        elif self.beside == "list":
            row["other"] = [self.rows, self.rows] if self.family != "csv" else f"[{self.rows}, {self.rows}]"
        return row

    def _content(self, name: str) -> bytes:
        """Return a table, packed as its name says."""
        rows = [self._row() for _ in range(self.draw.randint(1, 4))]
        packing = packing_of(name)
        return PACKINGS[packing](self._table(name.removesuffix(packing), rows))

    def _table(self, name: str, rows: list[Row]) -> bytes:
        suffix = name[name.rfind(".") :]
        if suffix in (".csv", ".tsv"):
            return self._csv(rows)
        if suffix in (".jsonl", ".ndjson"):
            return self._json(rows, "lines")
        if suffix == ".json":
            return self._json(rows, self.dialect.layout)
        if suffix == ".txt":
            return self._encoded("".join(f"{row['text']}{self.dialect.end}" for row in rows))
        return self._parquet(rows)

    def _encoded(self, text: str) -> bytes:
        return self.dialect.mark + text.encode(self.dialect.encoding)

    def _csv(self, rows: list[Row]) -> bytes:
        dialect, file = self.dialect, io.StringIO()
        writer = csv.writer(
            file,
            delimiter=dialect.delimiter,
            lineterminator=dialect.end,
            quoting=dialect.quoting,  # type: ignore[arg-type]
        )
        names = list(rows[0])
        if dialect.headed:
            writer.writerow([*names, dialect.repeats] if dialect.repeats else names)
        for row in rows:
            values = [*row.values(), "again"] if dialect.repeats else list(row.values())
            writer.writerow(values[:-1] if dialect.ragged and self.chance(0.4) and len(values) > 2 else values)
        return self._encoded(dialect.end * dialect.blank + file.getvalue())

    def _json(self, rows: list[Row], layout: str) -> bytes:
        if self.dialect.leaves_out:
            rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
        is_ascii = self.dialect.encoding != "utf-8" or self.chance(0.5)
        if layout == "lines":
            ends = "".join(json.dumps(row, ensure_ascii=is_ascii) + self.dialect.end for row in rows)
            return self._encoded(ends)
        document = {"version": 1, "data": rows} if layout == "field" else rows
        return self._encoded(json.dumps(document, ensure_ascii=is_ascii, indent=2 if layout == "indented" else None))

    def _parquet(self, rows: list[Row]) -> bytes:
        columns = {}
        for name in rows[0]:
            array = pa.array([row[name] for row in rows])
            if name == "label" and self.type is not None:
                array = pa.array([row[name] for row in rows], pa.string()) if pa.types.is_string(array.type) else array
                array = array.cast(self.type)
            columns[name] = array
        table = pa.table(columns)
        if self.describes_itself:
            table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": self._features()}})})
        buffer = io.BytesIO()
        views = any(pa.types.is_string_view(column.type) for column in table.columns)
        pq.write_table(table, buffer, row_group_size=100 if views else self.draw.randint(1, 4))
        return buffer.getvalue()

    def _empty(self) -> dict[str, bytes]:
        """Return a file without rows."""
        name = self._names(self.suffix)[0]
        if self.suffix == ".parquet":
            return {}
        content = self.draw.choice([b"", b"\n", b"header"])
        if content == b"header":
            content = self._csv([self._row()]).split(b"\n", 1)[0] + b"\n" if self.family == "csv" else b""
        return {name: PACKINGS[packing_of(name)](content)}

    def _archives(self, files: dict[str, bytes]) -> tuple[dict[str, bytes], dict[str, bytes] | None]:
        """Return the files in archives: one for all, or one for each; and the files as they are unpacked."""
        suffix = self.draw.choice([".zip", ".tar", ".tar.gz", ".tgz"])
        if self.chance(0.5):
            return {f"corpus{suffix}": _archive(files, suffix)}, files
        packed = {}
        for name, content in files.items():
            folder, _, base = name.rpartition("/")
            stem, dot, extension = base.partition(".")
            packed["/".join(filter(None, (folder, stem + suffix)))] = _archive({f"x{dot}{extension}": content}, suffix)
        return packed, None if suffix == ".zip" and len(packed) == len(files) else files

    def _card(self, names: list[str], arguments: dict[str, Any], choices: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the metadata of a card, and the config to read."""
        draw, card = self.draw, dict[str, Any]()
        configs = draw.sample(["default", "one", "two"], draw.randint(0, 2))
        if configs:
            card["configs"] = [self._config(name, names) for name in configs]
            if len(configs) > 1 and self.chance(0.5):
                draw.choice(card["configs"])["default"] = True
            if arguments and self.chance(0.6):
                for config in card["configs"]:
                    config |= arguments
                arguments.clear()
                choices.clear()
        if self.has_classes and not self.describes_itself and not self.beside and not self.is_inside:
            if configs and self.chance(0.4):
                for config in card["configs"]:
                    config["features"] = self._yaml_features()
            else:
                infos = [self._info(name) for name in configs or [draw.choice(["", "default"])]]
                card["dataset_info"] = infos if len(infos) > 1 else infos[0]
        return card, draw.choice(["", *configs])

    def _config(self, name: str, names: list[str]) -> dict[str, Any]:
        draw = self.draw
        kind = draw.choice(["text", "texts", "splits", "splits", "splits", "folder", "nothing"] * 3 + ["object"])
        config: dict[str, Any] = {"config_name": name}
        splits = draw.sample(["train", "test", "validation", "gold", "train_sft"], draw.randint(1, 3))
        if kind == "text":
            config["data_files"] = self._pattern(names)
        elif kind == "texts":
            config["data_files"] = [self._pattern(names) for _ in range(2)]
        elif kind == "splits":
            paths = [self._pattern(names) for _ in splits]
            config["data_files"] = [
                {
                    "split": split,
                    "path": path if self.chance(0.7) else [path, self._pattern(names)][: draw.randint(1, 2)],
                }
                for split, path in zip(splits, paths, strict=True)
            ]
        elif kind == "object":
            config["data_files"] = {split: self._pattern(names) for split in splits}
        elif kind == "folder":
            folders = [name.rpartition("/")[0] for name in names if "/" in name]
            config["data_dir"] = draw.choice([*folders, folders[0].partition("/")[0]]) if folders else "no"
        return config

    def _pattern(self, names: list[str]) -> str:
        name = self.draw.choice(names)
        folder, slash, base = name.rpartition("/")
        stem, dot, suffix = base.partition(".")
        start = folder + slash
        return self.draw.choice(
            [
                *(name, name, f"./{name}", f"**/*{dot}{suffix}", f"{start}{stem}*", f"{start}*", f"*{dot}{suffix}"),
                *(f"{start}[{stem[0]}x]{stem[1:]}{dot}{suffix}", f"{start}[!z]*{dot}{suffix}", f"{start}?{base[1:]}"),
                *(f"**/{base}", f"{folder.partition('/')[0] or '*'}/**", "**"),
                *(name.replace("00000", "*"), name.replace("0000", "[0-9][0-9][0-9][0-9]")),
            ]
        )

    def _features(self) -> dict[str, Any]:
        """Return the features of a table, as `datasets` writes them in JSON."""
        text, classes = {"dtype": "string", "_type": "Value"}, {"names": self.class_names, "_type": "ClassLabel"}
        label = {
            "class": classes,
            "list": {"feature": classes, "_type": self.draw.choice(["List", "Sequence"])},
            "struct": {"name": classes},
        }[self.kind.features]
        features: dict[str, Any] = {"inside": {"text": text}} if self.is_inside else {"text": text}
        if self.beside == "index":
            features = {"number": {"dtype": "int64", "_type": "Value"}, **features}
        features["label"] = label
        if self.beside in ("id", "null"):
            features["other"] = {"dtype": "int64" if self.beside == "id" else "null", "_type": "Value"}
        elif self.beside == "list":
            features["other"] = {"feature": {"dtype": "int64", "_type": "Value"}, "_type": "List"}
        return features

    def _yaml_features(self) -> list[dict[str, Any]]:
        """Return the features of a text and its classes, as a card has them."""
        numbered = {str(number): name for number, name in enumerate(self.class_names)}
        classes = {"class_label": {"names": self.draw.choice([numbered, self.class_names])}}
        label = {
            "class": {"dtype": classes},
            "list": {self.draw.choice(["sequence", "list"]): classes},
            "struct": {"struct": [{"name": "name", "dtype": classes}]},
        }[self.kind.features]
        return [{"name": "text", "dtype": "string"}, {"name": "label", **label}]

    def _info(self, config: str) -> dict[str, Any]:
        return {**({"config_name": config} if config else {}), "features": self._yaml_features()}

    def _infos(self) -> bytes:
        """Return a dataset_infos.json."""
        features = self._features()
        return json.dumps({self.draw.choice(["default", "me--corpus"]): {"features": features}}).encode()


def _archive(files: dict[str, bytes], suffix: str) -> bytes:
    """Return an archive of some files."""
    buffer = io.BytesIO()
    if suffix == ".zip":
        with zipfile.ZipFile(buffer, "w") as zipped:
            for name, content in files.items():
                zipped.writestr(name, content)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w" if suffix == ".tar" else "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
