"""Is a run that is killed with -9 again and again the same run? Losses of every step, bit by bit, and on other layouts.

    python -m tests.benchmarks.bench_kills [--kills 20] [--steps 200]

A toy run is made without a disturbance, with dropout; then again, killed so often, half of the times where a checkpoint
was just begun or completed. The losses must be equal. Then without dropout, where every start has another layout (1 device,
2 replicas, 2 parts, 2 replicas of 2 parts): the losses must be within 1e-5.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

LAYOUTS = ((1, 1), (2, 1), (1, 2), (2, 2))  # (replicas, shard)
FIRST_SECONDS = 15.0  # a start takes some seconds until its first step; kills fall into these and later ones


def command(data: str, shape: str, out: Path, *, steps: int, dropout: float, layout: tuple[int, int]) -> list[str]:
    """Return the command of a run. `shard` splits the two heads and the vocabulary of the toy model."""
    values = {
        **{"weights": "random", "batch": 8, "steps": steps, "learning_rate": 0.01, "eval_every": 10, "save_every": 2},
        **{"log_every": 1, "tensorboard": "false", "dropout": dropout, "shard": layout[1]},
    }
    typed = ["train", "--data", data, "--model", shape, "--out", str(out), "--replicas", str(layout[0])]
    return [sys.executable, "-m", "t5prep.cli", *typed, *(f"--set={key}={value}" for key, value in values.items())]


def newest(out: Path) -> str:
    """Return the newest checkpoint's folder name, complete or not."""
    return max((path.name for path in (out / "checkpoints").glob("*")), default="")


def disturbed(commands: list[list[str]], out: Path, *, kills: int, moments: random.Random) -> dict[int, float]:
    """Return the losses of a run that was killed so often, by the commands in turn. Prints when each kill fell."""
    import training

    killed = 0
    while killed < kills:
        process = subprocess.Popen(commands[killed % len(commands)], stderr=subprocess.DEVNULL)
        before, since = newest(out), time.monotonic()
        if killed % 2:  # wait for a checkpoint to begin
            while newest(out) == before and process.poll() is None:
                time.sleep(0.005)
            time.sleep(moments.uniform(0, 0.1))
        else:
            wait = moments.uniform(0, FIRST_SECONDS)
            while time.monotonic() < since + wait and process.poll() is None:
                time.sleep(0.01)
        if process.poll() is not None:  # it was complete before
            raise SystemExit(f"The run ended after {killed} kills: give more --steps.")
        process.kill()
        process.wait()
        killed += 1
        print(f"kill {killed}: after {time.monotonic() - since:.2f} s, checkpoint {newest(out) or 'none'}", flush=True)
    subprocess.run(commands[killed % len(commands)], check=True, stderr=subprocess.DEVNULL)
    return training.losses(out)


@click.command()
@click.option("--kills", default=20, show_default=True)
@click.option("--steps", default=200, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the moments.")
def main(kills: int, steps: int, seed: int) -> None:
    """Kill a run at random moments and compare its losses."""
    import training

    with tempfile.TemporaryDirectory() as folder:
        place, moments = Path(folder), random.Random(seed)
        data, shape = training.classes(place / "classes"), training.shape(place / "shape")
        result: dict[str, object] = {"kills": kills, "steps": steps}
        for dropout, layouts in ((0.1, LAYOUTS[:1]), (0.0, LAYOUTS)):
            alone, often = place / f"alone-{dropout}", place / f"killed-{dropout}"
            subprocess.run(
                command(data, shape, alone, steps=steps, dropout=dropout, layout=(1, 1)),
                check=True,
                stderr=subprocess.DEVNULL,
            )
            commands = [command(data, shape, often, steps=steps, dropout=dropout, layout=one) for one in layouts]
            expected, found = training.losses(alone), disturbed(commands, often, kills=kills, moments=moments)
            assert expected.keys() == found.keys() == set(range(1, steps + 1))
            apart = max(abs(expected[step] - found[step]) for step in expected)
            result["same layout, largest difference" if len(layouts) == 1 else "other layouts"] = apart
            print(json.dumps(result), flush=True)
        if result["same layout, largest difference"] != 0 or result["other layouts"] > 1e-5:  # type: ignore[operator]
            raise SystemExit(1)


if __name__ == "__main__":
    main()
