"""Define `t5prep train`, which trains a T5 or an encoder on prepared data."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

import t5prep
from t5prep.cli import _model_options, _options, _output, plan_command
from t5prep.errors import UsageError
from t5prep.options.fields import build
from t5prep.options.models import TrainOptions

if TYPE_CHECKING:
    from t5prep.training.settings.train_config import TrainConfig

MAX_TABLE_ROWS = 10  # rows of the table of predictions


class _ListSettings(click.Option):
    """Print the settings, with the values of `--recipe` and `--set`, and exit instead of training."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Print the settings and exit if `--settings` was typed. Here the other options are known, and none is required yet."""
        if opts.get("listing"):
            _list_settings(recipe=opts.get("recipe") or "", settings=opts.get("settings") or ())
            ctx.exit()
        return super().handle_parse_result(ctx, opts, args)


def _list_settings(*, recipe: str, settings: Sequence[str]) -> None:
    """Print each setting with its value by `recipe` and `settings`, its help and its choices, in sections; then the recipes."""
    from t5prep.training.settings import train_config

    config = train_config.build(
        train_config.read_recipe(recipe) if recipe else {}, train_config.read_settings(settings)
    )
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        setting = f"{field.name} = {' '.join(map(str, value)) if isinstance(value, tuple) else value}"
        if field.metadata["section"]:
            click.echo(f"{field.metadata['section']}:")
        click.echo(f"  {setting:<28}{field.metadata['help']}{_choices(field)}")
    click.echo("Recipes:")
    for name, description in train_config.recipes().items():
        click.echo(f"  {name:<16} {description}")


def _choices(field: "dataclasses.Field[object]") -> str:
    """Return the possible values of a setting as `  [adam, adafactor]`, or "" if its help names all of them."""
    choices = [str(choice) for choice in field.metadata.get("choices") or ()]
    return f"  [{', '.join(choices)}]" if any(choice not in field.metadata["help"] for choice in choices) else ""


@click.command("train")
@_options.options(TrainOptions, recipe={"shell_complete": _model_options.recipe_names}, replicas={"hidden": True})
@_model_options.settings(help="Setting, which overrides the recipe's; repeat for several.")
@click.option(
    "--settings",
    "listing",
    cls=_ListSettings,
    is_flag=True,
    is_eager=True,
    expose_value=False,
    help="List all settings with the values of --recipe and --set.",
)
@click.option("--dry-run", is_flag=True, help="With --tpu: compile the step and report whether it fits; do not train.")
@click.option(
    "--check-step",
    is_flag=True,
    help="With --tpu or --gpus: compare one step with the CPU's, from the same weights; do not train.",
)
@_output.as_json
def train_command(
    settings: tuple[str, ...], dry_run: bool, check_step: bool, as_json: bool, **option_values: object
) -> None:
    """Train a T5 or an encoder on prepared data.

    The same command resumes a run that was stopped. A recipe, epochs=N or steps=N sets the length of the training.

    \b
    Example:
      t5prep train --recipe tiny --data data/sample --out runs/sample
      t5prep train --model google-t5/t5-base --data data/mine --out runs/mine --set epochs=3 --set batch=64
    """
    from t5prep.training import api
    from t5prep.training.settings import train_config

    changes = train_config.read_settings(settings)
    options = build(TrainOptions, {**option_values, "settings": changes}, owner="train")
    if check_step and (dry_run or options.profile):
        other = "--dry-run" if dry_run else "--profile"
        raise UsageError(
            f"--check-step compares one step, so {other} cannot apply. Use either --check-step or {other}, not both.",
            code="option.conflict",
        )
    config = api.configuration(options)
    if dry_run:
        fitting = plan_command.print_one(plan_command.options_of(config, tpu=options.tpu), as_json=as_json).fits
        if fitting and not as_json:
            _output.print_next(_output.retyped(without="--dry-run"))
        return
    if check_step:
        _check_step(config, tpu=options.tpu, gpus=options.gpus, replicas=options.replicas, as_json=as_json)
        return
    if options.tpu is not None:
        plan_command.warn(config, tpu=options.tpu)
    result = t5prep.train(**vars(options))
    from t5prep.training.evaluate.metrics import of_answers
    from t5prep.training.run import run
    from t5prep.training.runtime import hosts

    if not hosts.writes():
        return  # only one of several hosts prints the result
    metrics = result.evaluation.metrics if result.evaluation else {}
    if as_json:
        _output.print_json({"run": result.run, "steps": result.steps, "best": result.best, "metrics": metrics})
        return
    if result.evaluation:
        _output.print_predictions(result.evaluation.predictions[:MAX_TABLE_ROWS])
        click.echo()
        _output.print_metrics(metrics, is_asked="metric" in changes)
    click.echo(f"best checkpoint: {result.best}")
    without_answers = result.evaluation and not result.evaluation.predictions
    # Pre-training that hides tokens has no answers, so `eval` would have none to score.
    if without_answers and any(map(of_answers, run.manifests_of_run(options.out))):
        _output.print_next(f"eval --model {shlex.quote(options.out)}", remark="its answers and their scores")
    else:
        _output.print_next(f"export --model {shlex.quote(options.out)} --out DIR")


def _check_step(config: "TrainConfig", *, tpu: str | None, gpus: bool, replicas: int, as_json: bool) -> None:
    """Compare one training step on the CPU with the same step on the accelerator, and print both.

    Exit with code 1 if a number of the accelerator is not finite.
    """
    from t5prep.training import need_tensorflow

    need_tensorflow()
    from t5prep.training.check_step import check_step

    comparison = check_step(config, tpu=tpu, gpus=gpus, replicas=replicas)
    if as_json:
        _output.print_json({**dataclasses.asdict(comparison), "finite": comparison.finite})
    else:
        click.echo(f"{'':<16}{comparison.cpu:>24}{comparison.accelerator:>32}")
        for name, value in comparison.cpu_metrics.items():
            click.echo(f"{name:<16}{value:>24.6g}{comparison.accelerator_metrics[name]:>32.6g}")
        click.echo(
            "\nvariable                 not finite  norm of the update  largest difference  difference of the state"
        )
        for variable in comparison.variables[:MAX_TABLE_ROWS]:
            numbers = f"{variable.not_finite:>10,}  {variable.update:>18.3g}  {variable.weights:>18.3g}  {variable.state:>23.3g}"
            click.echo(f"{variable.name:<25}{numbers}")
        if comparison.without:
            click.echo(f"turned off: {', '.join(comparison.without)}")
    if not comparison.finite:
        click.echo("Not all numbers are finite. What to try, in which order: docs/google-cloud.md.", err=True)
        raise click.exceptions.Exit(1)
