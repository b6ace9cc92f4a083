"""Compare a step of T5-base on a GPU with PyTorch's compiled one: bfloat16, AdamW, the same batch of 32 rows of 512 + 64 ids.

    python -m tests.benchmarks.bench_gpu --write FOLDER    # where t5prep is installed; needs no GPU
    python -m tests.benchmarks.bench_gpu FOLDER            # where the GPU is, with jax[cuda12], flatbuffers, safetensors,
                                                           # torch and transformers; neither t5prep nor TensorFlow

The second prints the seconds of a step of each, and the ratio, as JSON: the medians of rounds that take turns. The first
writes the step as `t5prep export --format step` does, and the second runs it by the lines of docs/gpus.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROWS, INPUT, TARGET, STEPS, ROUNDS = 32, 512, 64, 10, 5
SHAPE = {"vocab_size": 32128, "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
PAGE = Path(__file__).parents[2] / "docs" / "gpus.md"


def draw_batch() -> dict[str, np.ndarray]:
    """Return rows without padding."""
    rng = np.random.default_rng(0)
    sizes = {"input_ids": INPUT, "labels": TARGET}
    return {name: rng.integers(2, 32000, (ROWS, size)).astype(np.int32) for name, size in sizes.items()}


def write(folder: Path) -> None:
    """Write the step for one GPU, with random weights."""
    from t5prep.train.model.architecture import ModelConfig
    from t5prep.train.model.weights import random_weights
    from t5prep.train.publish import export_step
    from t5prep.train.settings.config import TrainConfig

    shape = ModelConfig(**SHAPE, num_decoder_layers=SHAPE["num_layers"])
    config = TrainConfig(batch=ROWS, optimizer="adamw", dtype="bfloat16", dropout=0.1)
    lengths = {"input_length": INPUT, "target_length": TARGET}
    step, passed = export_step.programs(shape, config, platform="cuda", devices=1, **lengths)
    weights = random_weights(shape)
    slots = {
        name: {slot: np.zeros(one.shape, np.float32) for slot, one in own.items()}
        for name, own in step.variables.slots.items()
    }
    export_step.write(folder, step, passed, weights, slots, number=0)


def ours(folder: str) -> Callable[[], float]:
    import jax

    scope: dict = {}
    text = PAGE.read_text(encoding="utf-8")
    exec(text[text.index("import json, pathlib") : text.index("\nstep, forward, state")], scope)
    step, _, state, rows = scope["opened"](folder)
    batch, held = jax.device_put(draw_batch(), rows), list(state)

    def run() -> float:
        *held[:], metrics = step(*held, batch, np.float32(1e-4))
        return float(metrics[0])

    return run


def theirs(_: str) -> Callable[[], float]:
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(**SHAPE, num_decoder_layers=SHAPE["num_layers"], decoder_start_token_id=0, dropout_rate=0.1)
    model = T5ForConditionalGeneration(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    batch = {name: torch.tensor(value).long().cuda() for name, value in draw_batch().items()}
    forward = torch.compile(model)
    torch.set_float32_matmul_precision("high")

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--serve", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(Path(options.folder))
    elif options.serve:
        step = {"ours": ours, "theirs": theirs}[options.serve](options.folder)
        for _ in range(3):  # compiling, and its second thoughts
            loss = step()
        for _ in range(ROUNDS):
            print(loss, flush=True)
            sys.stdin.readline()
            begin = time.perf_counter()
            for _ in range(STEPS):
                loss = step()
            print((time.perf_counter() - begin) / STEPS, flush=True)
    else:
        compare(options.folder)


def compare(folder: str) -> None:
    """Take turns: each side waits while the other one works."""
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    sides, taken, losses = {}, {"ours": [], "theirs": []}, {"ours": [], "theirs": []}
    for side in taken:
        command = [sys.executable, __file__, folder, "--serve", side]
        sides[side] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
    for _ in range(ROUNDS):
        for side, process in sides.items():
            losses[side].append(float(process.stdout.readline()))
            process.stdin.write("\n")
            process.stdin.flush()
            taken[side].append(float(process.stdout.readline()))
    seconds = {side: statistics.median(values) for side, values in taken.items()}
    print(json.dumps({"seconds": seconds, "ratio": round(seconds["ours"] / seconds["theirs"], 3), "losses": losses}))


if __name__ == "__main__":
    main()
