"""Define `t5prep plan`, which tells whether a training fits a TPU."""

import importlib.util
import math
import os
from typing import Any

import click

from t5prep import errors
from t5prep.cli import _output, _plan
from t5prep.io.installation import install_command

# The TPUs of a --sweep without --tpu: one host of each kind that TensorFlow trains on.
SWEEP = ("v2-8", "v3-8", "v4-8", "v5e-8", "v6e-8")


@click.command("plan")
@click.option(
    "--model",
    default="",
    help="A published T5 or encoder (t5-large, bert-base-uncased, ...) or a directory with config.json.",
)
@click.option("--data", help="A prepared dataset: its lengths, layout and rows.")
@click.option("--split", default="train", show_default=True, help="Whose rows make an epoch.")
@click.option("--input-length", type=click.IntRange(min=1), help="Instead of the dataset's (or 512).")
@click.option("--target-length", type=click.IntRange(min=1), help="Instead of the dataset's (or 64).")
@click.option("--batch", "batches", type=click.IntRange(min=1), multiple=True, help="Rows a step, over all devices.")
@click.option("--tpu", "tpus", multiple=True, help="v2-8, v3-8, v5e-4, v6e-8, ... [default: v5e-8]")
@click.option("--recipe", help="A recipe of `t5prep train`.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting of `t5prep train`: remat=true.")
@click.option("--packed", is_flag=True, help="Rows hold several examples each.")
@click.option("--price", type=click.FloatRange(min=0), help="What one chip costs for an hour, in any currency.")
@click.option("--sweep", is_flag=True, help="A table over every --tpu and --batch.")
@click.option("--lengths", is_flag=True, help="Which lengths to prepare, or buckets, or packing; needs --data.")
@click.option("--save", metavar="RUN", help="Keep the executable for `train --out RUN`, on gs:// for a TPU VM to take.")
@click.option("--largest", is_flag=True, help="Look for the largest batch that fits, too.")
@click.option("--exact", is_flag=True, help="Compile all layers, instead of extending models of two and three layers.")
@click.option("--quick", is_flag=True, help="No advice where it does not fit.")
@_output.as_json
def command(as_json: bool, sweep: bool, lengths: bool, **given: Any) -> None:
    """Say before it is paid for whether a training fits a TPU, and about how fast it is.

    The training step itself is compiled by Google's TPU compiler, on this machine, which needs no TPU: with two and three
    layers of each kind, whose figures are extended to all layers. It takes minutes; answers are kept. Times are the
    compiler's estimates, to compare by, not measurements.

    \b
    Example:
      t5prep plan --model t5-large --batch 8 --input-length 128 --target-length 20 --tpu v2-8
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise errors.UsageError(
            "plan hands the trainer's own step to Google's TPU compiler, and the trainer is not installed here. "
            f"Get both: {install_command('train', 'plan')}"
        )
    # TensorFlow only makes the program here: it needs no device.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    from t5prep.errors import UsageError
    from t5prep.plan import planner
    from t5prep.train import config as configs

    data = planner.read(given["data"], split=given["split"]) if given["data"] else None
    if lengths and data is None:
        raise UsageError("--lengths plans from a dataset's histogram: say which with --data.")
    if given["price"] is not None and not math.isfinite(given["price"]):
        raise UsageError(f"--price {given['price']} is not a price. Write it like this: --price 1.20")
    if not sweep and (len(given["tpus"]) > 1 or len(given["batches"]) > 1):
        raise UsageError("Several --tpu or --batch make a table: add --sweep.")
    settings = [configs.read_recipe(given["recipe"])] if given["recipe"] else []
    asked = planner.questions(
        model=given["model"],
        tpus=given["tpus"] or (SWEEP if sweep else ("v5e-8",)),
        batches=given["batches"],
        data=data,
        lengths=(given["input_length"], given["target_length"]),
        packed=given["packed"],
        settings=[*settings, configs.read_settings(given["changes"])],
    )
    rows = data.split.records if data else None
    if sweep:
        _sweep(asked, rows=rows, price=given["price"], as_json=as_json)
    elif lengths and data:
        _lengths(asked[0], data, as_json=as_json)
    else:
        if given["save"]:
            _save(asked[0], run=given["save"])
        options = {name: given[name] for name in ("price", "quick", "largest", "exact")}
        _plan.print_one(asked[0], rows=rows, **options, as_json=as_json)


def _save(question: Any, *, run: str) -> None:
    """Keep the step's executable for a run, and say where it is."""
    from t5prep.plan.question import ask

    compiled = ask(question, save=run).compiled
    versions = ", ".join(f"{name} {version}" for name, version in compiled.versions.items())
    _output.say(
        f"The executable is {compiled.saved} ({versions}): a start with the same versions takes it."
        if compiled.saved
        else "Nothing is saved: the step does not fit, or the place cannot be written."
    )


def _sweep(asked: Any, *, rows: int | None, price: float | None, as_json: bool) -> None:
    from t5prep.plan import report
    from t5prep.plan.question import ask, check

    for question in asked:
        check(question)  # check all questions before the first one takes minutes
    answers = []
    for question in asked:
        _output.say(f"Compiling for {question.tpu.name}, batch {question.settings.batch}.")
        answers.append(ask(question))
    if as_json:
        _output.print_json({"answers": [report.as_json(answer) for answer in answers]})
    else:
        click.echo("\n".join(report.table(answers, rows=rows, price=price)))


def _lengths(question: Any, data: Any, *, as_json: bool) -> None:
    from t5prep.plan import planner, report

    choices = planner.plan_lengths(question, data)
    if as_json:
        _output.print_json({"choices": [report.choice_json(choice, answers) for choice, answers in choices]})
        return
    click.echo("\n".join(report.choice_lines(choices)))
