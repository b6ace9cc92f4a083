"""Define `t5prep tokenizer train` and `t5prep tokenizer check`."""

import importlib.util
import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from t5prep.cli import _file_options, _options, _output
from t5prep.cli._addresses import ADDRESS
from t5prep.cli._failing import CodedUsageError
from t5prep.io import address_space
from t5prep.io.progress import number_of
from t5prep.json_values import JSONObject
from t5prep.options.fields import build
from t5prep.options.files import FileOptions
from t5prep.options.tokenizers import TokenizerOptions

if TYPE_CHECKING:
    from pipelines.train_tokenizer import TrainedTokenizer
    from t5prep.tokens.audit import Report
    from t5prep.training.model.architecture import ModelConfig

# Size → (d_model, d_ff, layers of each stack, heads): those of T5 1.1 (google/t5-v1_1-*), and a tiny one for trials.
SIZES = {
    "tiny": (128, 256, 2, 4),
    "small": (512, 1024, 8, 6),
    "base": (768, 2048, 12, 12),
    "large": (1024, 2816, 24, 16),
}
# Maximum number of lost characters that `check` prints; --json has all.
LOST_SHOWN = 12

_source = click.option(
    "--source", type=ADDRESS, required=True, help="Source: sample:, a path or glob, kaggle:..., zenodo:..., hf:..."
)


@click.group("tokenizer")
def tokenizer_command() -> None:
    """Train a tokenizer, or check one on a corpus.

    \b
    Example:
      t5prep tokenizer check google-t5/t5-base --source mine.csv --column body
    """


@tokenizer_command.command("train")
@_source
@click.option("--out", type=ADDRESS, required=True, help="Output directory of the tokenizer.")
@click.option(
    "--size",
    type=click.Choice(list(SIZES)),
    default="small",
    show_default=True,
    help="Size of the T5 1.1 in config.json.",
)
@_options.options(TokenizerOptions)
@click.option("--lowercase", is_flag=True, help="Fold case: use the variant _cf of --normalization.")
@_file_options.split()
@click.option("--runner", default="local", show_default=True, help="Runner that samples the lines.")
@click.option("--workers", type=click.IntRange(min=1), help="Number of processes [default: one for each core].")
@_output.as_json
def train(
    source: str,
    out: str,
    size: str,
    runner: str,
    workers: int | None,
    as_json: bool,
    lowercase: bool,
    split: str,
    **option_values: object,
) -> None:
    """Train a SentencePiece tokenizer for a T5.

    The model is a unigram model with T5's conventions. The output is a directory that AutoTokenizer loads.

    \b
    Example:
      t5prep tokenizer train --source wiki.txt --vocab-size 16000 --out data/tokenizer
    """
    address_space.check(address_space.PREPARING_BYTES)
    logging.getLogger().setLevel(logging.CRITICAL)  # Beam's warnings are not for users; errors are raised
    from pipelines import train_tokenizer

    options = build(TokenizerOptions, option_values)
    if lowercase and not (rule := options.model.normalization).endswith("_cf"):
        if rule == "identity":
            raise CodedUsageError(
                "--lowercase changes characters, but --normalization identity changes none. Use either "
                "--lowercase or --normalization identity, not both.",
                code="option.conflict",
            )
        options = build(TokenizerOptions, {**option_values, "normalization": f"{rule}_cf"})
    config = _model_shape(size).to_json()
    trained = train_tokenizer.train(
        _file_options.selected(source, split, options=options.files),
        options,
        out=Path(out),
        config=config,
        runner=runner,
        workers=workers,
    )
    if as_json:
        _output.print_json(_facts(trained, out))
    else:
        _tell_trained(trained, out, source=source, columns=options.column)


def _model_shape(size: str) -> "ModelConfig":
    """Return the ModelConfig of T5 1.1 in one of SIZES, for the config.json beside the tokenizer."""
    from t5prep.training.model.architecture import ModelConfig

    d_model, d_ff, layers, heads = SIZES[size]
    return ModelConfig(
        d_model=d_model,
        d_ff=d_ff,
        d_kv=32 if size == "tiny" else 64,
        num_layers=layers,
        num_decoder_layers=layers,
        num_heads=heads,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        scale_decoder_outputs=False,
    )


def _facts(trained: "TrainedTokenizer", out: str) -> JSONObject:
    """Return the facts about a trained tokenizer that `--json` prints."""
    tokenizer = trained.tokenizer
    return {
        "out": out,
        "sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "padded_vocab_size": tokenizer.padded_size,
        "rows": trained.sample.rows,
        "unreadable_rows": trained.sample.broken,
        "lines_seen": trained.sample.total_lines,
        "lines_trained_on": len(trained.sample.lines),
    }


