"""Ask the TPU compiler one question and print its answer, for `plan` and `train`."""

import dataclasses
import os
from typing import Any

import click

import t5prep
from t5prep.cli import _output
from t5prep.errors import T5prepError, UsageError


def options_of(config: Any, *, tpu: str | None) -> dict[str, Any]:
    """Return the arguments of `t5prep.plan` for what `train` would run, on the TPU of --tpu, or that this machine has.

    Raises UsageError where neither names a type, or there is no dataset.
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
    from t5prep.plan import stages

    try:
        plan = stages.recalled(**options_of(config, tpu=tpu))
    except T5prepError:
        return  # no plan for this machine, model or data: the training itself reports what is wrong
    if plan and not plan.fits:
        needed, there = plan.hbm_bytes / 2**30, plan.answer.question.tpu.chip.hbm_bytes / 2**30
        _output.say(
            f"warning: t5prep plan says that this cannot fit: a device needs {needed:.2f} GiB of {there:.2f} GiB. "
            "See what would: the same command with --dry-run"
        )


def print_one(*, as_json: bool, **asked: Any) -> None:
    """Print what `t5prep.plan` answers: the answer, the largest batch, and advice, each as soon as it is known."""
    from t5prep.plan import report

    printed: Any = None

    def show(plan: Any) -> None:
        nonlocal printed
        before, printed = printed, plan
        if before is None and asked.get("save"):
            _output.say(_saved_line(plan.answer.compiled))
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
            click.echo(_largest_line(plan.largest))
        elif len(plan.advice) > len(before.advice):
            click.echo(report.advice_line(plan.advice[-1].words, plan.advice[-1].answer))

    plan = t5prep.plan(**asked, watch=show, say=_output.say)
    if as_json:
        _output.print_json(plan.to_json())
    elif plan.advised and not plan.advice:
        click.echo("  would fit     nothing that was tried: take a smaller model, or another optimizer")


def _saved_line(compiled: Any) -> str:
    """Return the sentence about the executable that --save asked for."""
    if not compiled.saved:
        return "Nothing is saved: the step does not fit, or the place cannot be written."
    versions = ", ".join(f"{name} {version}" for name, version in compiled.versions.items())
    return f"The executable is {compiled.saved} ({versions}): a start with the same versions takes it."


def _largest_line(largest: Any) -> str:
    """Return the line about the largest batch that fits; `largest` is its answer, or None."""
    if largest is None:
        return "  largest batch none: not even the smallest fits"
    about = "about " if largest.extended else ""
    return f"  largest batch {about}{largest.question.settings.batch} ({largest.question.rows} on each device)"
