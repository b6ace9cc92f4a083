"""Train a SentencePiece tokenizer on sampled lines of a corpus, and write it as a directory in Hugging Face layout."""

import collections
import dataclasses
import functools
import importlib
import json
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from pipelines import engines, pool
from t5prep.errors import OutputError, T5prepError, UsageError
from t5prep.io import atomic_files
from t5prep.io.progress import Progress
from t5prep.json_values import JSONObject
from t5prep.options.tokenizers import TokenizerOptions
from t5prep.reading import blocks, columns, formats
from t5prep.reading.blocks import Block
from t5prep.sources import Resolved
from t5prep.tokens import huggingface_files, tokenizer_training
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.tokens.tokenizer_training import Drawing

RUNNERS = ("local",)
# The file beside a tokenizer that records its source and options.
TRAINING = "t5prep_training.json"


class LineSample(NamedTuple):
    """Distinct sampled lines, with counts of the source: its `rows`, its lines (`total_lines`), and its unreadable rows (`broken`)."""

    lines: list[str]
    rows: int
    total_lines: int
    broken: int


class TrainedTokenizer(NamedTuple):
    """A trained tokenizer, and the sample that it was trained on."""

    tokenizer: Tokenizer
    sample: LineSample


@dataclasses.dataclass(frozen=True)
class DrawBlock:
    """Sample at most `max_lines` lines of a block: those with the smallest hashes."""

    columns: tuple[str, ...]
    max_lines: int
    seed: int

    def __call__(self, block: Block) -> tuple[int, LineSample]:
        """Return the bytes and the sample of a block. Rows without the columns are skipped."""
        sample = Drawing(self.max_lines, seed=self.seed)
        total_lines = broken = 0
        for row in columns.read(block, names=self.columns or ("text",)).rows():
            if row.record is None:
                broken += 1
                continue
            for text in columns.texts_of(row.record, columns=self.columns):
                lines = list(tokenizer_training.lines_of(text))
                total_lines += len(lines)
                sample.add(lines)
        return block.size, LineSample(sample.lines(), block.rows, total_lines, broken)


def train(
    source: Resolved,
    options: TokenizerOptions,
    *,
    out: Path,
    config: JSONObject,
    runner: str = "local",
    workers: int | None = None,
) -> TrainedTokenizer:
    """Sample lines of the source, train a tokenizer on them, and write the directory that AutoTokenizer loads.

    `config` describes the model that will use the tokenizer. The same rows in any order produce the same bytes.
    Raises T5prepError.
    """
    record = _training_record(source, options, config)
    _check_place(out, record=record)
    sample = draw(source, options, runner=runner, workers=workers)
    if not sample.lines:
        raise columns.without_texts(source, sample.rows, columns=options.column)
    model = _run_apart(functools.partial(tokenizer_training.train, sample.lines, options.model))
    tokenizer = Tokenizer(model, name=str(out))
    # The record comes first: a killed command finds its own record in `out` and may overwrite the rest.
    atomic_files.write_whole(out / TRAINING, (json.dumps(record, ensure_ascii=False, indent=1) + "\n").encode())
    huggingface_files.write(out, tokenizer, config=config)
    return TrainedTokenizer(tokenizer, sample)


def _run_apart(work: Callable[[], bytes]) -> bytes:
    """Return the result of `work`, run in a child process: SentencePiece ignores Ctrl-C for minutes."""
    pool.begin_loading()
    context = multiprocessing.get_context("forkserver")
    answers, answer = context.Pipe(duplex=False)
    process = context.Process(target=_run_and_send, args=(answer, work), daemon=True)
    process.start()
    # Otherwise `recv` would wait forever if the child dies, because this process holds the writing end.
    answer.close()
    try:
        model_or_error = answers.recv()
    except EOFError:
        raise T5prepError(
            "The process that trains the tokenizer died. If the machine ran out of memory, train on fewer "
            "lines: --lines 100000",
            code="pipeline.dead-worker",
        ) from None
    finally:
        process.kill()
        process.join()
    if isinstance(model_or_error, T5prepError):
        raise model_or_error
    return bytes(model_or_error)


def _run_and_send(answer: Connection, work: Callable[[], bytes]) -> None:
    """Send the result of `work`, or its T5prepError."""
    try:
        answer.send(work())
    except T5prepError as error:
        answer.send(error)


def _training_record(source: Resolved, options: TokenizerOptions, config: JSONObject) -> JSONObject:
    """Return the source, options and config of a training, as JSON values."""
    files = [[file.name, file.bytes] for file in source.files]
    choices = {**dataclasses.asdict(options), "column": list(options.column)}
    choices |= choices.pop("model") | choices.pop("files")
    return {
        "source": {"uri": source.uri, "revision": source.revision, "files": files},
        **choices,
        "config": dict(config),
    }


def draw(
    source: Resolved, options: TokenizerOptions, *, runner: str = "local", workers: int | None = None
) -> LineSample:
    """Return at most `options.lines` distinct lines of the source's texts, chosen by stable hash. Raises T5prepError."""
    if runner not in RUNNERS:
        raise UsageError(
            f'--runner "{runner}" cannot train a tokenizer. Remove --runner, or use --runner local',
            code="option.inapplicable",
        )
    files = formats.with_card(options.files, source)
    columns.check(source, columns=options.column, options=files)
    progress = Progress("drawing lines", total=sum(file.bytes for file in source.files))
    cores = pool.Pool(workers or os.cpu_count() or 1, warm=_warm)
    drawing, totals = Drawing(options.lines, seed=options.seed), collections.Counter[str]()
    work = DrawBlock(options.column, options.lines, options.seed)
    scanned = (block for file in source.files for block in blocks.scan_element(file, files))
    try:
        with engines.explained(runner, out="the sample of lines"):
            for block_bytes, block_sample in pool.map_ordered(cores, work, scanned):
                drawing.add(block_sample.lines)
                progress.add(bytes=block_bytes, rows=block_sample.rows)
                totals.update(rows=block_sample.rows, total_lines=block_sample.total_lines, broken=block_sample.broken)
        return LineSample(drawing.lines(), **{name: totals[name] for name in ("rows", "total_lines", "broken")})
    finally:
        cores.close()
        progress.close()


def _check_place(out: Path, *, record: JSONObject) -> None:
    """Raise OutputError if `out` holds files that are not a tokenizer, or a tokenizer trained with another record."""
    try:
        names = sorted(path.name for path in out.iterdir() if not path.name.startswith(atomic_files.UNFINISHED))
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(
            f"{out} cannot be written ({error.strerror}). Choose another folder: --out DIR", code="output.unwritable"
        ) from error
    strangers = [name for name in names if name not in (TRAINING, *huggingface_files.NAMES)]
    if strangers:
        raise OutputError(
            f"{out} contains other files ({strangers[0]}). Choose another folder: --out DIR", code="output.foreign-file"
        )
    if not names:
        return
    try:
        existing_record = json.loads((out / TRAINING).read_bytes())
    except (OSError, ValueError, RecursionError):
        existing_record = {}
    if existing_record != record:
        changed_fields = (
            [name for name in record if existing_record.get(name) != record[name]] if existing_record else []
        )
        difference = (
            f"that was trained with a different {', '.join(changed_fields)}"
            if changed_fields
            else "without a record of its training"
        )
        raise OutputError(
            f"{out} already contains a tokenizer {difference}. Choose another folder with --out DIR, or "
            "remove the tokenizer.",
            code="output.different-settings",
        )


def _warm() -> None:
    """Import this module in a worker before its first block."""
    importlib.import_module("pipelines.train_tokenizer")