def _tell_trained(trained: "TrainedTokenizer", out: str, *, source: str, columns: tuple[str, ...]) -> None:
    """Print the size of a trained tokenizer, the number of its training lines, and the command that checks it."""
    tokenizer = trained.tokenizer
    click.echo(
        f"{out}: {tokenizer.vocab_size:,} pieces and 100 sentinels (an embedding of {tokenizer.padded_size:,}), "
        f"from {len(trained.sample.lines):,} of {number_of(trained.sample.total_lines, 'line')}"
    )
    if trained.sample.broken:
        click.echo(f"  skipped       {trained.sample.broken:,} of {number_of(trained.sample.rows, 'row')}, unreadable")
    given_columns = "".join(f" --column {shlex.quote(column)}" for column in columns)
    _output.print_next(f"tokenizer check {shlex.quote(out)} --source {shlex.quote(source)}{given_columns}")


@tokenizer_command.command("check")
@click.argument("tokenizer", type=ADDRESS)
@_source
@_options.options(TokenizerOptions, only=("column",))
@click.option(
    "--limit", type=click.IntRange(min=1), default=20_000, show_default=True, help="Maximum number of rows to read."
)
@_file_options.split()
@_options.options(FileOptions)
@_output.as_json
def check(
    tokenizer: str, source: str, column: tuple[str, ...], limit: int, split: str, as_json: bool, **files: str
) -> None:
    """Check a tokenizer on the texts of a corpus.

    The check counts unknown tokens, lost characters and changed texts. It compares the token ids with those of
    transformers 4 and 5.

    TOKENIZER is a spiece.model, its directory, a Hub name, or sample:

    \b
    Example:
      t5prep tokenizer check sample: --source sample: --column Title --column Body
    """
    from t5prep.reading import columns
    from t5prep.tokens import audit, loading

    loaded = loading.load(tokenizer)
    options = FileOptions(**files)
    selected = _file_options.selected(source, split, options=options)
    texts = columns.texts(selected, columns=column, limit=limit, options=options)
    documents = loading.as_in_transformers(tokenizer, loaded) if importlib.util.find_spec("tokenizers") else {}
    in_transformers = {source: audit.encode_by(document, name=tokenizer) for source, document in documents.items()}
    report = audit.examine(texts, loaded, in_transformers=in_transformers)
    if as_json:
        _output.print_json({"tokenizer": tokenizer, "source": source, **report.to_json()})
    else:
        _tell(report)


def _tell(report: "Report") -> None:
    """Print the report of a tokenizer on a corpus: a table of shares, the lost characters, and advice."""
    from t5prep.tokens import audit

    rows = [
        (
            "texts",
            f"{report.texts:,}",
            f"{number_of(report.characters, 'character')}, {number_of(report.words, 'word')}",
        ),
        ("tokens", f"{report.tokens:,}", f"{report.tokens_per_word:.2f} per word"),
        ("unknown", f"{report.unk_rate:.2%}", f"of all tokens are <unk>: {report.unknown:,}"),
        ("lost", f"{report.lost_share:.2%}", "of all characters do not come back"),
        ("come back", f"{report.returned:,}", "texts decode to exactly themselves"),
        ("changed", f"{report.changed:,}", "texts differ in more than white space"),
    ]
    for source, agreement in report.agreements.items():
        share = f"{agreement.equal / max(agreement.texts, 1):.2%}"
        reasons = (
            f"{agreement.ties:,} have two equally likely splits, {agreement.spelled:,} spell a special token,"
            f" {agreement.unexplained:,} differ otherwise"
        )
        rows.append(("same ids", share, f"of texts by {source}; {reasons}"))
    for name, value, meaning in rows:
        click.echo(f"  {name:<13} {value:>12}  {meaning}")
    if report.lost:
        click.echo("\n  lost                                count  becomes       for example")
    for lost_character in report.lost[:LOST_SHOWN]:
        example = " ".join(lost_character.example.split())
        click.echo(
            f"  {lost_character.name[:32]:<32} {lost_character.count:>8,}  {lost_character.becomes:<12}  {example}"
        )
    if len(report.lost) > LOST_SHOWN:
        click.echo(f"  and {len(report.lost) - LOST_SHOWN} more characters. To list them: --json")
    for sentence in audit.advice(report):
        click.echo(_output.colour(f"  advice  {sentence}", fg="yellow"))
