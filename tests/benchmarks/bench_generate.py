"""Greedy generation against PyTorch's `transformers` on this machine's CPU: T5-small's shape, random weights, float32.

    python -m tests.benchmarks.bench_generate

Every answer has all its tokens on both sides (EOS is forbidden before the last), so both do the same work. The sides take
turns, each in a process of its own, and the best call of each counts; what is compiled is not timed. On a machine that does
other work too, compare the processors' seconds, with one processor for both sides: `taskset -c 0 python -m …`.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.processor_time import Line, Seconds, show

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


def lines(*, rows: int = 32, inputs: int = 64, tokens: int = 64, rounds: int = 1) -> Iterator[Line]:
    """Yield one line: the best calls of some processes on each side."""
    from t5prep.train.model.architecture import ModelConfig
    from t5prep.train.model.weights import random_weights, save_weights

    shape = ModelConfig(
        vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_decoder_layers=6, num_heads=8
    )
    with tempfile.TemporaryDirectory() as place:
        save_weights(Path(place), shape, random_weights(shape, seed=0))
        Path(place, "config.json").write_text(json.dumps(shape.to_json()))
        sizes = [place, *map(str, (rows, inputs, tokens, CALLS))]
        sides = ([sys.executable, "-m", __spec__.name, *sizes], [sys.executable, "-c", THEIRS, *sizes])
        took = [tuple(_said(command) for command in sides) for _ in range(rounds)]
    yield Line(f"{rows} greedy answers of {tokens} tokens, T5-small", "transformers on PyTorch", took)


def _said(command: list[str]) -> Seconds:
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return Seconds(*json.loads(ran.stdout.splitlines()[-1]))


if __name__ == "__main__":
    if len(sys.argv) > 1:  # this process is one of the sides
        print(json.dumps(ours(sys.argv[1], *map(int, sys.argv[2:]))))
    else:
        show(lines(rounds=2))
