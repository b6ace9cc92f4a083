"""Define `t5prep plan`, which checks whether a training run fits a TPU."""

import dataclasses
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import t5prep
from t5prep import errors
from t5prep.cli import _model_options, _options, _output
from t5prep.cli._addresses import ADDRESS
from t5prep.errors import T5prepError, UsageError
from t5prep.io.installation import TENSORFLOW_FITS, install_command
from t5prep.options.fields import as_cli_option, build
from t5prep.options.models import PlanOptions

if TYPE_CHECKING:
    from t5prep.planning.interface import Plan
    from t5prep.training.settings.train_config import TrainConfig


@click.command("plan")
@_options.options(PlanOptions, recipe={"shell_complete": _model_options.recipe_names})
@_model_options.settings(help="Setting of `t5prep train`: remat=true.")
@click.option("--sweep", is_flag=True, help="Print a table of every --tpu and --batch.")
@click.option("--lengths", is_flag=True, help="Compare lengths, length buckets and packing; needs --data.")
@click.option(
    "--html",
    type=ADDRESS,
    metavar="FILE",
    help="Also write an HTML page with memory, cycles by operation, hours and price.",
)
@_output.as_json
def plan_command(as_json: bool, sweep: bool, lengths: bool, html: str | None, **option_values: Any) -> None:
    """Check whether a training run fits a TPU.

    Google's TPU compiler compiles the training step on this machine, which needs no TPU. The compiler plans the
    memory of all layers. The time of a T5 is extrapolated from a few layers of each kind. A plan takes minutes, and is
    cached. Times are estimates of the compiler for comparison, not measurements.

    \b
    Example:
      t5prep plan --model t5-large --batch 8 --input-length 128 --target-length 20 --tpu v2-8
    """
    if importlib.util.find_spec("tensorflow") is None:
        if not TENSORFLOW_FITS:
            _model_options.need_tensorflow()
        raise errors.UsageError(
            "t5prep plan compiles the trainer's own step, but the trainer is not installed. Install the "
            f"trainer and the TPU compiler: {install_command('train', 'plan')}",
            code="install.extra-missing",
        )
    # TensorFlow only makes the program here. By default, it would reserve the memory of all GPUs.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    from t5prep.planning import report
    from t5prep.training.settings import train_config

    option_values["settings"] = train_config.read_settings(option_values["settings"])
    if lengths and (html or sweep):
        other = "--html" if html else "--sweep"
        raise errors.UsageError(
            f"{other} does not compare layouts, but --lengths does. Use either {other} or --lengths, not both.",
            code="option.conflict",
        )
    if html:  # its imports and its path are checked now, not after minutes of compiling
        from t5prep.io import atomic_files
        from t5prep.report import PAGE, plan_page

        atomic_files.check_writable(Path(html), option="--html", begins=PAGE)
    if lengths:
        choices = t5prep.plan_lengths(**option_values, say=_output.say)
        values = [
            {**dataclasses.asdict(choice), "estimated_epoch_seconds": report.epoch_seconds(choice, answers)}
            for choice, answers in choices
        ]
        _output.show({"choices": values}, "\n".join(report.choice_lines(choices)), as_json=as_json)
        return
    if sweep:
        plans = list(t5prep.plan_sweep(**option_values, say=_output.say))
        text = "\n".join(report.table([(plan.answer, plan.epoch) for plan in plans]))
        _output.show({"answers": [plan.to_json() for plan in plans]}, text, as_json=as_json)
    else:
        options = build(PlanOptions, option_values)
        plans = [print_one(options, as_json=as_json)]
        if plans[0].fits and not (as_json or options.embed):
            _output.print_next(_next_command(plans[0], options))
    if html:
        plan_page.write(plans, out=html)
        _output.say(f"page: {html}")


