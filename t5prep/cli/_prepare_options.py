"""The options that preparing has whatever the task."""

from typing import Any

import click

from pipelines.engines import RUNNERS
from t5prep.prepare.memory_budget import DEFAULT
from t5prep.tokens.truncation import MARKERS, POLICIES

SOURCES = "sample:, a path or glob, gs://..., kaggle:owner/slug, zenodo:RECORD, hf:owner/name"
SPLITS = "Shares drawn by the id's hash [default: train=0.9,validation=0.1, unless files are splits themselves]."


def common(task: Any) -> list[click.Parameter]:
    """The options, with the defaults of a task."""
    from t5prep.prepare.settings import DEDUPS, LAYOUTS

    lengths = {"inputs": task.input_length, "targets": task.target_length}
    return [
        # A default of None would count as one, and --source would not be required.
        _option("source", SOURCES, **({"default": task.source} if task.source else {"required": True})),
        _option("tokenizer", "A spiece.model, its directory, a Hub name, or sample:", required=True),
        _option("out", "Where the dataset goes.", required=True),
        _option("input-length", "Tokens of an input, EOS among them.", default=lengths["inputs"]),
        _option("target-length", "Tokens of a target, EOS among them.", default=lengths["targets"]),
        _option("truncation", "What of a long input is kept.", default="head_tail", type=click.Choice(POLICIES)),
        _option("marker", "What head_tail puts for the middle.", default="extra_id_1", type=click.Choice(MARKERS)),
        _option("layout", "How records are laid out.", default="padded", type=click.Choice(LAYOUTS)),
        _option("masks", "Write attention_mask and decoder_attention_mask too.", is_flag=True),
        _option("keep-newlines", "Keep newlines, each as the token <extra_id_2>, instead of a space.", is_flag=True),
        _option("splits", SPLITS),
        _option(
            "dedup", "exact: keep one row of each input text, in one split.", default="none", type=click.Choice(DEDUPS)
        ),
        _option("shards", "Shards of the largest split, or auto.", default="auto"),
        _option("seed", "What splits and order are drawn with.", default=0),
        _option("limit", "Read only so many rows (of each split, where files are splits).", type=click.IntRange(min=1)),
        _option("format", "csv, tsv, jsonl, parquet or text, where file names do not say it.", default=""),
        _option("encoding", "Of text files.", default="utf-8"),
        _option(
            "runner",
            "What runs the pipeline; Beam's own options for it go after --.",
            default="local",
            type=click.Choice(RUNNERS),
        ),
        _option("workers", "Processes [default: all cores].", type=click.IntRange(min=1)),
        _option("memory", "What all processes may use together.", default=DEFAULT),
        _option("fresh", "Tokenize anew even what is kept from an earlier run.", is_flag=True),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the manifest's summary as one JSON object."),
        click.Argument(["beam_options"], nargs=-1, type=click.UNPROCESSED),
    ]


def _option(name: str, help: str, **how: Any) -> click.Option:
    shown = how.get("default") not in (None, "") and not how.get("is_flag")
    return click.Option([f"--{name}"], help=help, show_default=shown, **how)
