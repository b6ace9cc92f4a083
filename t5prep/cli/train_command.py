"""Define `t5prep train`, which trains a T5 or an encoder on prepared data."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

import t5prep
from t5prep.cli import _model_options, _options, _output, plan_command
from t5prep.cli._addresses import ADDRESS
from t5prep.errors import UsageError
from t5prep.options.models import ModelOptions

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
@click.option(
    "--data",
    type=ADDRESS,
    multiple=True,
    metavar="DIR",
    help="Prepared dataset, local or gs://; repeat to mix several.",
)
@click.option(
    "--model",
    type=ADDRESS,
    help="Initial weights: a Hugging Face directory, a Hub name, or a run (its best checkpoint).",
)
@click.option(
    "--out", type=ADDRESS, required=True, help="Directory of the run, local or gs://; an existing run is resumed."
)
@click.option(
    "--recipe", shell_complete=_model_options.recipe_names, help="Recipe by its name (see --settings), or a TOML file."
)
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
@_options.options(ModelOptions, only=("tokenizer", "tpu", "gpus"))
@click.option("--dry-run", is_flag=True, help="With --tpu: compile the step and report whether it fits; do not train.")
@click.option(
    "--profile",
    default=0,
    type=click.IntRange(min=0),
    metavar="STEPS",
    help="Number of steps to profile for TensorBoard, after the first ones.",
)
@click.option(
    "--check-step",
    is_flag=True,
    help="With --tpu or --gpus: compare one step with the CPU's, from the same weights; do not train.",
)
@click.option("--replicas", default=1, hidden=True, type=click.IntRange(min=1), help="Logical CPU devices, for tests.")
@_output.as_json
def train_command(
    data: tuple[str, ...],
    model: str | None,
    out: str,
    recipe: str | None,
    settings: tuple[str, ...],
    tokenizer: str,
    tpu: str | None,
    gpus: bool,
    dry_run: bool,
    profile: int,
    check_step: bool,
    replicas: int,
    as_json: bool,
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

    if check_step and (dry_run or profile):
        other = "--dry-run" if dry_run else "--profile"
        raise UsageError(
            f"--check-step compares one step, so {other} cannot apply. Use either --check-step or {other}, not both.",
            code="option.conflict",
        )
    changes = train_config.read_settings(settings)
    config = api.configuration(data=data, out=out, model=model, recipe=recipe, tokenizer=tokenizer, settings=changes)
    if dry_run:
        fitting = plan_command.print_one(plan_command.options_of(config, tpu=tpu), as_json=as_json).fits
        if fitting and not as_json:
            _output.print_next(_output.retyped(without="--dry-run"))
        return
    if check_step:
        _check_step(config, tpu=tpu, gpus=gpus, replicas=replicas, as_json=as_json)
        return
    if tpu is not None:
        plan_command.warn(config, tpu=tpu)
    result = t5prep.train(
        data=data,
        out=out,
        model=model,
        recipe=recipe,
        tokenizer=tokenizer,
        settings=changes,
        tpu=tpu,
        gpus=gpus,
        replicas=replicas,
        profile=profile,
    )
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
        _output.print_metrics(metrics)
    click.echo(f"best checkpoint: {result.best}")
    without_answers = result.evaluation and not result.evaluation.predictions
    # Pre-training that hides tokens has no answers, so `eval` would have none to score.
    if without_answers and any(map(of_answers, run.manifests_of_run(out))):
        _output.print_next(f"eval --model {shlex.quote(out)}", remark="its answers and their scores")
    else:
        _output.print_next(f"export --model {shlex.quote(out)} --out DIR")


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
