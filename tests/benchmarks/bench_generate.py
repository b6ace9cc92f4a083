"""Greedy generation against PyTorch's `transformers` on this machine's CPU: T5-small's shape, random weights, float32.

    python -m tests.benchmarks.bench_generate [--rows 32] [--tokens 64] [--rounds 2]

Every answer has all its tokens on both sides (EOS is forbidden before the last), so both do the same work. The sides take
turns, each in a process of its own, and the best call of each counts; what is compiled is not timed. On a machine that does
other work too, compare the processors' seconds, with one processor for both sides: `taskset -c 0 python -m …`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CALLS = 3  # timed ones in each process, after one that is not

THEIRS = """
import json, sys, time
import torch
from transformers import T5ForConditionalGeneration
place, rows, inputs, tokens, calls = sys.argv[1], *map(int, sys.argv[2:])
model = T5ForConditionalGeneration.from_pretrained(place).eval()
ids = torch.arange(rows * inputs).reshape(rows, inputs) % 30000 + 3
seconds = []
for _ in range(calls + 1):
    began = time.perf_counter(), time.process_time()
    with torch.no_grad():
        said = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens - 1
        )
    seconds.append((time.perf_counter() - began[0], time.process_time() - began[1]))
assert said.shape[1] == tokens + 1
print(json.dumps([min(column) for column in zip(*seconds[1:])]))
"""  # fmt: skip


def ours(place: str, rows: int, inputs: int, tokens: int, calls: int) -> list[float]:
    """Return the seconds of the best call of our search: of the clock, and of the processors."""
    import numpy as np

    from t5prep.tokens import loading
    from t5prep.train.model.generation import Generation
    from t5prep.train.predict.device import Device
    from t5prep.train.run import run

    opened = run.open_model(place)
    generation = Generation(max_length=tokens, min_length=tokens)
    device = Device(opened, generation=generation, rows=rows, tokenizer=loading.load("sample:"))
    ids = list(np.arange(rows * inputs, dtype=np.int32).reshape(rows, inputs) % 30000 + 3)
    seconds = []
    for _ in range(calls + 1):
        began = time.perf_counter(), time.process_time()
        said, _ = device(ids, inputs)
        seconds.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    assert said.shape == (rows, 1, tokens)
    return [min(column) for column in zip(*seconds[1:], strict=True)]


def main() -> None:
    """Print the seconds of both sides, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 32), ("inputs", 64), ("tokens", 64), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ours", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = (given.rows, given.inputs, given.tokens, CALLS)
    if given.ours:
        print(json.dumps(ours(given.ours, *sizes)))
        return
    from t5prep.train.model.architecture import ModelConfig
    from t5prep.train.model.weights import random_weights, save_weights

    shape = ModelConfig(
        vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_decoder_layers=6, num_heads=8
    )
    best = {"ours": [float("inf")] * 2, "transformers": [float("inf")] * 2}
    with tempfile.TemporaryDirectory() as place:
        save_weights(Path(place), shape, random_weights(shape, seed=0))
        Path(place, "config.json").write_text(json.dumps(shape.to_json()))
        own = [sys.executable, "-m", "tests.benchmarks.bench_generate", "--ours", place]
        own += [f"--{name}={size}" for name, size in zip(("rows", "inputs", "tokens"), sizes[:3], strict=True)]
        commands = {"ours": own, "transformers": [sys.executable, "-c", THEIRS, place, *map(str, sizes)]}
        for _ in range(given.rounds):
            for side, command in commands.items():
                ran = subprocess.run(command, capture_output=True, text=True, check=True)
                own_seconds = json.loads(ran.stdout.splitlines()[-1])
                best[side] = [min(pair) for pair in zip(best[side], own_seconds, strict=True)]
    print(f"{given.rows} rows, {given.inputs} -> {given.tokens} tokens, T5-small, greedy, float32, CPU")
    for side, (clock, processors) in best.items():
        speed = given.rows * given.tokens / clock
        print(f"  {side:<14}{clock:8.2f} s  {speed:10,.0f} tokens/s {processors:8.2f} s of the processors")
    clock, processors = (theirs / own for theirs, own in zip(best["transformers"], best["ours"], strict=True))
    print(f"  ours is {clock:.2f} times as fast by the clock, {processors:.2f} times by the processors' time")


if __name__ == "__main__":
    main()