def options_of(config: "TrainConfig", *, tpu: str | None) -> PlanOptions:
    """Return the options of `t5prep.plan` for the training of `config` on the TPU type `tpu`.

    None, "auto" and "local" mean the TPU of this machine. Raises UsageError if this machine has none, or if `config` has
    no dataset.
    """
    accelerator_type = os.environ.get("TPU_ACCELERATOR_TYPE", "")
    name = accelerator_type if tpu in (None, "auto", "local") else tpu
    if not name:
        raise UsageError(
            "No TPU type is known, because this machine has no TPU (TPU_ACCELERATOR_TYPE is not set). "
            "Name a type: --tpu v5e-8 --dry-run",
            code="option.missing",
        )
    if not config.data:
        raise UsageError("No dataset is named. Pass a prepared dataset: --data DATA", code="option.missing")
    settings = dataclasses.asdict(config)
    return PlanOptions(data=config.data[0], split=config.split, tpu=(name,), batch=(config.batch,), settings=settings)


def warn(config: "TrainConfig", *, tpu: str) -> None:
    """Print a warning on stderr if an earlier `plan` or dry run found that this training does not fit.

    Only the cache is read; nothing is compiled.
    """
    from t5prep.planning import interface

    try:
        plan = interface.recalled(options_of(config, tpu=tpu))
    except T5prepError:
        return  # no plan is possible for this machine, model or data: the training itself reports the problem
    if plan and not plan.fits:
        needed, available_gib = plan.hbm_bytes / 2**30, plan.answer.question.tpu.chip.hbm_bytes / 2**30
        _output.say(
            f"warning: this training does not fit, by t5prep plan: a device needs {needed:.2f} GiB, but has "
            f"{available_gib:.2f} GiB. To find settings that fit, run the same command with --dry-run"
        )


def print_one(options: PlanOptions, *, as_json: bool) -> "Plan":
    """Print the result of `t5prep.plan`, and return the plan.

    Each part is printed as soon as it is known: first the answer, then the largest batch, then advice.
    """
    from t5prep.planning import report

    printed: Plan | None = None

    def show(plan: "Plan") -> None:
        """Print the new part of a plan that has grown: the answer, the largest batch, or the last advice."""
        nonlocal printed
        previous_plan, printed = printed, plan
        if previous_plan is None and options.save:
            executable = plan.answer.compiled
            versions = ", ".join(f"{name} {version}" for name, version in executable.versions.items())
            message = (
                f"The executable was saved to {executable.saved} ({versions}). Runs with the same versions use it."
            )
            _output.say(
                message
                if executable.saved
                else "Nothing was saved, because the step does not fit or the folder cannot be written."
            )
        if as_json:
            return
        question = plan.answer.question
        if previous_plan is None:
            click.echo("\n".join(report.lines(plan.answer, model=question.settings.model)))
            if plan.epoch:
                click.echo(report.epoch_line(plan.epoch, chips=question.tpu.chips))
            if not plan.fits and not (options.quick or options.embed):
                _output.say("Searching for settings that fit.")
        elif plan.searched and not previous_plan.searched:
            largest_batch = "none: not even the smallest fits"
            if plan.largest:
                asked_for, about = plan.largest.question, "about " if plan.largest.extended else ""
                largest_batch = f"{about}{asked_for.settings.batch} ({asked_for.rows} on each device)"
            click.echo(f"  largest batch {largest_batch}")
        elif len(plan.advice) > len(previous_plan.advice):
            click.echo(report.advice_line(plan.advice[-1].words, plan.advice[-1].answer))

    plan = t5prep.plan(**vars(options), watch=show, say=_output.say)
    if as_json:
        _output.print_json(plan.to_json())
    elif plan.advised and not plan.advice:
        click.echo("  would fit     none of the tried settings. Use a smaller model, or another optimizer")
    return plan


def _next_command(plan: "Plan", options: PlanOptions) -> str:
    """Return the command after a plan that fits: search a larger batch if half of the memory is free, else train."""
    question = plan.answer.question
    if not plan.searched and 2 * plan.hbm_bytes < question.tpu.chip.hbm_bytes:
        return _output.retyped(add=["--largest"])
    config = question.settings
    values: dict[str, object] = {
        "recipe": options.recipe,
        "model": options.model or None,
        "data": options.data or "DATA",
        "out": options.save or "RUN",
    }
    settings = dict(options.settings or {}) | ({"batch": config.batch} if options.batch else {})
    settings |= {} if config.epochs or config.steps else {"epochs": 3}
    values["set"] = [f"{name}={value}" for name, value in settings.items()]
    return " ".join(["train", *(as_cli_option(name, value) for name, value in values.items() if value)])
