"""The training step against those of transformers 4.57, all compiled by one TPU compiler for one chip: a table.

    python -m tests.benchmarks.bench_tpu [--models t5-base] [--chip v5e] [--peers flax tf] [--remat] [--write]
    python -m tests.benchmarks.bench_tpu --models bert-base-uncased --lengths 128 1

Each peer is lowered in an environment of its own, made once under the cache; the rows, lengths, precision (bfloat16),
optimizer (Adafactor; AdamW for a BERT) and dropout (0.1) are the same for all. Cycles are the compiler's own estimate: they compare
programs on one compiler, and are no measurement. Minutes for each line on a few cores; answers are kept by content.
--write puts the table where docs/speed.md has it.
"""

import argparse
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf

from t5prep.io import cache_folder
from t5prep.plan import compiled
from t5prep.plan.chips import GIB, Chip, parse
from t5prep.plan.compiled import Compiled, compile_module
from t5prep.plan.models import MODELS
from t5prep.plan.question import Question, ask
from t5prep.train.model.architecture import EncoderConfig
from t5prep.train.settings.config import TrainConfig

PAGE = Path(__file__).parents[2] / "docs" / "speed.md"
# What stands around the tables in the page: of T5s, and of BERTs.
BEGINS, END = ("<!-- printed by make bench-tpu -->\n", "<!-- printed by bench_tpu of a BERT -->\n"), "<!-- end -->\n"
COLUMNS = ("model", "program", "state", "temporaries", "peak HBM", "FLOP", "estimated cycles", "to ours")
PEERS = {
    "flax": ("transformers 4.57 Flax + optax Adafactor", ["transformers==4.57.*", "jax==0.6.2", "flax==0.10.6", "optax==0.2.5"]),
    "tf": ("transformers 4.57 TF + tf-keras Adafactor", ["transformers==4.57.*", "tensorflow==2.19.*", "tf-keras==2.19.*"]),
}  # fmt: skip


def encoder(model: str) -> bool:
    return isinstance(MODELS[model], EncoderConfig)


def ours(model: str, *, chip: str, rows: int, lengths: tuple[int, int], remat: bool) -> Compiled:
    config = TrainConfig(
        model=model, batch=rows, dropout=0.1, remat=remat, optimizer="adamw" if encoder(model) else "adafactor"
    )
    answer = ask(Question(MODELS[model], config, parse(chip), *lengths))
    return dataclasses.replace(answer.compiled, flops=answer.flops)  # the compiler counts what is in a loop once


def peer(name: str, model: str, *, chip: Chip, rows: int, lengths: tuple[int, int]) -> Compiled:
    python = _environment(name)
    with tempfile.TemporaryDirectory() as folder:
        shape, out = Path(folder) / "config.json", Path(folder) / "module.pb"
        shape.write_text(json.dumps({**MODELS[model].to_json(), "tie_word_embeddings": True}))
        script = Path(__file__).with_name(f"peer_{name}{'_bert' * encoder(model)}.py")
        arguments = [str(shape), str(out), str(rows), *map(str, lengths)]
        subprocess.run([python, script, *arguments], check=True, stdout=sys.stderr)
        return compile_module(out.read_bytes(), chip=chip)


def _environment(name: str) -> Path:
    """A virtual environment with a peer's packages, made once."""
    home = cache_folder.root() / "plan" / "peers" / name
    python = home / "bin" / "python"
    if not (home / "whole").exists():
        print(f"installing the packages of {name} into {home} (once) ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS[name][1]], check=True)
        (home / "whole").touch()
    return python


def row(model: str, program: str, said: Compiled, *, ours: Compiled) -> str:
    """One line of the table; the last column is how many times the cycles of ours it takes."""
    figures = ["", "", f"does not fit: {said.hbm_bytes / GIB:.2f} GiB", "", "", ""]
    if said.fits:
        times = f"{said.estimated_cycles / ours.estimated_cycles:.2f}" if ours.fits else ""
        figures = [f"{number / GIB:.2f} GiB" for number in (said.argument_bytes, said.temp_bytes, said.hbm_bytes)]
        figures += [f"{said.flops / 1e9:,.0f} G", f"{said.estimated_cycles / 1e6:.1f} M", times]
    return f"| {' | '.join((model, program, *figures))} |"


def heading(*, chip: str, rows: int, lengths: tuple[int, int], optimizer: str) -> list[str]:
    """What was compiled by what, when; and the head of the table."""
    versions = {**compiled.versions(), "tensorflow": tf.__version__}
    return [
        f"One {chip} device, {rows} x {lengths[0]} inputs, {rows} x {lengths[1]} targets, bfloat16, {optimizer}, dropout 0.1. "
        "Cycles are the compiler's",
        f"estimate, not a measurement. {', '.join(f'{name} {one}' for name, one in versions.items())}; {datetime.date.today()}.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["t5-small", "t5-base", "t5-large"], choices=MODELS)
    parser.add_argument("--chip", default="v5e")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--lengths", type=int, nargs=2, default=(512, 64))
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--remat", action="store_true", help="ours with remat too")
    parser.add_argument("--write", action="store_true", help="into docs/speed.md")
    given = parser.parse_args()
    chip, lengths = parse(given.chip).chip, (given.lengths[0], given.lengths[1])
    of_encoders = {encoder(model) for model in given.models}
    if len(of_encoders) > 1:
        parser.error("T5s and BERTs have different lengths and optimizers: ask for one kind")
    kind = of_encoders.pop()
    optimizer = "AdamW" if kind else "Adafactor"
    printed = heading(chip=chip.name, rows=given.rows, lengths=lengths, optimizer=optimizer)
    print("\n".join(printed), flush=True)

    def show(*told: str) -> None:
        printed.extend(told)
        print(*told, sep="\n", flush=True)

    for model in given.models:
        own = ours(model, chip=given.chip, rows=given.rows, lengths=lengths, remat=False)
        for name in given.peers:
            said = peer(name, model, chip=chip, rows=given.rows, lengths=lengths)
            show(row(model, PEERS[name][0].replace("Adafactor", optimizer), said, ours=own))
        show(row(model, "t5prep", own, ours=own))
        if given.remat:
            said = ours(model, chip=given.chip, rows=given.rows, lengths=lengths, remat=True)
            show(row(model, "t5prep, remat", said, ours=own))
    if given.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGINS[kind])
        after = rest.partition(END)[2]
        PAGE.write_text(before + BEGINS[kind] + "\n".join(printed) + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
