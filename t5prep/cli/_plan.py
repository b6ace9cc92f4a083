"""What `plan` and `train` share: one question to the TPU compiler, answered on the terminal."""

import dataclasses
import os
from typing import Any

import click

from t5prep.cli import _output
from t5prep.errors import T5prepError, UsageError


def question_of(config: Any, *, tpu: str | None) -> Any:
    """What `train` would run with a configuration: on the TPU that --tpu names as a type, or that this machine has.

    Raises UsageError where neither says a type, and what reading the data and the model raises.
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
    """One line on stderr where an earlier `plan` or dry run says that this training cannot fit; nothing is compiled."""
    from t5prep.plan.question import recall

    try:
        answer = recall(question_of(config, tpu=tpu))
    except T5prepError:
        return  # no plan for this machine, model or data: the training itself will say what is wrong
    if answer and not answer.fits:
        needed, there = answer.compiled.hbm_bytes / 2**30, answer.question.tpu.chip.hbm_bytes / 2**30
        _output.say(
            f"warning: t5prep plan says that this cannot fit: a device needs {needed:.2f} GiB of {there:.2f} GiB. "
            "See what would: the same command with --dry-run"
        )


def print_one(
    question: Any, *, rows: int | None = None, price: float | None = None, quick: bool = False, as_json: bool
) -> None:
    """Asks, and prints the answer, the largest batch, and advice where it does not fit."""
    from t5prep.plan import report, search
    from t5prep.plan.question import ask

    def show(line: str) -> None:
        if not as_json:
            click.echo(line)

    answer = ask(question)
    said = report.as_json(answer)
    show("\n".join(report.lines(answer, model=question.settings.model)))
    if rows and answer.fits:
        one = report.epoch(answer, rows=rows, price=price)
        said["epoch"] = dataclasses.asdict(one)
        show(report.epoch_line(one, chips=question.tpu.chips))
    if not quick:
        _output.say("Looking for the largest batch; every guess is compiled.")
        largest = search.largest_batch(question)
        said["largest_batch"] = largest.question.settings.batch if largest else 0
        show(
            f"  largest batch {largest.question.settings.batch} ({largest.question.rows} on each device)"
            if largest
            else "  largest batch none: not even the smallest fits"
        )
    if not quick and not answer.fits:
        said["advice"] = []
        for advice in search.advise(question):
            said["advice"].append({"change": advice.words, **report.as_json(advice.answer)})
            show(report.advice_line(advice.words, advice.answer))
        if not said["advice"]:
            show("  would fit     nothing that was tried: take a smaller model, or another optimizer")
    if as_json:
        _output.print_json(said)
