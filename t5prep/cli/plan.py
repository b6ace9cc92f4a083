"""Define `t5prep plan`, which tells whether a training fits a TPU."""

import importlib.util
import os
from typing import Any

import click

import t5prep
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
@click.option("--exact", is_flag=True, help="Compile all layers, instead of extending the time of a few.")
@click.option("--quick", is_flag=True, help="No advice where it does not fit.")
@_output.as_json
def command(as_json: bool, sweep: bool, lengths: bool, **given: Any) -> None:
    """Say before it is paid for whether a training fits a TPU, and about how fast it is.

    The training step itself is compiled by Google's TPU compiler, on this machine, which needs no TPU. It plans the memory of
    all layers; a T5's time is extended from a few layers of each kind. It takes minutes; answers are kept. Times are the
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
    from t5prep.train.settings import config as configs

    if lengths and not given["data"]:
        raise errors.UsageError("--lengths plans from a dataset's histogram: say which with --data.")
    tpus, batches = given.pop("tpus"), given.pop("batches")
    if not sweep and (len(tpus) > 1 or len(batches) > 1):
        raise errors.UsageError("Several --tpu or --batch make a table: add --sweep.")
    given["settings"] = configs.read_settings(given.pop("changes"))
    one = {"tpu": tpus[0] if tpus else "v5e-8", "batch": batches[0] if batches else None}
    common = {name: given[name] for name in ("model", "data", "split", "recipe", "settings", "exact")}
    if lengths:
        _lengths(**common, **one, as_json=as_json)
        return
    common |= {name: given[name] for name in ("input_length", "target_length", "packed", "price")}
    if sweep:
        _sweep(**common, tpus=tpus or SWEEP, batches=batches, as_json=as_json)
    else:
        _plan.print_one(
            **common,
            **one,
            largest=given["largest"],
            save=given["save"] or "",
            search=not given["quick"],
            as_json=as_json,
        )


def _sweep(*, as_json: bool, **asked: Any) -> None:
    """Print a table of plans, or their JSON."""
    from t5prep.plan import report

    plans = list(t5prep.plan_sweep(**asked, say=_output.say))
    if as_json:
        _output.print_json({"answers": [plan.to_json() for plan in plans]})
    else:
        click.echo("\n".join(report.table([(plan.answer, plan.epoch) for plan in plans])))


def _lengths(*, as_json: bool, **asked: Any) -> None:
    """Print the ways to lay out a dataset, or their JSON."""
    from t5prep.plan import report

    choices = t5prep.plan_lengths(**asked, say=_output.say)
    if as_json:
        _output.print_json({"choices": [report.choice_json(choice, answers) for choice, answers in choices]})
    else:
        click.echo("\n".join(report.choice_lines(choices)))
