"""Ask the TPU compiler one question and print its answer, for `plan` and `train`."""

import dataclasses
import os
from typing import Any

import click

from t5prep.cli import _output
from t5prep.errors import T5prepError, UsageError


def question_of(config: Any, *, tpu: str | None) -> Any:
    """Return the question for what `train` would run, on the type of TPU that --tpu names, or that this machine has.

    Raises UsageError where neither gives a type, and the errors of reading the data and the model.
    """
    from t5prep.plan import planner

    here = os.environ.get("TPU_ACCELERATOR_TYPE", "")
    name = here if tpu in (None, "auto", "local") else tpu
    if not name:
        raise UsageError(
            "Which TPU? This machine has none (TPU_ACCELERATOR_TYPE is not set). Name its type: --tpu v5e-8 --dry-run"
        )
    if not config.data:
        raise UsageError("Which data? Give a prepared dataset with --data.")
    data = planner.read(config.data[0], split=config.split)
    return planner.questions(
        model=config.model, tpus=[name or ""], batches=[config.batch], data=data, settings=[dataclasses.asdict(config)]
    )[0]


def warn(config: Any, *, tpu: str) -> None:
    """Print a warning on stderr where an earlier `plan` or dry run found that this training cannot fit.

    Nothing is compiled.
    """
    from t5prep.plan.extending import recalled

    try:
        answer = recalled(question_of(config, tpu=tpu))
    except T5prepError:
        return  # no plan for this machine, model or data: the training itself reports what is wrong
    if answer and not answer.fits:
        needed, there = answer.compiled.hbm_bytes / 2**30, answer.question.tpu.chip.hbm_bytes / 2**30
        _output.say(
            f"warning: t5prep plan says that this cannot fit: a device needs {needed:.2f} GiB of {there:.2f} GiB. "
            "See what would: the same command with --dry-run"
        )


def print_one(
    question: Any,
    *,
    rows: int | None = None,
    price: float | None = None,
    quick: bool = False,
    largest: bool = False,
    exact: bool = False,
    as_json: bool,
) -> None:
    """Print the answer to a question, the largest batch, and advice if it does not fit, each as soon as it is known."""
    from t5prep.plan import interface, report

    options = {"search": not quick, "largest": largest, "exact": exact}
    printed: Any = None
    for plan in interface.stages(question, rows=rows, price=price, say=_output.say, **options):
        before, printed = printed, plan
        if as_json:
            continue
        if before is None:
            click.echo("\n".join(report.lines(plan.answer, model=question.settings.model)))
            if plan.epoch:
                click.echo(report.epoch_line(plan.epoch, chips=question.tpu.chips))
            if not quick and not plan.fits:
                _output.say("Looking for what would fit.")
        elif plan.searched and not before.searched:
            click.echo(_largest_line(plan.largest))
        elif len(plan.advice) > len(before.advice):
            click.echo(report.advice_line(plan.advice[-1].words, plan.advice[-1].answer))
    if as_json:
        _output.print_json(printed.to_json())
    elif printed.advised and not printed.advice:
        click.echo("  would fit     nothing that was tried: take a smaller model, or another optimizer")


def _largest_line(largest: Any) -> str:
    """Return the line about the largest batch that fits; `largest` is its answer, or None."""
    if largest is None:
        return "  largest batch none: not even the smallest fits"
    about = "about " if largest.extended else ""
    return f"  largest batch {about}{largest.question.settings.batch} ({largest.question.rows} on each device)"
