"""Show a dataset in the browser of this machine: a table to search, filter and sort, and pages of single records.

The table is made once (`t5prep.table`), cached as an Arrow file, and mapped into memory, so that a large one opens at once.
Pages are made on the server and have no script: a filter is an HTML form, and each view has its own URL.
"""

import dataclasses
import functools
import itertools
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset import record_table, tfrecord, verify
from t5prep.dataset.prepared import Dataset
from t5prep.errors import T5prepError, UsageError
from t5prep.io import atomic_files, paths, store, web_server
from t5prep.json_values import whole_number
from t5prep.options.models import SourceOptions
from t5prep.preparation.row_trace import RowTracer
from t5prep.report import pages, tokens
from t5prep.report.table import rejected_with_texts
from t5prep.report.why import format_trace

ANSWERS = "eval.json"  # the file in a run that `t5prep eval --predictions RUN/eval.json` writes
ROWS = 50  # rows of a page
_LARGEST_NUMBER = 10**11  # no page and no row has it; an address with a larger one is read as if it had none
_CHUNK = 16  # batches that are combined to one in the cached file
_WAYS = 32  # queries whose row numbers are cached in memory
# Columns by which a page can be sorted, if the table has them, with their names on the page.
SORTS = {
    "input_tokens": "tokens in",
    "target_tokens": "tokens out",
    "input_cut": "tokens cut",
    "near_duplicates": "near-duplicates",
    "loss": "loss",
}
# The version of the columns, a part of the cached files' names. Increment it when a table gets other columns.
_COLUMNS = 3
# The columns that a search covers.
_SEARCHED = ("id", "input", "target", "prediction", "file", "reason")


@dataclasses.dataclass(frozen=True)
class RowQuery:
    """Describe the rows that a page shows. The fields are parameters of its URL; "" and 0 mean no condition."""

    view: str = "records"  # or "rejected"
    search: str = ""
    split: str = ""
    target: str = ""
    reason: str = ""
    cut: str = ""  # "yes" or "no"
    answer: str = ""  # "right" or "wrong"
    min_tokens: int = 0  # minimum number of input tokens
    max_tokens: int = 0  # maximum number of input tokens
    sort: str = ""  # a column of SORTS; with `-` before it, largest first
    page: int = dataclasses.field(default=1, compare=False)  # not compared: all pages share the cached row numbers

    @classmethod
    def read(cls, address: Mapping[str, str]) -> "RowQuery":
        """Return the query of a URL's parameters. Invalid values are ignored."""
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            text = address.get(field.name, "")
            if field.type in (int, "int"):
                number = whole_number(text)
                if number is not None and number < _LARGEST_NUMBER:
                    fields[field.name] = number
            elif text:
                fields[field.name] = text
        if fields.get("sort", "").removeprefix("-") not in SORTS:
            fields.pop("sort", None)
        return cls(**fields | {"page": max(1, fields.get("page", 1))})

    def address(self, *, number: int | None = None, **changes: Any) -> str:
        """Return the URL of this query with `changes`, which begins at the first page unless they set `page`.

        With `number`, return the URL of the row of this number, whose page links to the other rows of the query.
        """
        changed = dataclasses.replace(self, **{"page": 1} | changes)
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        parameters = {name: value for name, value in dataclasses.asdict(changed).items() if value != usual[name]}
        path, parameters = ("/", parameters) if number is None else ("/row", parameters | {"number": number})
        return f"{path}?{urllib.parse.urlencode(parameters, errors='replace')}"


