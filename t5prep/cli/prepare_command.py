"""Define `t5prep prepare TASK`. Each task is a subcommand, because each task has its own options."""

import dataclasses
import os
import shlex
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

import t5prep
from pipelines.run_options import RunOptions
from t5prep.cli import _options, _output
from t5prep.cli._addresses import ADDRESS
from t5prep.cli._failing import CodedUsageError
from t5prep.dataset.settings import Settings
from t5prep.io import address_space, byte_sizes
from t5prep.io.progress import number_of
from t5prep.preparation import memory_budget
from t5prep.tasks.task import Task

if TYPE_CHECKING:
    from t5prep.dataset.manifest import Manifest


class _Tasks(click.Group):
    """Make a subcommand for each task, with the common options and the options of the task."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError with advice for an option before the task."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise CodedUsageError(
                f"{error.option_name} must follow the name of the task: t5prep prepare TASK {error.option_name} ...",
                ctx,
                code="option.misplaced",
            ) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        from t5prep.tasks import registry

        return list(registry.installed()[0])

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        """Return the command for the task `name`, with the options of the task."""
        from t5prep.tasks import registry

        definition = registry.get(name)
        params = of_task(definition.task)
        summary = definition.summary or f"Prepare rows by the task of {name}."
        usual = f"t5prep prepare {name} --tokenizer google-t5/t5-base --out data/{name}"
        example = f"\b\nExample:\n  {_EXAMPLES.get(name, usual)}"
        return _TaskCommand(
            name, params=params, callback=_callback(name), help=f"{summary}\n\n{example}", short_help=summary
        )


COLUMNS = "Columns and text"  # the section of the task's own options
# Task → the example in its `--help`, where the usual one (`_Tasks.get_command`) lacks a required option.
_EXAMPLES = {
    "so_quality": "t5prep prepare so_quality --source sample: --tokenizer sample: --out data/sample",
    "text2text": "t5prep prepare text2text --source mine.csv --inputs-column text --targets-column label"
    " --tokenizer google-t5/t5-base --out data/mine",
    "span_corruption": "t5prep prepare span_corruption --source texts.txt --tokenizer google-t5/t5-base --out data/texts",
    "ul2": "t5prep prepare ul2 --source texts.txt --tokenizer google-t5/t5-base --out data/ul2",
    "masked_language": "t5prep prepare masked_language --source texts.txt --tokenizer google-bert/bert-base-uncased"
    " --out data/masked",
}


class _TaskCommand(_options.SectionCommand):
    """Refuse words before `--` that belong to no option.

    The shell expands an unquoted glob (`--source *.csv`) to several words. click would take all but the first as options of
    Beam.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for a word before `--` that belongs to no option."""
        if not ctx.resilient_parsing:
            task_args = args[: args.index("--")] if "--" in args else args
            try:
                values, _, _ = self.make_parser(ctx).parse_args(list(task_args))
            except click.UsageError:
                values = {}  # `super().parse_args` raises it again
            words = values.get("beam_options")
            if isinstance(words, list | tuple) and words:  # for no words, click 8.3 has a sentinel object
                raise CodedUsageError(
                    f'The argument "{words[0]}" has no option. To read several files, quote a glob, as in '
                    '--source "*.csv". To pass options to Beam, put them after --',
                    ctx,
                    code="option.unexpected-argument",
                )
        return super().parse_args(ctx, args)


def _callback(name: str) -> Callable[..., None]:
    """Return the function of the command `prepare NAME`, which gets the values of its options."""

    def run(
        source: tuple[str, ...],
        tokenizer: str,
        out: str,
        beam_options: tuple[str, ...],
        as_json: bool,
        dry_run: bool,
        runner: str,
        workers: int | None,
        **option_values: object,
    ) -> None:
        """Prepare the dataset with the values of the options, or with `dry_run` print an estimate."""
        option_values |= {"runner": runner, "workers": workers}
        uri = source[0] if len(source) == 1 else source
        address_space.check(address_space.PREPARING_BYTES)
        if dry_run and as_json:
            raise CodedUsageError(
                "--json prints the summary of a dataset, but --dry-run makes no dataset. Use either --json or "
                "--dry-run, not both.",
                code="option.conflict",
            )
        if dry_run:
            from pipelines.prepare import forecast

            estimate = forecast(
                name, source=uri, tokenizer=tokenizer, out=out, beam_options=beam_options, **option_values
            )
            click.echo(f"{name} (dry run, nothing is written):\n{estimate}")
            _output.print_next(_output.retyped(without="--dry-run"))
            return
        if runner == "local" and (workers or (workers is None and not all(map(_is_small, source)))):
            from pipelines import pool

            # Worker processes import their modules while this process reads the source's listing
            # (docs/decisions/023-load-everything-before-workers-fork.md).
            pool.begin_loading(tokenizer if os.path.exists(tokenizer) else "")
        began = time.monotonic()
        manifest = t5prep.prepare(
            name, source=uri, tokenizer=tokenizer, out=out, beam_options=beam_options, **option_values
        )
        if as_json:
            _output.print_json({"out": out, **_facts(manifest)})
        else:
            _tell(manifest, out=out, seconds=time.monotonic() - began)

    return run


def _is_small(path: str) -> bool:
    """Check whether one process prepares this source in less time than worker processes need to start."""
    return path == "sample:" or (os.path.isfile(path) and os.path.getsize(path) < memory_budget.SMALL)


def _facts(manifest: "Manifest") -> dict[str, object]:
    """Return the facts of the manifest that `--json` prints."""
    return {
        "digest": manifest.digest,
        "splits": {
            name: {"records": split.records, "shards": len(split.shards), "tokens": split.tokens}
            for name, split in manifest.splits.items()
        },
        "truncation": manifest.ledger,
        "rows": {name: dataclasses.asdict(rows) for name, rows in manifest.rows.items()},
        "rejected": manifest.rejected,
        "rejected_tokens": manifest.rejected_tokens,
        "changed": manifest.changed,
        "texts": manifest.texts and dataclasses.asdict(manifest.texts),
        "near_duplicates": manifest.near_duplicates and dataclasses.asdict(manifest.near_duplicates),
        "warnings": manifest.warnings,
    }


def _tell(manifest: "Manifest", *, out: str, seconds: float) -> None:
    """Print the summary of a prepared dataset: folder, splits, cut and rejected rows, warnings, and the next command."""
    ledger = manifest.ledger
    cut, targets = ledger["inputs"], ledger["targets"]
    size = sum(shard.bytes for shard in manifest.shards)
    click.echo(f"{out}: {number_of(manifest.records, 'record')}, {byte_sizes.text(size)}, in {seconds:.1f} s")
    for name, split in manifest.splits.items():
        label_counts = split.labels if len(split.labels) < 8 else {}
        labels = "".join(f"  {label} {number:,}" for label, number in label_counts.items())
        records = number_of(split.records, "record").rjust(17)
        shards = number_of(len(split.shards), "shard").rjust(11)
        click.echo(f"  {name:<12} {records}  {shards}{labels}")
    limit = manifest.settings.input_length
    tokens = cut["tokens_before"]
    half = f"half of the inputs have at most {tokens['p50']} tokens, 95 % at most {tokens['p95']}"
    if cut["rows_cut"]:
        of = number_of(cut["rows_cut"], "input")
        cut_summary = f"{of} longer than {limit} tokens lost {number_of(cut['tokens_lost'], 'token')}"
    else:
        cut_summary = f"no input: all fit in {limit} tokens"
    click.echo(f"  cut           {cut_summary}; {half}")
    if targets["rows_cut"]:
        lost = number_of(targets["tokens_lost"], "token")
        click.echo(f"  cut           {number_of(targets['rows_cut'], 'target')} lost {lost}")
    click.echo(f"  rows          {_balance(manifest)}")
    if manifest.rejected:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in manifest.rejected.items())
        if manifest.rejected_tokens:
            reasons += f" ({number_of(sum(manifest.rejected_tokens.values()), 'token')})"
        path = os.path.join(out, manifest.rejected_file.name if manifest.rejected_file else "rejected.jsonl")
        click.echo(f"  rejected      {number_of(sum(manifest.rejected.values()), 'row')}: {reasons}  → {path}")
    if manifest.changed:
        changed = ", ".join(f"{name} {number:,}" for name, number in manifest.changed.items())
        click.echo(f"  changed       rows by filters: {changed}")
    if near := manifest.near_duplicates:
        clusters = number_of(near.clusters, "cluster")
        click.echo(f"  alike         {clusters}; {near.across_splits:,} of their rows would be in another split")
    for line in _of_texts(manifest):
        click.echo(line)
    for warning in manifest.warnings:
        click.echo(_output.colour(f"  warning       {warning}", fg="yellow"))
    _output.print_next(f"inspect {shlex.quote(out)}")


# Unknown characters that the summary shows.
_CHARACTERS = 8


def _of_texts(manifest: "Manifest") -> Iterator[str]:
    """Yield a line for each problem in the texts that users overlook: unknown characters, repeated rows, HTML."""
    texts = manifest.texts
    if texts is None:
        return
    if texts.inputs_unknown or texts.targets_unknown:
        unknown_characters = ", ".join(
            f"{_printable(text)} {count:,}" for text, count in texts.characters[:_CHARACTERS]
        )
        tokens = sum(split.tokens["inputs"] for split in manifest.splits.values())
        unknown = sum(split.unk_rate * split.tokens["inputs"] for split in manifest.splits.values())
        side_counts = ((texts.inputs_unknown, "input"), (texts.targets_unknown, "target"))
        rows = " and ".join(number_of(count, side) for count, side in side_counts if count)
        list_of_characters = f": {unknown_characters}" if unknown_characters else ""
        yield f"  unknown       {unknown / max(1, tokens):.2%} of input tokens, in {rows}{list_of_characters}"
    if (repeats := texts.repeats) and repeats.rows:
        about = "" if repeats.exact else "about "
        across = f", which is in another split for {repeats.across_splits:,}" if repeats.across_splits else ""
        rows = number_of(repeats.rows, "row")
        yield f"  repeated      {about}{rows} with the input of another row{across}. To keep one of each: --dedup exact"
    if texts.with_markup:
        yield f"  HTML          tags in {texts.with_markup:,} of {number_of(texts.rows, 'input')}"


def _printable(character: str) -> str:
    """Return a character, or its code point if a terminal would show nothing.

    >>> _printable("{"), _printable("\u200b")
    ('{', 'U+200B')
    """
    return character if character.isprintable() and not character.isspace() else f"U+{ord(character):04X}"


# What becomes of rows: a field of rejected_rows.Rows → its noun, or "" where the field's name follows the number.
_OUTCOMES = {"examples": "example", "rejected": "", "duplicates": "duplicate", "blank": ""}


def _balance(manifest: "Manifest") -> str:
    """Return the balance of rows: `100 read = 90 examples + 10 rejected`."""
    totals = manifest.row_totals()
    outcomes = " + ".join(
        number_of(count, noun) if noun else f"{count:,} {field}"
        for field, noun in _OUTCOMES.items()
        if (count := getattr(totals, field))
    )
    split = manifest.ledger["split"]
    split_note = (
        f" + {split['examples'] - split['rows']:,} more of {split['rows']:,} that were split" if split["rows"] else ""
    )
    return f"{totals.read:,} read{split_note} = {outcomes}"


@click.command("prepare", cls=_Tasks, subcommand_metavar="TASK [OPTIONS] [-- BEAM OPTIONS]")
def prepare_command() -> None:
    """Prepare a corpus: write TFRecord shards.

    Each TASK has its own options: `t5prep prepare TASK --help`.

    \b
    Example:
      t5prep prepare so_quality --source sample: --tokenizer sample: --out data/sample
    """


SOURCES = (
    "Source; repeat for several: sample:, a path or glob, gs://..., kaggle:owner/slug, zenodo:RECORD, "
    "hf:owner/name, - (standard input)"
)


# The sections of options in `--help`, in their order.
SECTIONS = ("Required", COLUMNS, "Source", "Length", "Splits and duplicates", "Output", "Engine", "Advanced")


def of_task(task: Task) -> list[click.Parameter]:
    """Return the options and arguments of `prepare` for `task`, in the order of SECTIONS, with the task's defaults.

    Those that cannot change a dataset of the task are hidden in `--help`, and the checks of the settings refuse them.
    """
    defaults = {"input_length": task.input_length, "target_length": task.target_length}
    unused = task.unused_settings()
    common = [
        field
        for field in (*dataclasses.fields(Settings), *dataclasses.fields(RunOptions))
        if field.metadata.get("help")
    ]
    options = [
        # Not `default=None` for a task without a source: click would take it as a default, and not require --source.
        _options.option("source", SOURCES, section="Required", type=ADDRESS, multiple=True, **_source_default(task)),
        _options.option(
            "tokenizer",
            "Tokenizer: a spiece.model or tokenizer.json, a model's directory, a Hub name, or sample:",
            section="Required",
            required=True,
            type=ADDRESS,
        ),
        _options.option(
            "out", "Output directory of the dataset, local or gs://.", section="Required", required=True, type=ADDRESS
        ),
        *(
            _options.from_field(field, default=field.default, section=COLUMNS)
            for field in dataclasses.fields(task.options)
        ),
        *(
            _options.from_field(field, default=defaults.get(field.name, field.default), hidden=field.name in unused)
            for field in common
        ),
        _options.option(
            "dry_run",
            "Estimate input, output, resources and cost from a sample; write nothing.",
            section="Engine",
            is_flag=True,
        ),
        _options.SectionOption(
            ["--json", "as_json"],
            section="Output",
            is_flag=True,
            help="Print the summary of the manifest as one JSON object.",
        ),
    ]
    options.sort(key=lambda option: SECTIONS.index(option.section))
    return [*options, click.Argument(["beam_options"], nargs=-1, type=click.UNPROCESSED, metavar="[-- BEAM OPTIONS]")]


def _source_default(task: Task) -> dict[str, Any]:
    """Return the keywords of the option --source: a default if the task has a source, else `required`."""
    return {"default": (task.corpus.source,)} if task.corpus.source else {"required": True}
