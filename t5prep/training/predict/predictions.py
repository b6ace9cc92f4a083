"""Answer the rows of a source with a model, and write the answers while they are computed: the result of `t5prep.predict`."""

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from t5prep import sources
from t5prep.errors import UsageError
from t5prep.io import signals
from t5prep.io.progress import number_of
from t5prep.json_values import JSON, JSONObject
from t5prep.options.models import PredictOptions
from t5prep.sources import Resolved
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.model.weights import fingerprint
from t5prep.training.predict import prediction_inputs
from t5prep.training.predict.answer_files import AnswerFile, Writer, finished_counts, of_name
from t5prep.training.predict.prediction_inputs import Rows
from t5prep.training.predict.predictor import Answer, Predictor
from t5prep.training.run import run


@dataclasses.dataclass
class Counts:
    """Counts over rows: missing answers by reason, cut inputs and their tokens, split inputs, unfinished answers."""

    rows: int = 0
    missing: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    cut: int = 0
    tokens: int = 0
    tokens_lost: int = 0
    split: int = 0
    unfinished: int = 0

    def add(self, answers: list[Answer]) -> None:
        """Add the counts of these answers."""
        for answer in answers:
            self.rows += 1
            self.missing.update([answer.reason.partition(":")[0]] if answer.prediction is None else [])
            self.cut += answer.tokens_lost > 0
            self.tokens += answer.tokens if answer.tokens_lost else 0
            self.tokens_lost += answer.tokens_lost
            self.split += answer.parts > 1
            self.unfinished += answer.unfinished

    def saved(self) -> JSONObject:
        """Return the counts as a JSON object."""
        return {**vars(self), "missing": dict(self.missing)}

    @classmethod
    def of_saved(cls, saved: Mapping[str, Any]) -> "Counts":
        """Return the counts that `saved` returned."""
        return cls(**{**saved, "missing": collections.Counter(saved["missing"])})

    def lines(self, *, limit: int, longest: int, splits: bool) -> list[str]:
        """Return a message for the user about each count that is not 0, except `rows`.

        `limit` and `longest`: the maximum tokens of an input and of an answer. `splits`: whether `--long split` is possible.
        """
        lines = []
        if self.missing:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.missing.most_common())
            lines.append(f"No answer for {self.missing.total():,} of {number_of(self.rows, 'row')}: {reasons}.")
        if self.cut:
            lines.append(
                f"{number_of(self.cut, 'input')} longer than {limit} tokens, cut: {self.tokens_lost:,} of {self.tokens:,} "
                f"tokens are lost. {'--long split answers such texts part by part, ' if splits else ''}"
                "--long refuse leaves them out."
            )
        if self.split:
            lines.append(f"{number_of(self.split, 'input')} too long, and answered part by part.")
        if self.unfinished:
            lines.append(
                f"{number_of(self.unfinished, 'answer')} reached the limit of {longest} tokens. Allow more with "
                "--max-length."
            )
        return lines