class Explorer:
    """Find the rows of a dataset that match a query, and describe one row. Methods may be called from several threads."""

    def __init__(
        self,
        data: str | Path,
        options: SourceOptions = SourceOptions(),  # noqa: B008 - frozen
        *,
        predictions: str | Path | None = None,
        on_progress: Callable[[int], None] = lambda rows: None,
    ) -> None:
        """Open the dataset `data`, and make its table of records if it is not cached.

        `on_progress` is called with numbers of rows while the table is made. `predictions` is that of
        `t5prep.table`. Raises DatasetError, TokenizerError, and UsageError for a file without predictions.
        """
        self.opened = Dataset(data, tokenizer=options.tokenizer)
        self.tracer = RowTracer(self.opened, source=options.source, trust_code=options.trust_code)
        self.dataset, self.data = self.opened.manifest, self.opened.folder
        _ = self.opened.tokenizer  # raises now, and not at the first page, if it cannot be found
        self._one_at_a_time = threading.Lock()
        load_table = functools.partial(_load_table, self.dataset.digest)
        # A table is cached under the manifest's digest, so the files are checked against the manifest before it is made.
        records = load_table("records", self._checked_records, report_progress=on_progress)
        if predictions is not None:
            answers = record_table.Answers(predictions)
            for field, column in zip(answers.fields, answers.columns(records), strict=True):
                records = records.append_column(field, column)
        self._records, rejected_file = records, self.dataset.rejected_file
        self._rejected = functools.cache(lambda: load_table("rejected", self._checked_rejected, is_valid=_has_texts))
        self.counts = {"records": len(records), "rejected": rejected_file.lines if rejected_file else 0}
        self.rows = functools.lru_cache(_WAYS)(self._rows)

    def _checked_records(self) -> pa.RecordBatchReader:
        verify.check_shards(self.opened)
        return record_table.records(self.opened)

    def _checked_rejected(self) -> pa.RecordBatchReader:
        verify.check_rows(self.opened)
        return rejected_with_texts(self.tracer.rows)

    def table(self, view: str) -> pa.Table:
        """Return the table of a view: "records" or "rejected".

        The table of rejected rows is made at its first use, because their texts are read from the source again.
        """
        if view == "records":
            return self._records
        with self._one_at_a_time:
            return self._rejected()

    def _rows(self, query: RowQuery) -> np.ndarray:
        """Return the numbers of the rows that match `query`, int64[rows], in its order."""
        rows = self.table(query.view)
        masks = list(_masks(rows, query))
        numbers = np.arange(len(rows))
        if masks:
            numbers = np.flatnonzero(np.logical_and.reduce(masks))
        column = query.sort.removeprefix("-")
        if column in rows.column_names:
            values = rows[column].to_numpy()[numbers].astype(np.float64)
            # Nulls are NaN here, which argsort puts last.
            order = np.argsort(-values if query.sort.startswith("-") else values, kind="stable")
            numbers = numbers[order]
        return numbers

    def page_rows(self, query: RowQuery) -> list[dict[str, Any]]:
        """Return the rows of the page `query.page`, each with its `number` in the table."""
        begin = (query.page - 1) * ROWS
        return [self.row(query.view, int(number)) for number in self.rows(query)[begin : begin + ROWS]]

    def row(self, view: str, number: int) -> dict[str, Any]:
        """Return the row `number` of the table of `view`, by column."""
        return self.table(view).slice(number, 1).to_pylist()[0] | {"number": number}

    def pieces(self, row: Mapping[str, Any]) -> dict[str, list[tokens.Piece]]:
        """Return the coloured tokens of a record, given its `row` of the table. Raises DatasetError."""
        split, record_index = row["split"], row["place"]
        every = self.opened.index.every[split]
        names = [shard.name for shard in self.dataset.splits[split].shards]
        sizes = self.opened.pages[split][names.index(row["shard"])]
        path = self.opened.path_of(row["shard"])
        with self.opened.reading(f"Record {record_index:,} of {path}"), paths.opened(path) as file:
            # Seek to the record's page by the index, and skip the records before it in this page.
            file.seek(int(sizes[: record_index // every].sum(dtype=np.int64)))
            (record,) = itertools.islice(tfrecord.read(file), record_index % every, record_index % every + 1)
            return tokens.of_record(self.opened.decoded(record), self.dataset, self.opened.tokenizer)

    def trace(self, id: str) -> tuple[list[tuple[str, list[str]]], list[str]]:
        """Return the trace of the row `id` as (step, lines), and notes about missing facts. Errors are notes, too."""
        try:
            with self._one_at_a_time:
                trace = self.tracer.trace(id)
            return list(format_trace(trace)), trace.notes
        except T5prepError as error:
            return [], [str(error)]


def _has_texts(rejected: pa.Table) -> bool:
    """Check whether rejected rows have texts. They have none if the source was missing when the table was made."""
    return not len(rejected) or rejected["input"].null_count < len(rejected)


def _load_table(
    digest: str,
    name: str,
    make: Callable[[], pa.RecordBatchReader],
    *,
    report_progress: Callable[[int], None] = lambda rows: None,
    is_valid: Callable[[pa.Table], bool] = lambda rows: True,
) -> pa.Table:
    """Return the table `name` of the dataset with this `digest`, mapped into memory from the cache.

    If it is not cached, or if `is_valid` returns False for the cached one, `make` makes it. `report_progress` is called with numbers
    of rows meanwhile.

    A `store.Store` writes a signature before its files, and would read the table to memory to check it.
    """
    from t5prep.version import __version__

    path = store.root() / "tables" / f"{digest[:32]}-{__version__}-{_COLUMNS}-{name}.arrows"
    if not path.exists() or not is_valid(_mapped(path)):
        reader = make()
        with (
            atomic_files.open_atomic(path, option="$T5PREP_CACHE") as file,
            pa.ipc.new_stream(file, reader.schema) as writer,
        ):
            while batches := list(itertools.islice(reader, _CHUNK)):
                writer.write_table(pa.Table.from_batches(batches).unify_dictionaries().combine_chunks())
                report_progress(sum(map(len, batches)))
    return _mapped(path)


def _mapped(path: Path) -> pa.Table:
    """Return the cached table in the file `path`, mapped into memory. Raises UsageError if it is damaged."""
    try:
        return pa.ipc.open_stream(pa.memory_map(str(path))).read_all().unify_dictionaries()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(
            f"{path} cannot be read ({error}). Remove it: t5prep cache clear tables", code="cache.damaged"
        ) from error


def _masks(rows: pa.Table, query: RowQuery) -> Iterator[np.ndarray]:
    """Yield bool[rows] for each condition of `query` for which the table `rows` has a column."""
    column_names = set(rows.column_names)

    def mask(values: pa.ChunkedArray) -> np.ndarray:
        flags: np.ndarray = pc.fill_null(values, False).to_numpy()
        return flags

    for name in ("split", "target"):
        if (value := getattr(query, name)) and name in column_names:
            yield mask(pc.equal(rows[name], value))
    if query.reason and "reason" in column_names:
        kind = pc.starts_with(rows["reason"], f"{query.reason}:")
        yield mask(pc.or_(pc.equal(rows["reason"], query.reason), kind))
    if query.cut and "cut" in column_names:
        yield mask(pc.equal(rows["cut"], query.cut == "yes"))
    if query.answer and "right" in column_names:
        yield mask(pc.equal(rows["right"], query.answer == "right"))
    if query.min_tokens and "input_tokens" in column_names:
        yield mask(pc.greater_equal(rows["input_tokens"], query.min_tokens))
    if query.max_tokens and "input_tokens" in column_names:
        yield mask(pc.less_equal(rows["input_tokens"], query.max_tokens))
    if query.search:
        search_mask = np.zeros(len(rows), bool)
        for name in _SEARCHED:
            if name in column_names:
                texts = rows[name]
                if pa.types.is_list(texts.type):  # the ids of a packed record
                    texts = pa.chunked_array([pc.binary_join(chunk, "\n") for chunk in texts.chunks], pa.string())
                elif pa.types.is_dictionary(texts.type):
                    texts = texts.cast(pa.string())
                search_mask |= mask(pc.match_substring(texts, query.search, ignore_case=True))
        yield search_mask


class Server(web_server.Server):
    """Serve the pages of one dataset to this machine alone. Raises UsageError if the port is taken."""

    def __init__(self, explorer: Explorer, *, port: int, run: str = "") -> None:
        self.explorer, self.run = explorer, run
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(web_server.Handler):
    """Answer one request of a browser with a page of the table or of a row."""

    server: Server
    policy = f"{pages.POLICY}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

    def get(self) -> None:
        """Answer with a page of the table (`/`), or with the page of one row (`/row`)."""
        path, _, query_string = self.path.partition("?")
        address = {name: values[-1] for name, values in urllib.parse.parse_qs(query_string, errors="replace").items()}
        explorer = self.server.explorer
        try:
            query = RowQuery.read(address)
            number = whole_number(address.get("number", ""))
            if query.view not in explorer.counts or path not in ("/", "/row"):
                self.send(HTTPStatus.NOT_FOUND, b"There is / and /row.", kind="text/plain")
            elif path == "/":
                self._send_page(self._table(query))
            elif number is not None and number < explorer.counts[query.view]:
                self._send_page(self._row(query, number, id=address.get("id", "")))
            else:
                self.send(HTTPStatus.NOT_FOUND, b"There is no such row.", kind="text/plain")
        except T5prepError as error:
            self.send(HTTPStatus.INTERNAL_SERVER_ERROR, str(error).encode("utf-8", "replace"), kind="text/plain")
        except ConnectionError:
            raise
        except Exception as error:  # a bug: the page ends at this point, and the server goes on
            print(f"A page could not be made: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self.close_connection = True

    def _send_page(self, pieces: Iterator[str]) -> None:
        """Send the pieces of a page while they are made."""
        first = next(pieces)  # before the status is sent, so that an error here can still become a 500
        self.send_start(HTTPStatus.OK, kind="text/html")
        for piece in itertools.chain([first], pieces):
            self.wfile.write(piece.encode("utf-8", "replace"))

    def _table(self, query: RowQuery) -> Iterator[str]:
        """Yield the pieces of a page of the table: rows, filters, and links to other pages."""
        explorer = self.server.explorer
        columns = explorer.table(query.view).column_names
        total = len(explorer.rows(query))
        facts = {
            "query": query,
            "total": total,
            "pages": max(1, -(-total // ROWS)),
            "rows": explorer.page_rows(query),
            "columns": columns,
            "sorts": {name: called for name, called in SORTS.items() if name in columns},
            "counts": explorer.counts,
            # Values with invisible characters are left out: browsers change them when they send a form.
            "targets": list(filter(str.isprintable, explorer.dataset.labels)),
            "reasons": sorted(filter(str.isprintable, explorer.dataset.rejected)),
        }
        return self._rendered("explore.html", facts)

    def _row(self, query: RowQuery, number: int, *, id: str) -> Iterator[str]:
        """Yield the pieces of the page of one row; `id` selects one example of a packed record."""
        explorer = self.server.explorer
        row = explorer.row(query.view, number)
        rejected = query.view == "rejected"
        rows = explorer.rows(query)
        if not len(positions := np.flatnonzero(rows == number)):  # a typed URL: the query does not match this row
            query = RowQuery(view=query.view)
            rows, positions = explorer.rows(query), np.array([number])
        position = int(positions[0])
        ids = [f"{row['file']}:{row['row']}"] if rejected else row["id"] if isinstance(row["id"], list) else [row["id"]]
        chosen = id if id in ids else ids[0]
        facts = {
            "query": query,
            "page": position // ROWS + 1,
            "before": int(rows[position - 1]) if position else None,
            "after": int(rows[position + 1]) if position + 1 < len(rows) else None,
            "row": row,
            "ids": ids,
            "chosen": chosen,
            "pieces": {} if rejected else explorer.pieces(row),
            "marker": explorer.dataset.marked,
            "kept": row.get("cluster") if rejected else None,
            "run": self.server.run,
            "trace": lambda: explorer.trace(chosen),
        }
        return self._rendered("explore_row.html", facts)

    def _rendered(self, template: str, facts: Mapping[str, object]) -> Iterator[str]:
        """Yield the pieces of a template with `facts` and the variables that all pages have."""
        explorer = self.server.explorer
        return pages.pieces(
            template,
            title=f"{explorer.dataset.settings.task} · t5prep",
            manifest=explorer.dataset,
            data=explorer.data,
            **facts,
        )


def answers_of(run: str, predictions: str | None) -> str | None:
    """Return `predictions` if it is set, else the file of the run's answers, or None without a run.

    Raises UsageError if the run has no answers.
    """
    if predictions or not run:
        return predictions
    try:
        names = paths.names(run)
    except OSError as error:
        raise UsageError(
            f"{run} cannot be read ({error.strerror or error}). Name a training run.", code="run.unreadable"
        ) from error
    if ANSWERS not in names:
        raise UsageError(
            f"{run} has no saved answers. Save them: t5prep eval --model {run} --predictions "
            f"{paths.join(run, ANSWERS)}",
            code="answer.missing",
        )
    return paths.join(run, ANSWERS)
