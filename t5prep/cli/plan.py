"""Define `t5prep plan`, which tells whether a training fits a TPU."""

import dataclasses
import importlib.util
import os
from pathlib import Path
from typing import Any

import click

import t5prep
from t5prep import errors
from t5prep.cli import _model_options, _output
from t5prep.cli._addresses import ADDRESS
from t5prep.errors import T5prepError, UsageError
from t5prep.io.installation import TENSORFLOW_FITS, install_command

# The TPUs of a --sweep without --tpu: one host of each kind that TensorFlow trains on.
SWEEP = ("v2-8", "v3-8", "v4-8", "v5e-8", "v6e-8")


@click.command("plan")
@click.option(
    "--model",
    type=ADDRESS,
    default="",
    help="A published T5 or encoder (t5-large, bert-base-uncased, ...) or a directory with config.json.",
)
@click.option("--data", type=ADDRESS, help="A prepared dataset: its lengths, layout and rows.")
@click.option("--split", default="train", show_default=True, help="Whose rows make an epoch.")
@click.option("--input-length", type=click.IntRange(min=1), help="Instead of the dataset's (or 512).")
@click.option("--target-length", type=click.IntRange(min=1), help="Instead of the dataset's (or 64).")
@click.option("--batch", "batches", type=click.IntRange(min=1), multiple=True, help="Rows a step, over all devices.")
@click.option("--tpu", "tpus", multiple=True, help="v2-8, v3-8, v5e-4, v6e-8, ... [default: v5e-8]")
@click.option("--recipe", shell_complete=_model_options.recipe_names, help="A recipe of `t5prep train`.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    shell_complete=_model_options.setting_names,
    metavar="KEY=VALUE",
    help="A setting of `t5prep train`: remat=true.",
)
@click.option("--packed", is_flag=True, help="Rows hold several examples each.")
@click.option("--embed", is_flag=True, help="What `t5prep embed` runs, instead of a training: the encoder alone.")
@click.option("--price", type=click.FloatRange(min=0), help="What one chip costs for an hour, in any currency.")
@click.option("--sweep", is_flag=True, help="A table over every --tpu and --batch.")
@click.option("--lengths", is_flag=True, help="Which lengths to prepare, or buckets, or packing; needs --data.")
@click.option(
    "--save",
    type=ADDRESS,
    metavar="RUN",
    help="Keep the executable for `train --out RUN`, on gs:// for a TPU VM to take.",
)
@click.option("--largest", is_flag=True, help="Look for the largest batch that fits, too.")
@click.option("--exact", is_flag=True, help="Compile all layers, instead of extending the time of a few.")
@click.option("--quick", is_flag=True, help="No advice where it does not fit.")
@click.option(
    "--html",
    type=ADDRESS,
    metavar="FILE",
    help="Write a page to share, too: memory, cycles by operation, hours and price.",
)
@_output.as_json
def plan_command(as_json: bool, sweep: bool, lengths: bool, html: str | None, **given: Any) -> None:
    """Say before it is paid for whether a training fits a TPU, and about how fast it is.

    The training step itself is compiled by Google's TPU compiler, on this machine, which needs no TPU. It plans the memory of
    all layers; a T5's time is extended from a few layers of each kind. It takes minutes; answers are kept. Times are the
    compiler's estimates, to compare by, not measurements.

    \b
    Example:
      t5prep plan --model t5-large --batch 8 --input-length 128 --target-length 20 --tpu v2-8
    """
    if importlib.util.find_spec("tensorflow") is None:
        if not TENSORFLOW_FITS:
            _model_options.need_tensorflow()
        raise errors.UsageError(
            "plan hands the trainer's own step to Google's TPU compiler, and the trainer is not installed here. "
            f"Get both: {install_command('train', 'plan')}"
        )
    # TensorFlow only makes the program here: it needs no device.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    from t5prep.training.settings import config as configs

    if lengths and html:
        raise errors.UsageError(
            "--html shows answers for one layout, and --lengths compares layouts: leave one of them out."
        )
    if given["embed"] and (lengths or given["save"] or given["largest"]):
        raise errors.UsageError("--embed is no training: leave --lengths, --save and --largest out.")
    if lengths and not given["data"]:
        raise errors.UsageError("--lengths plans from a dataset's histogram: say which with --data.")
    tpus, batches = given.pop("tpus"), given.pop("batches")
    if not sweep and (len(tpus) > 1 or len(batches) > 1):
        raise errors.UsageError("Several --tpu or --batch make a table: add --sweep.")
    given["settings"] = configs.read_settings(given.pop("changes"))
    from t5prep.planning import report

    if html:  # what it needs, and its place, are looked at before the minutes of compiling
        from t5prep.io import atomic_files
        from t5prep.report import PAGE
        from t5prep.report import plan as page

        atomic_files.check_writable(Path(html), option="--html", begins=PAGE)

    one: dict[str, Any] = {"tpu": tpus[0] if tpus else "v5e-8", "batch": batches[0] if batches else None}
    common = {name: given[name] for name in ("model", "data", "split", "recipe", "settings", "exact")}
    if lengths:
        choices = t5prep.plan_lengths(**common, **one, say=_output.say)
        values = [
            {**dataclasses.asdict(choice), "estimated_epoch_seconds": report.epoch_seconds(choice, answers)}
            for choice, answers in choices
        ]
        _output.show({"choices": values}, "\n".join(report.choice_lines(choices)), as_json=as_json)
        return
    common |= {name: given[name] for name in ("input_length", "target_length", "packed", "price", "embed")}
    if sweep:
        plans = list(t5prep.plan_sweep(**common, tpus=tpus or SWEEP, batches=batches, say=_output.say))
        text = "\n".join(report.table([(plan.answer, plan.epoch) for plan in plans]))
        _output.show({"answers": [plan.to_json() for plan in plans]}, text, as_json=as_json)
    else:
        plan = print_one(
            **common,
            **one,
            largest=given["largest"],
            save=given["save"] or "",
            search=not given["quick"],
            as_json=as_json,
        )
        plans = [plan]
    if html:
        page.write(plans, out=html)
        _output.say(f"page: {html}")


