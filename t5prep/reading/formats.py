"""Define file formats: detect them by name, read their options from a dataset card, and read class names from metadata."""

import dataclasses
import json
import re
from collections.abc import Sequence

import pyarrow as pa

from t5prep import sources
from t5prep.errors import SourceError, UsageError
from t5prep.options.fields import flag
from t5prep.options.files import FileOptions
from t5prep.sources import Resolved, card
from t5prep.sources.raw import METADATA
from t5prep.sources.split_names import ADVICE

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
    ".conll": "conll",
}
KINDS = ("csv", "tsv", "jsonl", "parquet", "text", "conll", "document")
_PAPERS = re.compile(r"\.(md|rst|pdf|bib|cff|html?)$", re.IGNORECASE)
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
_ARROW = (".arrow", ".feather")
PACKED = (".gz", ".bz2", ".xz", ".zst")


@dataclasses.dataclass(frozen=True)
class Format:
    """Describe how the bytes of a file become rows.

    * `kind`: one of KINDS. TSV has no quotes, unless its beginning shows quotes as in CSV and the user did not choose the format.
    * `encoding`: that of the blocks; `written`: that of the file, if blocks were recoded.
    * `records`: the path to the rows in a JSON document, "" for JSON lines or an array.
    * `delimiter`: between columns of CSV and TSV; "" to detect it at the beginning of the file.
    * `escape`: the character in CSV after which the next one is literal, "" for none.
    * `columns`: the names of columns, if the first line does not name them.
    """

    kind: str
    encoding: str = "utf-8"
    written: str = ""
    records: str = ""
    delimiter: str = ","
    escape: str = ""
    columns: tuple[str, ...] = ()

    @property
    def quoted(self) -> bool:
        """Check whether a newline may occur inside a row."""
        return self.kind == "csv"

    @property
    def headed(self) -> bool:
        """Check whether the first row names the columns."""
        return self.kind in ("csv", "tsv") and not self.columns


# Reading options in a dataset card, named as in `datasets`, and the field of FileOptions for each.
_CARD_FIELDS = {
    "sep": "delimiter",
    "delimiter": "delimiter",
    "encoding": "encoding",
    "escapechar": "escape",
    "names": "columns",
    "column_names": "columns",
    "field": "records",
}
# Field of FileOptions → the kinds of files that it applies to, their names in a sentence, and advice for other files.
_APPLICABLE = {
    "delimiter": (("csv",), "CSV", "Remove --delimiter, or add --format csv."),
    "escape": (("csv",), "CSV", "To read a TSV with an escape character: --format csv --delimiter tab"),
    "columns": (("csv", "tsv", "conll"), "CSV, TSV and CoNLL", "Remove --columns."),
    "records": (("jsonl",), "JSON documents", "Remove --records."),
}
# Options of a card that t5prep fulfills anyway, with this value.
_AS_HERE = {
    "quotechar": '"',
    "quoting": 0,
    "doublequote": True,
    "skip_blank_lines": True,
    "keep_default_na": False,
    "na_filter": False,
}


def options_of_card(source: Resolved) -> dict[str, str]:
    """Return the fields of FileOptions in the card of a source. Raises SourceError for an option that no field expresses."""
    parameters, card_options = dict(source.parameters), dict[str, str]()
    has_names = any(parameters.get(name) for name in ("names", "column_names"))
    # Accept the header that t5prep assumes: none if the card names the columns, otherwise the first line.
    if "header" in parameters and parameters["header"] in ((None, "infer") if has_names else (0, "infer")):
        del parameters["header"]
    for name, value in parameters.items():
        field = _CARD_FIELDS.get(name, "")
        if field == "delimiter" and value == "\t" and {_kind(file.name) for file in source.files} == {"tsv"}:
            continue
        if name in _AS_HERE and value == _AS_HERE[name]:
            continue
        if field == "columns" and isinstance(value, list) and not any("," in str(column) for column in value):
            card_options[field] = ",".join(map(str, value))
        elif field and isinstance(value, str) and field != "columns":
            card_options[field] = f"{value}[]" if field == "records" else value
        else:
            raise SourceError(
                f"The dataset card of {source.uri} sets {name}={value!r:.60}, which t5prep does not support. {ADVICE}",
                code="source.invalid-card",
            )
    return card_options


