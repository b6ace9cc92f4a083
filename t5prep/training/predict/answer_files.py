"""Write answers as text, to streams, and to files that a killed run can resume."""

import contextlib
import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TypedDict

from t5prep.errors import OutputError, T5prepError, UsageError, did_you_mean
from t5prep.io import atomic_files, paths, store
from t5prep.json_values import JSON, JSONObject
from t5prep.training.predict.predictor import Answer

FORMATS = ("text", "jsonl", "csv", "tsv", "json")
_SUFFIXES = {".txt": "text", ".text": "text", ".jsonl": "jsonl", ".csv": "csv", ".tsv": "tsv", ".json": "json"}
# The columns of an answer in a table; they follow the columns of its row.
_NEW = ("prediction", "reason", "tokens_lost")


def of_name(name: str) -> str:
    """Return the format that a file's name indicates; text for a name without an ending. Raises UsageError.

    >>> of_name("answers.csv"), of_name("answers")
    ('csv', 'text')
    """
    if not PurePath(name).suffix:
        return "text"
    file_format = next((kind for suffix, kind in _SUFFIXES.items() if name.lower().endswith(suffix)), "")
    if not file_format:
        raise UsageError(
            f"The name {name} does not determine a file format. Name the format: --to {'|'.join(FORMATS)}",
            code="output.unknown-format",
        )
    return file_format


class Writer:
    """Turn answers into text of the format `kind`, piece by piece: `begin`, `format_answers` for each group, `end`.

    `columns`: the input's columns, which a table repeats. `scores`: whether to add each answer's score. Raises UsageError for
    an unknown format.
    """

    def __init__(self, kind: str, *, columns: Sequence[str] = (), scores: bool = False) -> None:
        if kind not in FORMATS:
            raise UsageError(
                f'--to does not accept "{kind}".{did_you_mean(kind, FORMATS)} Choose one of: {", ".join(FORMATS)}.',
                code="option.unknown-choice",
            )
        self.kind, self._scores, self._first = kind, scores, True
        self._columns = tuple(columns)
        self._new = tuple(_free(name, self._columns) for name in (*_NEW, *(("score",) if scores else ())))

    def begin(self) -> str:
        """Return the text before all answers."""
        if self.kind == "json":
            return '{"predictions": ['
        return self._table([[*self._columns, *self._new]]) if self.kind in ("csv", "tsv") else ""

    def format_answers(self, answers: Sequence[Answer]) -> str:
        """Return the text of a group of answers, in order."""
        if self.kind in ("csv", "tsv"):
            return self._table([self._cells(answer) for answer in answers])
        if self.kind == "text":
            return "".join(_line(answer.prediction) + "\n" for answer in answers)
        lines = [json.dumps(as_dict(answer, scores=self._scores), ensure_ascii=False) for answer in answers]
        if self.kind == "jsonl":
            return "".join(line + "\n" for line in lines)
        comma, self._first = "" if self._first else ",", self._first and not lines
        return comma + ",".join(f"\n  {line}" for line in lines) if lines else ""

    def resume(self) -> None:
        """Note that an earlier run has written answers already, so that JSON continues with a comma."""
        self._first = False

    def end(self) -> str:
        """Return the text after all answers."""
        return "\n]}\n" if self.kind == "json" else ""

    def _cells(self, answer: Answer) -> list[str]:
        fields = [answer.prediction or "", answer.reason, str(answer.tokens_lost)] + (
            [f"{answer.score:.6g}"] if self._scores else []
        )
        return [*(_cell(answer.row.get(column)) for column in self._columns), *fields]

    def _table(self, rows: Sequence[Sequence[str]]) -> str:
        if self.kind == "tsv":  # no quoting, because TSV is read without it; tabs and newlines in a field become spaces
            return "".join("\t".join(_line(cell).replace("\t", " ") for cell in row) + "\n" for row in rows)
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue()


def as_dict(answer: Answer, *, scores: bool = False) -> dict[str, JSON]:
    """Return an answer as a dict for JSON: id, input and prediction, and further fields if they are set."""
    fields: dict[str, JSON] = {"id": answer.id, "input": answer.input, "prediction": answer.prediction}
    if answer.reason:
        fields["reason"] = answer.reason
    elif scores:
        fields["score"] = round(answer.score, 6)
    if answer.alternatives:
        best = {"prediction": answer.prediction, "score": round(answer.score, 6)}
        fields["answers"] = [
            best,
            *({"prediction": text, "score": round(score, 6)} for text, score in answer.alternatives),
        ]
    if answer.tokens_lost:
        fields["tokens"], fields["tokens_lost"] = answer.tokens, answer.tokens_lost
    if answer.parts > 1:
        fields["parts"] = answer.parts
    if answer.unfinished:
        fields["unfinished"] = True
    return fields


def _line(text: str | None) -> str:
    r"""Return a text on one line, and "" for None.

    >>> _line("a\r\nb")
    'a b'
    """
    return " ".join((text or "").splitlines())


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _free(name: str, columns: Sequence[str]) -> str:
    """Return `name`, with a number added if `columns` contains it already.

    >>> _free("prediction", ["id", "prediction"])
    'prediction_2'
    """
    return next(new for new in (name, *(f"{name}_{n}" for n in range(2, 1000))) if new not in columns)


