"""Training a tokenizer: a corpus → a sample of its lines by stable hash → a SentencePiece model and its directory."""

import dataclasses
import importlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines import failures, pool, runners
from pipelines.draw_lines import DrawBlock, Drawn, keep, kept
from t5prep.errors import OutputError, SourceError, UsageError
from t5prep.io.progress import Progress
from t5prep.reading import text_columns
from t5prep.sources import Resolved
from t5prep.tokens import huggingface_files, training
from t5prep.tokens.tokenizer import Tokenizer

# 1,000,000 lines of 100 bytes are as much text as SentencePiece trains on in minutes; more changes few pieces.
LINES = 1_000_000
RUNNERS = ("local",)


@dataclasses.dataclass(frozen=True)
class Trained:
    """A tokenizer that was trained, and on what: `seen` lines, of which `lines` distinct ones were drawn."""

    tokenizer: Tokenizer
    rows: int
    seen: int
    lines: int
    broken: int


def train(
    source: Resolved,
    *,
    out: Path,
    config: Mapping[str, Any],
    columns: Sequence[str] = (),
    vocab_size: int = training.VOCAB_SIZE,
    byte_fallback: bool = False,
    split_digits: bool = False,
    character_coverage: float = training.CHARACTER_COVERAGE,
    lines: int = LINES,
    seed: int = 0,
    format: str = "",
    encoding: str = "utf-8",
    runner: str = "local",
    workers: int | None = None,
) -> Trained:
    """Draws `lines` lines of the source, trains on them, and writes the directory that AutoTokenizer loads.

    `columns` are those with text (default: `text`); `config` is the shape of the model that will use the tokenizer. The
    same corpus gives the same bytes, whatever the order of its rows. Raises T5prepError.
    """
    _check_place(out)
    drawn = draw(
        source,
        columns=columns,
        lines=lines,
        seed=seed,
        format=format,
        encoding=encoding,
        runner=runner,
        workers=workers,
    )
    if not drawn.lines:
        raise SourceError(f"{source.uri} has no text in {', '.join(columns) or 'text'}: {drawn.rows:,} rows were read.")
    model = training.train(
        drawn.lines,
        vocab_size=vocab_size,
        byte_fallback=byte_fallback,
        split_digits=split_digits,
        character_coverage=character_coverage,
    )
    tokenizer = Tokenizer(model, name=str(out))
    huggingface_files.write(out, tokenizer, config=config)
    return Trained(tokenizer, rows=drawn.rows, seen=drawn.seen, lines=len(drawn.lines), broken=drawn.broken)


def draw(
    source: Resolved,
    *,
    columns: Sequence[str] = (),
    lines: int = LINES,
    seed: int = 0,
    format: str = "",
    encoding: str = "utf-8",
    runner: str = "local",
    workers: int | None = None,
) -> Drawn:
    """At most `lines` distinct lines of the source's texts, by stable hash. Raises T5prepError."""
    if runner not in RUNNERS:
        raise UsageError(
            f'--runner "{runner}": a tokenizer is trained on this machine. Leave it out, or: --runner local'
        )
    if lines < 1:
        raise UsageError(f"--lines {lines}: at least one line is needed")
    text_columns.check(source, columns=columns, format=format, encoding=encoding)
    progress = Progress("drawing lines", total=sum(file.bytes for file in source.files))
    cores = pool.Pool(workers or os.cpu_count() or 1, warm=_warm)
    cores.done = lambda block, _: progress.add(bytes=block.size, rows=block.rows)
    try:
        with tempfile.TemporaryDirectory(prefix="t5prep-") as scratch:
            path = str(Path(scratch) / "drawn.json")
            # Beam takes seconds to import; the workers have been started and load at the same time.
            import apache_beam as beam

            from pipelines.sample_lines import DrawLines

            engine = runners.engine(runner)
            with (
                failures.explained(runner, out=scratch),
                beam.Pipeline(runner=engine.runner, options=engine.options) as pipeline,
            ):
                _ = (
                    pipeline
                    | "Files" >> beam.Create(source.files)
                    | "ScanBlocks" >> beam.FlatMap(text_columns.scan, format=format, encoding=encoding)
                    | "DrawLines" >> DrawLines(DrawBlock(tuple(columns), lines, seed), pool=cores.name)
                    | "Keep" >> beam.Map(keep, path=path)
                )
            return kept(path)
    finally:
        cores.close()
        progress.close()


def _check_place(out: Path) -> None:
    """Refuses a directory that holds anything but a tokenizer. Raises OutputError."""
    if not out.exists():
        return
    strangers = sorted(path.name for path in out.iterdir() if path.name not in huggingface_files.NAMES)
    if strangers:
        raise OutputError(f"{out} holds something else ({strangers[0]}). Choose another place: --out DIR")


def _warm() -> None:
    """Loads in a worker what it will need."""
    importlib.import_module("pipelines.draw_lines")
