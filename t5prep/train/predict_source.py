"""The rows of a source answered by a model, and written as they come: what `t5prep predict` does."""

import collections
import contextlib
import dataclasses
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from t5prep import sources
from t5prep.errors import UsageError
from t5prep.sources import RawFile, Resolved
from t5prep.train import rows_to_predict, run
from t5prep.train.model.generation import Generation
from t5prep.train.predict import Answer, Predictor
from t5prep.train.predict_file import AnswerFile
from t5prep.train.predict_formats import Writer
from t5prep.train.rows_to_predict import STDIN, Rows

_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ": ".xz", b"PAR1": ".parquet"}


@dataclasses.dataclass(frozen=True)
class Reading:
    """Hold how rows are read: the task of a mixture's, as plain texts, their format ("" by their name), how many."""

    task: str = ""
    as_text: bool = False
    format: str = ""
    encoding: str = "utf-8"
    limit: int | None = None


@dataclasses.dataclass
class Counts:
    """Count what happened to the rows: answers that are missing by reason, inputs that were cut, answers without an end."""

    rows: int = 0
    missing: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    cut: int = 0
    tokens: int = 0
    tokens_lost: int = 0
    split: int = 0
    unfinished: int = 0

    def add(self, answers: list[Answer]) -> None:
        """Count some more."""
        for one in answers:
            self.rows += 1
            self.missing.update([one.reason.partition(":")[0]] if one.prediction is None else [])
            self.cut += one.lost > 0
            self.tokens += one.tokens if one.lost else 0
            self.tokens_lost += one.lost
            self.split += one.parts > 1
            self.unfinished += one.unfinished

    def saved(self) -> dict[str, Any]:
        """Return the counts as JSON can hold them."""
        return {**vars(self), "missing": dict(self.missing)}

    def lines(self, *, limit: int, longest: int, splits: bool) -> list[str]:
        """Return what a person should know, a sentence for each thing that happened.

        `limit` and `longest` are the most tokens of an input and an answer; `splits` says that parts could be answered.
        """
        said = []
        if self.missing:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.missing.most_common())
            said.append(f"{self.missing.total():,} of {self.rows:,} rows have no answer: {reasons}.")
        if self.cut:
            said.append(
                f"{self.cut:,} inputs are longer than {limit} tokens and were cut: {self.tokens_lost:,} of their "
                f"{self.tokens:,} tokens are lost. {'--long split answers such texts part by part, ' if splits else ''}"
                "--long refuse leaves them out."
            )
        if self.split:
            said.append(f"{self.split:,} inputs were too long, and were answered part by part.")
        if self.unfinished:
            said.append(
                f"{self.unfinished:,} answers did not come to an end within {longest} tokens. Allow more with --max-length."
            )
        return said


class Asking:
    """A model opened for the rows of a source. Iterating gives lists of answers in the order of the rows.

    `note` is what the user should know of how rows are read ("" for nothing), `columns` are the input's, `counts` those of
    the answers given so far. Raises T5prepError.
    """

    def __init__(
        self,
        model: str,
        source: str | Resolved,
        *,
        which: str = "best",
        reading: Reading = Reading(),
        generation: Generation = Generation(),  # noqa: B008 - frozen
        **options: Any,
    ) -> None:
        # What is on this machine is looked for before a model is read, which takes longer.
        given = _found(source, include=()) if isinstance(source, str) and ":" not in source else source
        self.opened = run.open_model(model, which=which)
        manifest = rows_to_predict.choose(self.opened.manifests, name=reading.task)
        asking = rows_to_predict.as_they_stand() if reading.as_text else rows_to_predict.by_task(manifest)
        if isinstance(given, str) or Path(given.uri).is_dir():
            given = _found(given if isinstance(given, str) else given.uri, include=asking.files)
        self.source, self._reading = given, reading
        self.rows = Rows(given, asking, kind=reading.format, encoding=reading.encoding)
        self.note, self.columns, self.counts = self.rows.note, self.rows.columns, Counts()
        self.predictor = Predictor(
            self.opened, asking=self.rows.asking, manifest=manifest, generation=generation, **options
        )

    def answers(self, *, skip: int = 0) -> Iterator[list[Answer]]:
        """Yield the answers of one window of rows after the other, after the first `skip` rows."""
        for some in self.predictor.stream(itertools.islice(iter(self.rows), skip, self._reading.limit)):
            self.counts.add(some)
            yield some

    def sentences(self) -> list[str]:
        """Return what a person should know of the answers given so far."""
        predictor = self.predictor
        longest = predictor.generation.max_length
        return self.counts.lines(limit=predictor.limit, longest=longest, splits=not self.rows.asking.classes)

    def identity(self, *, to: str) -> dict[str, Any]:
        """Return what the bytes of the answers follow from, for a run that goes on."""
        files = [[file.name, file.bytes, sources.sha256(file)] for file in self.source.files]
        return {
            "model": [self.opened.name, self.opened.state.step if self.opened.state else 0],
            "source": [self.source.revision, files],
            "options": [
                dataclasses.asdict(self._reading),
                dataclasses.asdict(self.predictor.generation),
                self.predictor.long,
                self.predictor.rows,
            ],
            "format": to,
        }


def to_file(asking: Asking, path: Path, *, to: str, fresh: bool = False, watch: Callable[[list[Answer]], None]) -> int:
    """Write all answers to a file, going on with what a killed run wrote of the same; return how many it had written.

    `watch` is called with each list of answers. Raises OutputError, and UsageError where the file is one of the input's.
    """
    for given in asking.source.files:
        if path.exists() and Path(given.path).exists() and path.samefile(given.path):
            raise UsageError(f"--out {path} is the input itself. Name another file for the answers.")
    writer = Writer(to, columns=asking.columns, scores=asking.predictor.generation.scores)
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe or a device: nothing to go on with
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(writer.begin())
            for answers in asking.answers():
                stream.write(writer.some(answers))
                watch(answers)
            stream.write(writer.end())
        return 0
    with contextlib.closing(AnswerFile(path, identity=asking.identity(to=to), fresh=fresh)) as file:
        done = begun = file.done
        if done:
            asking.counts = Counts(**{**file.counts, "missing": collections.Counter(file.counts["missing"])})
            writer.going_on()
        before = "" if done else writer.begin()
        for answers in asking.answers(skip=done):
            done += len(answers)
            file.add(before + writer.some(answers), done=done, counts=asking.counts.saved())
            before = ""
            watch(answers)
        file.finish(before + writer.end())
    return begun


@contextlib.contextmanager
def piped(stream: BinaryIO) -> Iterator[Resolved]:
    """Give what is piped in as a source, kept in a file of its own while it is needed: it may be packed, or Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        with open(path, "wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        with open(path, "rb") as file:
            head = file.read(8)
        suffix = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")
        raw = RawFile(name=STDIN + suffix, path=str(path), bytes=path.stat().st_size)
        yield Resolved(STDIN, "", (raw,), licence="", citation="")


def _found(source: str, *, include: tuple[str, ...]) -> Resolved:
    """Return the files of a source; those that its task reads of a corpus or a folder, all that a glob names."""
    glob = "://" not in source and any(character in source for character in "*?[")
    return sources.resolve(source, include=() if glob else include)
