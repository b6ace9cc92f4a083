"""Show a dataset in a browser: its table to search, filter and sort; a record with its tokens and its life. This machine alone
can ask.

The table is made once (`t5prep.table`), kept in the cache as an Arrow file, and read there by mapping it into memory, so that a
large one opens at once. Pages are made here and have no script: a filter is a form, and a page of it an address.
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

from t5prep.dataset import table, tfrecord, verify
from t5prep.dataset.prepared import Dataset
from t5prep.errors import T5prepError, UsageError
from t5prep.io import atomic_files, paths, store, web_server
from t5prep.preparation.row_trace import RowTracer
from t5prep.report import pages, tokens
from t5prep.report.table import rejected_with_texts
from t5prep.report.why import format_trace

ANSWERS = "eval.json"  # what `t5prep eval --predictions RUN/eval.json` writes
ROWS = 50  # of a page
_CHUNK = 16  # batches of a table that are one piece of the kept file
_WAYS = 32  # filters whose rows are remembered
# Columns that a page can be sorted by, if the table has them, and how they are called there.
SORTS = {
    "input_tokens": "tokens in",
    "target_tokens": "tokens out",
    "input_cut": "tokens cut",
    "near_duplicates": "near-duplicates",
    "loss": "loss",
}
# To be counted on when the tables get other columns: those of before are not shown.
_COLUMNS = 3
_SEARCHED = ("id", "input", "target", "prediction", "file", "reason")


@dataclasses.dataclass(frozen=True)
class RowQuery:
    """Describe the rows that a page shows; the fields are those of its address. "" and 0 are no condition."""

    view: str = "records"  # or rejected
    search: str = ""
    split: str = ""
    target: str = ""
    reason: str = ""
    cut: str = ""  # yes or no
    answer: str = ""  # right or wrong
    least: int = 0  # tokens of the input
    most: int = 0
    sort: str = ""  # a column; with - before it, the largest first
    page: int = dataclasses.field(default=1, compare=False)  # all pages are of the same rows

    @classmethod
    def read(cls, address: Mapping[str, str]) -> "RowQuery":
        """Return what an address asks for; a value that none can be is no condition."""
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            text = address.get(field.name, "")
            if field.type in (int, "int"):
                if text.isascii() and text.isdigit() and len(text) < 12:
                    fields[field.name] = int(text)
            elif text:
                fields[field.name] = text
        if fields.get("sort", "").removeprefix("-") not in SORTS:
            fields.pop("sort", None)
        return cls(**fields | {"page": max(1, fields.get("page", 1))})

    def address(self, *, number: int | None = None, **changes: Any) -> str:
        """Return the address of these rows with some fields changed; another filter or order begins at its first page.

        With a `number`, it is the address of one of the rows, from which the others are reached.
        """
        changed = dataclasses.replace(self, **{"page": 1} | changes)
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        parameters = {name: value for name, value in dataclasses.asdict(changed).items() if value != usual[name]}
        path, parameters = ("/", parameters) if number is None else ("/row", parameters | {"number": number})
        return f"{path}?{urllib.parse.urlencode(parameters, errors='replace')}"


class Explorer:
    """Answer questions about one dataset: which rows there are, and what one of them is."""

    def __init__(
        self,
        data: str | Path,
        *,
        predictions: str | Path | None = None,
        source: str = "",
        tokenizer: str | None = None,
        trust_code: bool = False,
        on_progress: Callable[[int], None] = lambda rows: None,
    ) -> None:
        """Open a dataset; `on_progress` hears of rows while a table is made. The other options are those of `table` and `why`.

        Raises DatasetError, TokenizerError, and UsageError for predictions that are none.
        """
        self.opened = Dataset(data, tokenizer=tokenizer)
        self.tracer = RowTracer(self.opened, source=source, trust_code=trust_code)
        self.dataset, self.data = self.opened.manifest, self.opened.folder
        _ = self.opened.tokenizer  # one that cannot be found is said at once
        self._one_at_a_time = threading.Lock()
        load_table = functools.partial(_load_table, self.dataset.digest)
        # A table is kept under the digest of the manifest, so it is made only of files that are those of the manifest.
        records = load_table("records", self._checked_records, made=on_progress)
        if predictions is not None:
            answers = table.Answers(predictions)
            for field, column in zip(answers.fields, answers.columns(records), strict=True):
                records = records.append_column(field, column)
        self._records, rejected_file = records, self.dataset.rejected_file
        self._rejected = functools.cache(lambda: load_table("rejected", self._checked_rejected, whole=_has_texts))
        self.counts = {"records": len(records), "rejected": rejected_file.lines if rejected_file else 0}
        self.rows = functools.lru_cache(_WAYS)(self._rows)

    def _checked_records(self) -> pa.RecordBatchReader:
        verify.check_shards(self.opened)
        return table.records(self.opened)

    def _checked_rejected(self) -> pa.RecordBatchReader:
        verify.check_rows(self.opened)
        return rejected_with_texts(self.tracer.rows)

    def table(self, view: str) -> pa.Table:
        """Return the table of a view. That of rejected rows is made when it is first looked at: it reads their source again."""
        if view == "records":
            return self._records
        with self._one_at_a_time:
            return self._rejected()

    def _rows(self, query: RowQuery) -> np.ndarray:
        """Return the numbers of the rows that are wanted, in their order."""
        rows = self.table(query.view)
        masks = list(_masks(rows, query))
        numbers = np.arange(len(rows))
        if masks:
            numbers = np.flatnonzero(np.logical_and.reduce(masks))
        column = query.sort.removeprefix("-")
        if column in rows.column_names:
            values = rows[column].to_numpy()[numbers].astype(np.float64)
            order = np.argsort(-values if query.sort.startswith("-") else values, kind="stable")  # what is null is last
            numbers = numbers[order]
        return numbers

    def shown(self, query: RowQuery) -> list[dict[str, Any]]:
        """Return the rows of one page, each with its `number` in the table."""
        begin = (query.page - 1) * ROWS
        return [self.row(query.view, int(number)) for number in self.rows(query)[begin : begin + ROWS]]

    def row(self, view: str, number: int) -> dict[str, Any]:
        """Return one row of a table."""
        return self.table(view).slice(number, 1).to_pylist()[0] | {"number": number}

    def pieces(self, row: Mapping[str, Any]) -> dict[str, list[tokens.Piece]]:
        """Return the tokens of a record, to be coloured, given its row of the table. Raises DatasetError."""
        split, record_index = row["split"], row["place"]
        every = self.opened.index.every[split]
        names = [shard.name for shard in self.dataset.splits[split].shards]
        sizes = self.opened.pages[split][names.index(row["shard"])]
        path = self.opened.at(row["shard"])
        with self.opened.reading(f"Record {record_index:,} of {path}"), paths.opened(path) as file:
            file.seek(int(sizes[: record_index // every].sum(dtype=np.int64)))
            (record,) = itertools.islice(tfrecord.read(file), record_index % every, record_index % every + 1)
            return tokens.of_record(self.opened.decoded(record), self.dataset, self.opened.tokenizer)

    def trace(self, id: str) -> tuple[list[tuple[str, list[str]]], list[str]]:
        """Return the steps of a row, each with its lines, and notes on what is not known."""
        try:
            with self._one_at_a_time:
                trace = self.tracer.trace(id)
            return list(format_trace(vars(trace))), trace.notes
        except T5prepError as error:
            return [], [str(error)]


def _has_texts(rejected: pa.Table) -> bool:
    """Check whether rejected rows have their texts: not if the source was gone."""
    return not len(rejected) or rejected["input"].null_count < len(rejected)


def _load_table(
    digest: str,
    name: str,
    make: Callable[[], pa.RecordBatchReader],
    *,
    made: Callable[[int], None] = lambda rows: None,
    whole: Callable[[pa.Table], bool] = lambda rows: True,
) -> pa.Table:
    """Return a table of a dataset, mapped into memory from the cache, where it is written first if no `whole` one is there."""
    from t5prep.version import __version__

    path = store.root() / "tables" / f"{digest[:32]}-{__version__}-{_COLUMNS}-{name}.arrows"
    if not path.exists() or not whole(_mapped(path)):
        reader = make()
        with (
            atomic_files.open_atomic(path, option="$T5PREP_CACHE") as file,
            pa.ipc.new_stream(file, reader.schema) as writer,
        ):
            while batches := list(itertools.islice(reader, _CHUNK)):
                writer.write_table(pa.Table.from_batches(batches).unify_dictionaries().combine_chunks())
                made(sum(map(len, batches)))
    return _mapped(path)


def _mapped(path: Path) -> pa.Table:
    """Return a table that is kept. Raises UsageError if it is damaged."""
    try:
        return pa.ipc.open_stream(pa.memory_map(str(path))).read_all().unify_dictionaries()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{path} cannot be read ({error}). Remove it: t5prep cache clear tables") from error


def _masks(rows: pa.Table, query: RowQuery) -> Iterator[np.ndarray]:
    """Yield bool[rows] for each condition on a table's rows that it has a column for."""
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
    if query.least and "input_tokens" in column_names:
        yield mask(pc.greater_equal(rows["input_tokens"], query.least))
    if query.most and "input_tokens" in column_names:
        yield mask(pc.less_equal(rows["input_tokens"], query.most))
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
    """Serve the pages of one dataset on this machine, to this machine. Raises UsageError if the port is taken."""

    def __init__(self, explorer: Explorer, *, port: int, run: str = "") -> None:
        self.explorer, self.run = explorer, run
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(web_server.Handler):
    """Handle one request of one browser."""

    server: Server
    policy = f"{pages.POLICY}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

    def get(self) -> None:
        """Answer with a page of the table, or with one row of it."""
        path, _, query_string = self.path.partition("?")
        address = {name: values[-1] for name, values in urllib.parse.parse_qs(query_string, errors="replace").items()}
        explorer = self.server.explorer
        try:
            query = RowQuery.read(address)
            number = address.get("number", "")
            if query.view not in explorer.counts or path not in ("/", "/row"):
                self.send(HTTPStatus.NOT_FOUND, b"There is / and /row.", kind="text/plain")
            elif path == "/":
                self._send_page(self._table(query))
            elif number.isascii() and number.isdigit() and int(number[:12]) < explorer.counts[query.view]:
                self._send_page(self._row(query, int(number[:12]), id=address.get("id", "")))
            else:
                self.send(HTTPStatus.NOT_FOUND, b"There is no such row.", kind="text/plain")
        except T5prepError as error:
            self.send(HTTPStatus.INTERNAL_SERVER_ERROR, str(error).encode("utf-8", "replace"), kind="text/plain")
        except ConnectionError:
            raise
        except Exception as error:  # an error in this program: the page ends there, and the terminal says why
            print(f"A page could not be made: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self.close_connection = True

    def _send_page(self, pieces: Iterator[str]) -> None:
        """Send a page while it is made."""
        first = next(pieces)  # what cannot be made is found before anything is sent
        self.send_start(HTTPStatus.OK, kind="text/html")
        for piece in itertools.chain([first], pieces):
            self.wfile.write(piece.encode("utf-8", "replace"))

    def _table(self, query: RowQuery) -> Iterator[str]:
        explorer = self.server.explorer
        columns = explorer.table(query.view).column_names
        total = len(explorer.rows(query))
        facts = {
            "wanted": query,
            "total": total,
            "pages": max(1, -(-total // ROWS)),
            "rows": explorer.shown(query),
            "columns": columns,
            "sorts": {name: called for name, called in SORTS.items() if name in columns},
            "counts": explorer.counts,
            # One with characters that are not seen cannot be offered: what a form sends would be another text.
            "targets": list(filter(str.isprintable, explorer.dataset.labels)),
            "reasons": sorted(filter(str.isprintable, explorer.dataset.rejected)),
        }
        return self._rendered("explore.html", facts)

    def _row(self, query: RowQuery, number: int, *, id: str) -> Iterator[str]:
        explorer = self.server.explorer
        row = explorer.row(query.view, number)
        rejected = query.view == "rejected"
        rows = explorer.rows(query)
        if not len(positions := np.flatnonzero(rows == number)):  # the address was typed
            query = RowQuery(view=query.view)
            rows, positions = explorer.rows(query), np.array([number])
        position = int(positions[0])
        ids = [f"{row['file']}:{row['row']}"] if rejected else row["id"] if isinstance(row["id"], list) else [row["id"]]
        chosen = id if id in ids else ids[0]
        facts = {
            "wanted": query,
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
        explorer = self.server.explorer
        return pages.pieces(
            template,
            title=f"{explorer.dataset.settings.task} · t5prep",
            manifest=explorer.dataset,
            data=explorer.data,
            **facts,
        )


def answers_of(run: str, predictions: str | None) -> str | None:
    """Return the file of a run's answers, or the file that was named. Raises UsageError if the run has none."""
    if predictions or not run:
        return predictions
    try:
        names = paths.names(run)
    except OSError as error:
        raise UsageError(f"{run} cannot be read ({error.strerror or error}). Name a training run.") from error
    if ANSWERS not in names:
        raise UsageError(
            f"{run} keeps no answers. Write them: t5prep eval --model {run} --predictions {paths.join(run, ANSWERS)}"
        )
    return paths.join(run, ANSWERS)
