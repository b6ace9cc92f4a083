"""Format answers as text: JSON lines, one JSON object, CSV and TSV with the input's columns, or plain lines."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from t5prep.errors import UsageError, did_you_mean
from t5prep.train.predict import Answer

FORMATS = ("text", "jsonl", "csv", "tsv", "json")
_SUFFIXES = {".txt": "text", ".text": "text", ".jsonl": "jsonl", ".csv": "csv", ".tsv": "tsv", ".json": "json"}
# The columns of an answer in a table, after the columns of its row.
_NEW = ("prediction", "reason", "tokens_lost")


def of_name(name: str) -> str:
    """Return the format that a file's name indicates; text for a name without an ending. Raises UsageError.

    >>> of_name("answers.csv"), of_name("answers")
    ('csv', 'text')
    """
    if not PurePath(name).suffix:
        return "text"
    found = next((kind for suffix, kind in _SUFFIXES.items() if name.lower().endswith(suffix)), "")
    if not found:
        raise UsageError(f"the name {name} does not say what to write. Say it: --to {'|'.join(FORMATS)}")
    return found


class Writer:
    """Turn answers into text piece by piece: `begin`, `some` for each group, `end`.

    `columns` are the input's, `scores` adds each answer's score. Raises UsageError for an unknown format.
    """

    def __init__(self, kind: str, *, columns: Sequence[str] = (), scores: bool = False) -> None:
        if kind not in FORMATS:
            raise UsageError(f'--to "{kind}": it is one of {", ".join(FORMATS)}.{did_you_mean(kind, FORMATS)}')
        self.kind, self._scores, self._first = kind, scores, True
        self._columns = tuple(columns)
        self._new = tuple(_free(name, self._columns) for name in (*_NEW, *(("score",) if scores else ())))

    def begin(self) -> str:
        """Return the text before all answers."""
        if self.kind == "json":
            return '{"predictions": ['
        return self._table([[*self._columns, *self._new]]) if self.kind in ("csv", "tsv") else ""

    def some(self, answers: Sequence[Answer]) -> str:
        """Return the text of some answers, in order."""
        if self.kind in ("csv", "tsv"):
            return self._table([self._cells(one) for one in answers])
        if self.kind == "text":
            return "".join(_line(one.prediction) + "\n" for one in answers)
        lines = [json.dumps(as_dict(one, scores=self._scores), ensure_ascii=False) for one in answers]
        if self.kind == "jsonl":
            return "".join(line + "\n" for line in lines)
        comma, self._first = "" if self._first else ",", self._first and not lines
        return comma + ",".join(f"\n  {line}" for line in lines) if lines else ""

    def going_on(self) -> None:
        """Continue after answers that were written earlier."""
        self._first = False

    def end(self) -> str:
        """Return the text after all answers."""
        return "\n]}\n" if self.kind == "json" else ""

    def _cells(self, one: Answer) -> list[str]:
        fields = [one.prediction or "", one.reason, str(one.lost)] + ([f"{one.score:.6g}"] if self._scores else [])
        return [*(_cell(one.row.get(column)) for column in self._columns), *fields]

    def _table(self, rows: Sequence[Sequence[str]]) -> str:
        if self.kind == "tsv":  # without quoting, as TSV is read here: a field holds no tabs and no newlines
            return "".join("\t".join(_line(cell).replace("\t", " ") for cell in row) + "\n" for row in rows)
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue()


def as_dict(one: Answer, *, scores: bool = False) -> dict[str, Any]:
    """Return an answer as a dict for JSON: id, input and prediction, and other fields that are set."""
    fields: dict[str, Any] = {"id": one.id, "input": one.input, "prediction": one.prediction}
    if one.reason:
        fields["reason"] = one.reason
    elif scores:
        fields["score"] = round(one.score, 6)
    if one.others:
        best = {"prediction": one.prediction, "score": round(one.score, 6)}
        fields["answers"] = [best, *({"prediction": text, "score": round(score, 6)} for text, score in one.others)]
    if one.lost:
        fields["tokens"], fields["tokens_lost"] = one.tokens, one.lost
    if one.parts > 1:
        fields["parts"] = one.parts
    if one.unfinished:
        fields["unfinished"] = True
    return fields


def _line(text: str | None) -> str:
    r"""Return a text on one line, and "" for None.

    >>> _line("a\r\nb")
    'a b'
    """
    return " ".join((text or "").splitlines())


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _free(name: str, columns: Sequence[str]) -> str:
    """Return the name, with a number after it if the input has a column of that name.

    >>> _free("prediction", ["id", "prediction"])
    'prediction_2'
    """
    return next(new for new in (name, *(f"{name}_{n}" for n in range(2, 1000))) if new not in columns)