def with_card(options: FileOptions, source: Resolved) -> FileOptions:
    """Return the options, with those that have their defaults taken from the card of a source (`options_of_card`).

    Raises SourceError for an option of the card that applies to none of the source's files, and UsageError for an encoding
    if all files are Parquet.
    """
    default, card_options = FileOptions(), options_of_card(source)
    overrides = {
        name: value for name, value in card_options.items() if getattr(options, name) in ("", getattr(default, name))
    }
    names, _ = without_documents([file.name for file in source.files], kind=options.format)
    kinds = {options.format or _kind(name) for name in names}
    if options.encoding != type(options).encoding and kinds == {"parquet"}:
        raise UsageError(
            f"--encoding {options.encoding} is for text files, but the files of {source.uri} are Parquet. Remove --encoding.",
            code="option.inapplicable",
        )
    for name in source.parameters:
        field = _CARD_FIELDS.get(name, "")
        if field in overrides and field in _APPLICABLE and kinds.isdisjoint({"", *_APPLICABLE[field][0]}):
            raise SourceError(
                f"The dataset card of {source.uri} sets {name}, which is for {_APPLICABLE[field][1]}, but its files are "
                f"{' and '.join(sorted(kinds))}. {ADVICE}",
                code="source.invalid-card",
            )
    return dataclasses.replace(options, **overrides)


def detect(
    name: str,
    options: FileOptions = FileOptions(),  # noqa: B008 - frozen
    *,
    otherwise: str = "",
) -> Format:
    """Return the format of a file: of the options if they name one, otherwise of its name, otherwise `otherwise`.

    Raises UsageError, also for an option that does not apply to this format.
    """
    if options.format and options.format not in KINDS:
        raise UsageError(
            f'--format "{options.format}" is not a known format. Choose one of: {", ".join(KINDS)}.',
            code="option.unknown-choice",
        )
    kind = options.format or _kind(name) or otherwise
    _refuse_unreadable(name)
    if not kind:
        raise UsageError(
            f"The name {name} does not show the format of the file. Name the format: --format {'|'.join(KINDS)}",
            code="file.unknown-format",
        )
    for field, (kinds, files, advice) in _APPLICABLE.items():
        if getattr(options, field) and kind not in kinds:
            raise UsageError(
                f"{flag(field)} is for {files}, but {name} is {kind}. {advice}", code="option.inapplicable"
            )
    return Format(
        kind,
        options.encoding,
        records=options.records,
        delimiter="\t" if options.format == "tsv" else options.delimiter,
        escape=options.escape,
        columns=tuple(options.names),
    )


def _refuse_unreadable(name: str) -> None:
    """Raise UsageError, with a way to convert the file, if its name shows an unsupported format."""
    if unpacked(name).endswith(_SPREADSHEETS):
        raise UsageError(
            f"{name} is a spreadsheet. Save its sheet as CSV in a spreadsheet program, or in Python: "
            f'pandas.read_excel("{name}").to_csv("rows.csv", index=False)',
            code="file.unsupported-format",
        )
    if unpacked(name).endswith(_ARROW):
        raise UsageError(
            f"{name} is an Arrow file. Save its rows as Parquet in Python: "
            'datasets.load_from_disk("FOLDER")["train"].to_parquet("train.parquet")',
            code="file.unsupported-format",
        )


def without_documents(names: Sequence[str], *, kind: str = "") -> tuple[list[str], list[str]]:
    """Return the names of files with rows, and those of files about the data. `kind` is the user's format, or "".

    >>> without_documents(["LICENSE", "a.csv", "README.txt", "notes", "b.md"])
    (['a.csv', 'notes'], ['LICENSE', 'README.txt', 'b.md'])
    >>> without_documents(["README.md", "a.md", "b.html"], kind="document")
    (['a.md', 'b.html'], ['README.md'])
    """
    documents = [name for name in names if METADATA.search(name) or (not kind and _PAPERS.search(name))]
    document_names = set(documents)
    rows = [name for name in names if name not in document_names]
    return (rows, documents) if any(kind or _kind(name) for name in rows) else (list(names), [])


