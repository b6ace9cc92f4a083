"""One CPU training step of t5prep beside PyTorch's, on the same batch, as ratios.

    python -m tests.benchmarks.bench_step

Both train T5 1.0 (d_model 256, 4 + 4 layers, 4 heads, 8,192 pieces) on 8 rows of 128 input and 32 target tokens, in
float32, dropout on, with AdamW. Each side is a process of its own with all cores, and they take turns, so that a busy
machine slows both alike.
PyTorch's threads wait passively: on a busy machine spinning costs it several times its own work, and takes a core from the
other side's turn. Alone on two idle cores, spinning makes its step about a fifth shorter.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

from tests.benchmarks.processor_time import Line, Seconds, of_call, show

SHAPE = {"vocab_size": 8192, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 4}
ROWS, INPUT_LENGTH, TARGET_LENGTH = 8, 128, 32


def draw_batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "input_ids": rng.integers(2, SHAPE["vocab_size"], (ROWS, INPUT_LENGTH)).astype(np.int32),
        "attention_mask": np.ones((ROWS, INPUT_LENGTH), np.int32),
        "labels": rng.integers(2, SHAPE["vocab_size"], (ROWS, TARGET_LENGTH)).astype(np.int32),
    }


def tensorflow_step():
    from t5prep.training.model.architecture import ModelConfig
    from t5prep.training.model.weights import random_weights
    from t5prep.training.runtime.compiling import compile_now
    from t5prep.training.runtime.devices import open_layout
    from t5prep.training.runtime.programs import step_program
    from t5prep.training.runtime.state import Variables, begin, put_rows
    from t5prep.training.settings.train_config import TrainConfig

    shape, layout = ModelConfig.from_json({"model_type": "t5", **SHAPE}), open_layout()
    config = TrainConfig(batch=ROWS, optimizer="adamw", dropout=0.1, z_loss=0.0)
    training_program = step_program(
        shape, config, layout=layout, input_length=INPUT_LENGTH, target_length=TARGET_LENGTH
    )
    step = compile_now(training_program.program)
    batch = put_rows({name: ids for name, ids in draw_batch().items() if name != "attention_mask"}, layout)
    state = [begin(random_weights(shape), training_program.variables)]

    def run() -> float:
        *variables, metrics = step(*state[0], batch, np.float32(1e-4))
        state[0] = Variables(*variables)
        return float(np.asarray(metrics)[0])

    return run


def torch_step():
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(**SHAPE, decoder_start_token_id=0)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    batch = {name: torch.tensor(value).long() for name, value in draw_batch().items()}

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return run


def serve(side: str) -> None:
    """Answer each line on stdin, a number of steps, with the seconds that one of them took."""
    step = {"t5prep": tensorflow_step, "torch": torch_step}[side]()
    step()
    print("ready", flush=True)
    for line in sys.stdin:
        timings = of_call(lambda line=line: [step() for _ in range(int(line))])
        print(*(seconds / int(line) for seconds in timings), flush=True)


def lines(*, rounds: int = 3, steps: int = 4) -> Iterator[Line]:
    """Yield one line: the two sides take turns, each in a process of its own."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_WAIT_POLICY": "PASSIVE"}
    sides = [
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, side],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )
        for side in ("t5prep", "torch")
    ]  # fmt: skip
    for process in sides:
        while process.stdout.readline() not in ("ready\n", ""):
            pass
    timings = [tuple(_request_steps(process, steps) for process in sides) for _ in range(rounds)]
    for process in sides:
        process.stdin.close()
        process.wait()
    yield Line("a training step, T5 of 4 + 4 layers, float32", "transformers on PyTorch", timings)


def _request_steps(process: subprocess.Popen, steps: int) -> Seconds:
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    return Seconds(*map(float, process.stdout.readline().split()))


if __name__ == "__main__":
    serve(sys.argv[1]) if len(sys.argv) > 1 else show(lines())