class _Journal(TypedDict, total=False):
    identity: JSONObject
    done: int
    bytes: int
    counts: dict[str, Any]


def finished_counts(path: Path, *, identity: JSONObject) -> JSONObject | None:
    """Return the counts of an answer file that a run with this `identity` finished, and that is unchanged since; else None."""
    with contextlib.suppress(OSError, T5prepError):
        cache, name = _cache_of(path, version=paths.version(str(path)), identity=identity)
        if (content := cache.get(name)) is not None:
            _journal_of(path).unlink(missing_ok=True)  # left if the run was killed after the last rename
            counts: JSONObject = json.loads(content)
            return counts
    return None


def _cache_of(path: Path, *, version: str, identity: JSONObject) -> tuple[store.Store, str]:
    """Return the cache of the counts of finished files, and the name of this file in it. Raises UsageError without a home."""
    facts = json.dumps([str(path.absolute()), version, identity], sort_keys=True)
    return store.Store(str(store.root() / "answers"), ".json"), hashlib.sha256(facts.encode()).hexdigest()


def _journal_of(path: Path) -> Path:
    return path.with_name(f"{atomic_files.UNFINISHED}{path.name}.json")


class AnswerFile:
    """Append text to a file piece by piece, and sync each piece to the disk before the next.

    Until `finish`, the text is in a temporary file, and a journal beside it holds `identity`, the number of answers and the bytes.
    `identity` is everything that the answers depend on. If a killed run with the same identity left a part, this run resumes after
    its `done` answers, with their `counts`; `fresh` starts from scratch. Raises OutputError if the file cannot be written or
    exists already, if another run is writing it, or if the part has another identity.

    It locks its own temporary file: unlike a dataset or a run, it has no folder of its own that could be locked.
    """

    def __init__(self, path: Path, *, identity: JSONObject, fresh: bool = False) -> None:
        self._path = path
        if path.is_dir():
            raise OutputError(
                f"{path} is a directory. Name a file in it: --out {path / 'answers.jsonl'}", code="output.directory"
            )
        self._text = path.with_name(f"{atomic_files.UNFINISHED}{path.name}")
        self._journal = _journal_of(path)
        self._identity: JSONObject = json.loads(json.dumps(identity))
        with _explained(path):
            if path.exists() and not fresh and not self._journal.exists():
                raise OutputError(
                    f"{path} already exists. Name another file, or replace it with --fresh.", code="output.exists"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = open(self._text, "ab")  # noqa: SIM115 - closed in `close`
        busy = f"{path} is being written by another run. Wait for it, or choose another --out."
        try:
            atomic_files.lock(self._file.fileno(), busy=busy)
            # The other run may have ended between opening and locking. Then the opened file is its renamed, finished answers.
            if not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._text)):
                raise FileNotFoundError
        except (FileNotFoundError, OutputError):
            self._file.close()
            raise OutputError(busy, code="output.locked") from None
        journal: _Journal = {} if fresh else self._journal_before()
        with _explained(path):
            self._file.truncate(journal.get("bytes", 0))
            self._file.seek(0, os.SEEK_END)
        self.done, self.counts = journal.get("done", 0), dict(journal.get("counts", {}))

    def _journal_before(self) -> _Journal:
        """Return the journal of a killed run, or an empty dict. Raises OutputError if its identity is another one."""
        try:
            journal: _Journal = json.loads(self._journal.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if self._file.tell() < journal["bytes"]:  # the text was removed, or cut by hand
            return {}
        if journal["identity"] != self._identity:
            differs = [key for key in self._identity if journal["identity"].get(key) != self._identity[key]]
            self._file.close()
            raise OutputError(
                f"An earlier run began {self._path} with a different {' and '.join(differs) or 'version'}. "
                "Use the earlier options to resume, or --fresh to start over.",
                code="output.different-settings",
            )
        return journal

    def add(self, text: str, *, answer_count: int, counts: JSONObject) -> None:
        """Write the text of further answers. `answer_count` and `counts` include them and all earlier ones."""
        with _explained(self._path):
            self._file.write(text.encode("utf-8", "backslashreplace"))
            self._file.flush()
            os.fsync(self._file.fileno())
            journal = {"identity": self._identity, "done": answer_count, "bytes": self._file.tell(), "counts": counts}
            atomic_files.write_scratch(self._journal, json.dumps(journal).encode())

    def finish(self, text: str, *, counts: JSONObject) -> None:
        """Write the last text, and rename the temporary file to its final name. The cache keeps the final `counts`."""
        with _explained(self._path):
            self._file.write(text.encode("utf-8", "backslashreplace"))
            self._file.flush()
            os.fsync(self._file.fileno())
            # Without a cache, the same command finds the file and refuses to replace it.
            with contextlib.suppress(T5prepError):
                version = paths.version(str(self._text))
                cache, name = _cache_of(self._path, version=version, identity=self._identity)
                cache.put(name, json.dumps(counts).encode())
            os.replace(self._text, self._path)
            self._journal.unlink(missing_ok=True)
        self._file.close()

    def close(self) -> None:
        """Close the file. The text of an unfinished file stays on the disk, unless it is empty."""
        if not self._file.closed:
            if self._file.tell() == 0:
                self._text.unlink(missing_ok=True)  # before closing, which unlocks it: then another run may write it
            self._file.close()


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise atomic_files.write_error(error, path) from error
