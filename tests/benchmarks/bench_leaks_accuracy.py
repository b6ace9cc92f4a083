"""How much of a validation score is leaks: the tiny recipe on --dedup none, exact and near, the same steps for each.

Each run is scored on its own validation rows; SST-2 also on its dev sentences, of which no row of training knows anything.
PYTHONPATH=. python tests/benchmarks/bench_leaks_accuracy.py ../shared/data
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_leaks import SPLITS, corpora

import t5prep

# Steps of 32 rows, and tokens of an input: what a laptop does in minutes.
STEPS = {"Stack Overflow": 60, "SST-2": 300}
LENGTHS = {"Stack Overflow": 64, "SST-2": 32}
SEEDS = {"Stack Overflow": (0,), "SST-2": (0,)}


def scores(name: str, how: dict[str, Any], dedup: str, folder: Path, *, dev: Path) -> tuple[list[float], list[float]]:
    """Return the accuracy on validation, and that on SST-2's dev sentences, of a run for each seed."""
    data, own, outside = str(folder / "data"), [], []
    t5prep.prepare(
        tokenizer="sample:", out=data, dedup=dedup, input_length=LENGTHS[name], workers=0, splits=SPLITS, **how
    )
    for seed in SEEDS[name]:
        run = str(folder / f"run-{seed}")
        settings = {"steps": STEPS[name], "eval_every": STEPS[name], "seed": seed}
        result = t5prep.train(data=data, out=run, recipe="tiny", settings=settings)
        assert result.evaluation is not None
        own.append(result.evaluation.metrics["accuracy"])
        if how["task"] == "sst2":
            outside.append(t5prep.evaluate(run, data=str(dev), split="validation").metrics["accuracy"])
    return own, outside


def mean(values: list[float]) -> str:
    """Return the mean and the range of some shares in percent."""
    if not values:
        return "–"
    return f"{sum(values) / len(values):.1%} ({min(values):.1%}–{max(values):.1%})"


def main(data: Path, names: list[str]) -> None:
    """Print a line for each corpus and choice."""
    print("| corpus | `--dedup` | accuracy on validation | on sentences from elsewhere |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        dev = Path(folder) / "dev"
        held = {
            "task": "sst2",
            "source": str(data / "sst2" / "dev.tsv"),
            "splits": {"train": 0.001, "validation": 0.999},
        }
        t5prep.prepare(tokenizer="sample:", out=str(dev), input_length=LENGTHS["SST-2"], workers=0, **held)
        for name, (_, how) in corpora(data).items():
            for dedup in ("none", "exact", "near") if name in (names or [name]) else ():
                own, outside = scores(name, how, dedup, Path(folder) / f"{how['task']}-{dedup}", dev=dev)
                print(f"| {name} | {dedup} | {mean(own)} | {mean(outside)} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
