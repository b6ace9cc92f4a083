"""Write a file of answers that a killed run can continue: it gets its name when it is complete."""

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from t5prep.errors import OutputError
from t5prep.io import atomic_files


class AnswerFile:
    """Append text piece by piece, and put each piece on disk before the next.

    `identity` describes what the answers depend on. If a killed run with the same identity left a part, this run
    continues it after `done` answers with their `counts`; `fresh` begins anew. Raises OutputError where the file cannot
    be written, where it is there already, where another run is writing it, or where a run with another identity was
    killed.
    """

    def __init__(self, path: Path, *, identity: Mapping[str, Any], fresh: bool = False) -> None:
        self._path = path
        self._text = path.with_name(f"{atomic_files.UNFINISHED}{path.name}")
        self._journal = path.with_name(f"{atomic_files.UNFINISHED}{path.name}.json")
        self._identity = json.loads(json.dumps(identity))
        self.done = 0
        self.counts: dict[str, Any] = {}
        with _explained(path):
            if path.is_dir():
                raise IsADirectoryError(21, "it is a directory")
            if path.exists() and not fresh and not self._journal.exists():
                raise OutputError(f"{path} is there already. Name another file, or --fresh to replace it.")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = open(self._text, "ab")  # noqa: SIM115 - closed in `close`
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking, the other run may have ended: the file opened here is then its answers.
            if not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._text)):
                raise FileNotFoundError
        except OSError:
            self._file.close()
            raise OutputError(
                f"{path} is being written by another run. Wait for it, or choose another --out."
            ) from None
        self._go_on({} if fresh else self._journal_before())

    def _journal_before(self) -> dict[str, Any]:
        """Return the journal of a killed run, or an empty dict."""
        try:
            journal = json.loads(self._journal.read_bytes())
        except (OSError, ValueError):
            return {}
        if self._file.tell() < journal["bytes"]:  # the text was removed, or cut by hand
            return {}
        if journal["identity"] != self._identity:
            differs = [key for key in self._identity if journal["identity"].get(key) != self._identity[key]]
            self._file.close()
            raise OutputError(
                f"{self._path} was begun with another {' and '.join(differs) or 'version'}. Give the same again to go on, or "
                "--fresh to begin anew."
            )
        return dict(journal)

    def _go_on(self, journal: Mapping[str, Any]) -> None:
        with _explained(self._path):
            self._file.truncate(journal.get("bytes", 0))
            self._file.seek(0, os.SEEK_END)
        self.done, self.counts = journal.get("done", 0), dict(journal.get("counts", {}))

    def add(self, text: str, *, done: int, counts: Mapping[str, Any]) -> None:
        """Write some answers; `done` is the number written so far, with these, and `counts` are their counts."""
        with _explained(self._path):
            self._file.write(text.encode("utf-8", "backslashreplace"))
            self._file.flush()
            os.fsync(self._file.fileno())
            journal = {"identity": self._identity, "done": done, "bytes": self._file.tell(), "counts": counts}
            atomic_files.write_scratch(self._journal, json.dumps(journal).encode())

    def finish(self, text: str) -> None:
        """Write the end, and give the file its name."""
        with _explained(self._path):
            self._file.write(text.encode("utf-8", "backslashreplace"))
            self._file.flush()
            os.fsync(self._file.fileno())
            os.replace(self._text, self._path)
            self._journal.unlink(missing_ok=True)
        self._file.close()

    def close(self) -> None:
        """Close an unfinished file; its text stays on disk, unless it is empty."""
        if not self._file.closed:
            if self._file.tell() == 0:
                self._text.unlink(missing_ok=True)  # while it is locked: afterwards another run may write it
            self._file.close()


@contextlib.contextmanager
def _explained(path: Path) -> Any:
    try:
        yield
    except OSError as error:
        raise OutputError(atomic_files.explain(error, path)) from error