class Predictions:
    """Answer the rows of a source in order, while the caller iterates. The constructor opens the model. Raises T5prepError.

        for answer in predictions: print(answer.id, answer.prediction)
        predictions.write("answers.csv")

    Earlier answers are not held in memory, so a source may have any size. `note` is a message for the user about how rows are
    read ("" for none), `columns` holds the input's columns, `bytes` is the size of its files, and `counts` those of the answers
    so far.
    """

    def __init__(
        self,
        model: str,
        source: str | Resolved,
        options: PredictOptions = PredictOptions(),  # noqa: B008 - frozen
    ) -> None:
        # Resolve local files before the model is opened, because a mistyped path should fail at once. Sources on other hosts
        # come afterwards: the model's task names the files to download.
        resolved_source = (
            _resolve_source(source, include=()) if isinstance(source, str) and ":" not in source else source
        )
        self.opened = run.open_model(model, checkpoint=options.model.checkpoint)
        manifest = prediction_inputs.choose(self.opened.manifests, name=options.rows.task)
        question_builder = prediction_inputs.question_builder_of(self.opened, manifest, options.rows)
        if isinstance(resolved_source, str) or Path(resolved_source.uri).is_dir():
            resolved_source = _resolve_source(
                resolved_source if isinstance(resolved_source, str) else resolved_source.uri,
                include=question_builder.files,
            )
        self._options = options
        self.rows = Rows(
            resolved_source, question_builder, options=options.rows, trained=manifest.settings if manifest else None
        )
        self.source = self.rows.source
        self.note, self.columns, self.counts = self.rows.note, self.rows.columns, Counts()
        self.bytes = sum(file.bytes for file in self.source.files)
        self.predictor = Predictor(self.opened, options, question_builder=self.rows.question_builder, manifest=manifest)

    def __iter__(self) -> Iterator[Answer]:
        """Yield the answer of each row."""
        return itertools.chain.from_iterable(self.windows())

    def windows(self, *, skip: int = 0) -> Iterator[list[Answer]]:
        """Yield the answers to one window of rows after the other, without the first `skip` rows."""
        for answers in self.predictor.stream(itertools.islice(iter(self.rows), skip, self._options.rows.limit)):
            signals.check()  # a library may have dropped the KeyboardInterrupt that Python raised in its call
            self.counts.add(answers)
            yield answers

    def write(
        self, out: str | Path, *, to: str = "", fresh: bool = False, watch: Callable[[list[Answer]], None] | None = None
    ) -> int:
        """Write all answers to the file `out`, or resume the file of a killed run; return the number of answers found there.

        A file that the same command finished is not written again.

        `to`: text, jsonl, csv, tsv or json; "" for the format of the file's ending, or text. `fresh`: start from scratch.
        `watch` is called with each list of answers. Raises OutputError, and UsageError if `out` is one of the input's files.
        """
        path = Path(out)
        for input_file in self.source.files:
            if path.exists() and Path(input_file.path).exists() and path.samefile(input_file.path):
                raise UsageError(
                    f"--out {path} is the input itself. Name another file for the answers.",
                    code="output.source-overwrite",
                )
        to = to or of_name(path.name)
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe or a device: nothing to continue
            with open(path, "w", encoding="utf-8") as stream:
                self.write_to(stream, to=to, watch=watch)
            return 0
        writer = Writer(to, columns=self.columns, scores=self.predictor.generation.scores)
        identity = self.identity(to=to)
        if not fresh and (counts := finished_counts(path, identity=identity)) is not None:
            self.counts = Counts.of_saved(counts)
            return self.counts.rows
        with contextlib.closing(AnswerFile(path, identity=identity, fresh=fresh)) as file:
            answer_count = resumed_count = file.done
            if answer_count:
                self.counts = Counts.of_saved(file.counts)
                writer.resume()
            header = "" if answer_count else writer.begin()
            for answers in self.windows(skip=answer_count):
                answer_count += len(answers)
                file.add(header + writer.format_answers(answers), answer_count=answer_count, counts=self.counts.saved())
                header = ""
                if watch:
                    watch(answers)
            file.finish(header + writer.end(), counts=self.counts.saved())
        return resumed_count

    def write_to(self, stream: TextIO, *, to: str, watch: Callable[[list[Answer]], None] | None = None) -> None:
        """Write all answers to `stream` in the format `to`, each window as soon as it is computed."""
        writer = Writer(to, columns=self.columns, scores=self.predictor.generation.scores)
        stream.write(writer.begin())
        for answers in self.windows():
            stream.write(writer.format_answers(answers))
            stream.flush()
            if watch:
                watch(answers)
        stream.write(writer.end())
        stream.flush()

    def sentences(self) -> list[str]:
        """Return messages for the user about the answers so far, see `Counts.lines`."""
        predictor = self.predictor
        longest = predictor.generation.max_length
        return self.counts.lines(limit=predictor.limit, longest=longest, splits=predictor.writes_texts)

    def identity(self, *, to: str) -> JSONObject:
        """Return everything that the bytes of an answer file depend on, as JSON. A killed run resumes only if it is unchanged."""
        files: list[JSON] = [[file.name, file.bytes, sources.sha256(file)] for file in self.source.files]
        config = self.opened.config
        layouts = {name: weight_layouts(config)[name] for name in self.opened.weights}
        return {
            "model": [self.opened.name, fingerprint(config, self.opened.weights, layouts)],
            "tokenizer": self.predictor.tokenizer.sha256,
            "datasets": [manifest.digest for manifest in self.opened.manifests],
            "source": [self.source.revision, files],
            "options": [
                self._options.rows.identity(),
                dataclasses.asdict(self.predictor.generation),
                self.predictor.long,
                self.predictor.rows,
            ],
            "format": to,
        }


def _resolve_source(source: str, *, include: tuple[str, ...]) -> Resolved:
    """Return the files of a source. A glob has all matching files; a corpus or folder only those that `include` names."""
    glob = "://" not in source and any(character in source for character in "*?[")
    return sources.resolve(source, include=() if glob else include)