def options_of(config: Any, *, tpu: str | None) -> dict[str, Any]:
    """Return the arguments of `t5prep.plan` for what `train` would run, on the TPU of --tpu, or that this machine has.

    Raises UsageError if neither names a type, or there is no dataset.
    """
    here = os.environ.get("TPU_ACCELERATOR_TYPE", "")
    name = here if tpu in (None, "auto", "local") else tpu
    if not name:
        raise UsageError(
            "Which TPU? This machine has none (TPU_ACCELERATOR_TYPE is not set). Name its type: --tpu v5e-8 --dry-run"
        )
    if not config.data:
        raise UsageError("Which data? Give a prepared dataset with --data.")
    settings = dataclasses.asdict(config)
    return {"data": config.data[0], "split": config.split, "tpu": name, "batch": config.batch, "settings": settings}


def warn(config: Any, *, tpu: str) -> None:
    """Print a warning on stderr where an earlier `plan` or dry run found that this training cannot fit.

    Nothing is compiled.
    """
    from t5prep.planning import interface

    try:
        plan = interface.recalled(**options_of(config, tpu=tpu))
    except T5prepError:
        return  # no plan for this machine, model or data: the training itself reports what is wrong
    if plan and not plan.fits:
        needed, there = plan.hbm_bytes / 2**30, plan.answer.question.tpu.chip.hbm_bytes / 2**30
        _output.say(
            f"warning: t5prep plan says that this cannot fit: a device needs {needed:.2f} GiB of {there:.2f} GiB. "
            "See what would: the same command with --dry-run"
        )


def print_one(*, as_json: bool, **asked: Any) -> Any:
    """Print what `t5prep.plan` answers, each as soon as it is known: the answer, the largest batch, advice. Return the plan."""
    from t5prep.planning import report

    printed: Any = None

    def show(plan: Any) -> None:
        nonlocal printed
        before, printed = printed, plan
        if before is None and asked.get("save"):
            made = plan.answer.compiled
            versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
            said = f"The executable is {made.saved} ({versions}): a start with the same versions takes it."
            _output.say(
                said if made.saved else "Nothing is saved: the step does not fit, or the place cannot be written."
            )
        if as_json:
            return
        question = plan.answer.question
        if before is None:
            click.echo("\n".join(report.lines(plan.answer, model=question.settings.model)))
            if plan.epoch:
                click.echo(report.epoch_line(plan.epoch, chips=question.tpu.chips))
            if not plan.fits and asked.get("search", True):
                _output.say("Looking for what would fit.")
        elif plan.searched and not before.searched:
            most = "none: not even the smallest fits"
            if plan.largest:
                asked_for, about = plan.largest.question, "about " if plan.largest.extended else ""
                most = f"{about}{asked_for.settings.batch} ({asked_for.rows} on each device)"
            click.echo(f"  largest batch {most}")
        elif len(plan.advice) > len(before.advice):
            click.echo(report.advice_line(plan.advice[-1].words, plan.advice[-1].answer))

    plan = t5prep.plan(**asked, watch=show, say=_output.say)
    if as_json:
        _output.print_json(plan.to_json())
    elif plan.advised and not plan.advice:
        click.echo("  would fit     nothing that was tried: take a smaller model, or another optimizer")
    return plan
