"""Training a tokenizer: a corpus → a sample of its lines by stable hash → a SentencePiece model and its directory."""

import dataclasses
import importlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines import failures, pool, runners
from pipelines.draw_lines import DrawBlock, Drawn, keep, kept
from t5prep.errors import OutputError, SourceError, UsageError
from t5prep.io import atomic_files
from t5prep.io.progress import Progress
from t5prep.reading import text_columns
from t5prep.sources import Resolved
from t5prep.tokens import huggingface_files, training
from t5prep.tokens.tokenizer import Tokenizer

# 1,000,000 lines of 100 bytes are as much text as SentencePiece trains on in minutes; more changes few pieces.
LINES = 1_000_000
RUNNERS = ("local",)
# Beside a tokenizer: what it was trained on, and how.
TRAINING = "t5prep_training.json"


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
    made_of = {
        "source": {"uri": source.uri, "revision": source.revision, "files": [[f.name, f.bytes] for f in source.files]},
        "columns": list(columns),
        "vocab_size": vocab_size,
        "byte_fallback": byte_fallback,
        "split_digits": split_digits,
        "character_coverage": character_coverage,
        "lines": lines,
        "seed": seed,
        "format": format,
        "encoding": encoding,
        "config": dict(config),
    }
    _check_place(out, made_of=made_of)
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
    # First, so that a run that is killed here goes on by the same command.
    atomic_files.write_whole(out / TRAINING, (json.dumps(made_of, ensure_ascii=False, indent=1) + "\n").encode())
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


def _check_place(out: Path, *, made_of: Mapping[str, Any]) -> None:
    """Raise OutputError for a directory that holds anything but a tokenizer, or one that was trained in another way."""
    try:
        names = sorted(path.name for path in out.iterdir() if not path.name.startswith(atomic_files.UNFINISHED))
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"{out} cannot be written ({error.strerror}). Choose another place: --out DIR") from error
    strangers = [name for name in names if name not in (TRAINING, *huggingface_files.NAMES)]
    if strangers:
        raise OutputError(f"{out} holds something else ({strangers[0]}). Choose another place: --out DIR")
    if not names:
        return
    try:
        there = json.loads((out / TRAINING).read_bytes())
    except (OSError, ValueError):
        there = {}
    if there != made_of:
        others = [name for name in made_of if there.get(name) != made_of[name]] if there else []
        how = f"trained with another {', '.join(others)}" if others else "and nothing says how it was trained"
        raise OutputError(f"{out} holds a tokenizer, {how}. Choose another place: --out DIR, or remove it.")


def _warm() -> None:
    """Loads in a worker what it will need."""
    importlib.import_module("pipelines.draw_lines")
