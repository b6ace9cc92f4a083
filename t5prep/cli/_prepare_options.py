"""Make the options of `prepare` from the fields of Settings and of a task's options, and those of the run itself."""

import dataclasses
import types
import typing
from typing import Any

import click

from pipelines.engines import RUNNERS
from t5prep.dataset.settings import Settings
from t5prep.prepare.memory_budget import DEFAULT
from t5prep.tasks.options import flag
from t5prep.tasks.task import Task

SOURCES = "sample:, a path or glob, gs://..., kaggle:owner/slug, zenodo:RECORD, hf:owner/name"


def of_task(task: Task) -> list[click.Parameter]:
    """Return all options of preparing a task, with the task's own defaults."""
    chosen = [field for field in dataclasses.fields(Settings) if field.metadata.get("help")]
    defaults = {"input_length": task.input_length, "target_length": task.target_length}
    return [
        # click takes a default of None as a default, and --source would not be required.
        _option("source", SOURCES, **({"default": task.corpus.source} if task.corpus.source else {"required": True})),
        _option(
            "tokenizer",
            "A spiece.model or tokenizer.json, a model's directory, a Hub name (T5 or BERT), or sample:",
            required=True,
        ),
        _option("out", "Where the dataset goes.", required=True),
        *(from_field(field, default=defaults.get(field.name, field.default)) for field in chosen),
        _option(
            "runner",
            "What runs the pipeline; Beam's own options for it go after --.",
            default="local",
            type=click.Choice(RUNNERS),
        ),
        _option("workers", "Processes [default: all cores].", type=click.IntRange(min=1)),
        _option("memory", "What all processes may use together.", default=DEFAULT),
        _option("fresh", "Tokenize anew even what is kept from an earlier run.", is_flag=True),
        _option(
            "overwrite",
            "Replace another dataset in --out, which moves to OUT.replaced when this one is whole.",
            is_flag=True,
        ),
        _option(
            "price",
            "Of a vCPU-hour, and of a gigabyte shuffled, for the estimate of an engine's costs, as in 0.07+0.011.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the manifest's summary as one JSON object."),
        click.Argument(["beam_options"], nargs=-1, type=click.UNPROCESSED),
        *(from_field(field, default=field.default) for field in dataclasses.fields(task.options)),
    ]


def from_field(field: dataclasses.Field, *, default: Any) -> click.Option:
    """Return the command-line option that a field declares (t5prep.tasks.options)."""
    rules, kind = field.metadata, _kind(field.type)
    how: dict[str, Any] = {"type": click.Choice(rules["choices"]) if rules["choices"] else kind}
    if kind is bool:
        how = {"is_flag": True}
    elif isinstance(default, tuple):
        how["multiple"] = True
    elif rules["parse"]:
        how = {"callback": lambda context, option, text: None if text is None else rules["parse"](text)}
    shown = rules["shown"] or default
    help = f"{rules['help'][:1].upper()}{rules['help'][1:]}."
    return _option(field.name, help, **how, **({} if shown is None else {"default": shown}))


def _kind(annotation: Any) -> type:
    """Return the type of one value: `int` of `int | None`, `str` of `tuple[str, ...]`."""
    if isinstance(annotation, types.UnionType):
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is tuple:
        annotation = typing.get_args(annotation)[0]
    return annotation if annotation in (int, float, bool) else str


def _option(name: str, help: str, **how: Any) -> click.Option:
    shown = how.get("default") not in (None, "", ()) and not how.get("is_flag")
    return click.Option([flag(name)], help=help, show_default=shown, **how)