def check_names(names: Sequence[str], *, uri: str) -> None:
    """Raise UsageError if some file names of a source show their format, and others (such as LICENSE) do not."""
    strangers = [name for name in names if not _kind(name)]
    if not strangers:
        return
    _refuse_unreadable(strangers[0])
    known_patterns = sorted({f"*{suffix}" for name in names for suffix in SUFFIXES if unpacked(name).endswith(suffix)})
    if known_patterns:
        raise UsageError(
            f"The name {strangers[0]} does not show its format, but the names of "
            f"{len(names) - len(strangers):,} other files do. Exclude it with a quoted glob: --source "
            f'"{uri.rstrip("/")}/**/{known_patterns[0]}"',
            code="file.unknown-format",
        )


def unpacked(name: str) -> str:
    """Return a name in lower case without the suffix of a compressed file."""
    stem = name.lower()
    for suffix in PACKED:
        stem = stem.removesuffix(suffix)
    return stem


def family(name: str) -> str:
    """Return the kind of format that a name shows, with "csv" for TSV, or "".

    >>> family("a.tsv.gz"), family("LICENSE")
    ('csv', '')
    """
    return {"tsv": "csv"}.get(kind := _kind(name), kind)


def _kind(name: str) -> str:
    """Return the kind of format that a name shows, or ""."""
    base_name = unpacked(name)
    return SUFFIXES.get(base_name[base_name.rfind(".") :], "")


# Names of numbered classes: in the metadata of Parquet files, otherwise in the card of the source.

# Key of the metadata in which Hugging Face's `datasets` describes the columns of a Parquet file.
_KEY = b"huggingface"


def of_source(source: Resolved, column: str) -> list[str]:
    """Return the class names of a column, that of number 0 first, or [] if the source has none.

    Raises SourceError for a file that cannot be opened.
    """
    first, path = source.files[0], column.replace("[]", "")
    if unpacked(first.name).endswith(".parquet"):
        import pyarrow.parquet

        with sources.open_random(first) as file:
            try:
                schema = pyarrow.parquet.read_schema(file)
            except (pa.ArrowException, OSError, UnicodeDecodeError):
                return []  # the error is reported when the rows are read
        if not pa.types.is_integer(_type_at(schema, path)):
            return []
        if names := of_schema(schema, path):
            return names
    return list(source.class_names.get(path, ()))


def of_schema(schema: pa.Schema, column: str) -> list[str]:
    """Return the class names of a column in the metadata of a schema, or []."""
    try:
        return list(card.classes_of(json.loads((schema.metadata or {})[_KEY])["info"]["features"]).get(column, ()))
    except (KeyError, TypeError, ValueError, RecursionError):
        return []


def _type_at(schema: pa.Schema, path: str) -> pa.DataType:
    """Return the type of the values at a path, inside of any lists; pa.null() if the path leads nowhere."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    data_type: pa.DataType = pa.struct(list(schema))
    for step in [path] if path in schema.names else path.split("."):
        index = data_type.get_field_index(step) if pa.types.is_struct(data_type) else -1
        data_type = data_type.field(index).type if index >= 0 else pa.null()
        while any(is_list(data_type) for is_list in lists):
            data_type = data_type.value_type
    return data_type


def label_map(names: Sequence[str], *, are_named: bool = False) -> str:
    """Return `0=World,1=Sports`, as a value of --label-map, or "" if a name cannot be written so.

    are_named: the values are not class numbers but class names

    >>> label_map(["World", "Sports"])
    '0=World,1=Sports'
    """
    if any("," in name or "=" in name or not name.strip() for name in names) or len(set(names)) != len(names):
        return ""
    return ",".join(f"{name.strip() if are_named else number}={name.strip()}" for number, name in enumerate(names))
