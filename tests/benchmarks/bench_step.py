"""One CPU training step of t5prep against PyTorch's and against TensorFlow's own XLA, on the same batch, as ratios.

    python -m tests.benchmarks.bench_step [--rounds 5] [--steps 4]

Both train T5 1.0 (d_model 256, 4 + 4 layers, 4 heads, 8,192 pieces) on 8 rows of 128 input and 32 target tokens, in
float32, dropout on, with AdamW. Each side is a process of its own with all cores, and they take turns, so that a busy
machine slows both alike. Ratios are of medians, of wall-clock and of processor seconds: below 1.0, t5prep is faster.
PyTorch's threads wait passively: on a busy machine spinning costs it several times its own work, and takes a core from the
other side's turn. Alone on two idle cores, spinning makes its step about a fifth shorter.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

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
    from t5prep.train.model.architecture import ModelConfig
    from t5prep.train.model.weights import random_weights
    from t5prep.train.runtime.compiling import compile_now
    from t5prep.train.runtime.devices import open_layout
    from t5prep.train.runtime.programs import step_program
    from t5prep.train.runtime.state import Variables, copies_of, put_rows, put_weights, step_zero, zero_slots
    from t5prep.train.settings.config import TrainConfig

    shape, layout = ModelConfig.from_json({"model_type": "t5", **SHAPE}), open_layout()
    config = TrainConfig(batch=ROWS, optimizer="adamw", dropout=0.1, z_loss=0.0)
    made = step_program(shape, config, layout=layout, input_length=INPUT_LENGTH, target_length=TARGET_LENGTH)
    step = compile_now(made.program)
    batch = put_rows({name: ids for name, ids in draw_batch().items() if name != "attention_mask"}, layout)
    weights = put_weights(random_weights(shape), shape, layout)
    slots, copies = zero_slots(made.slot_shapes, shape, layout), copies_of(weights, made.copies)
    state = [Variables(weights, slots, step_zero(layout), copies)]

    def run() -> float:
        *variables, metrics = step(*state[0], batch, np.float32(1e-4))
        state[0] = Variables(*variables)
        return float(np.asarray(metrics)[0])

    return run


def xla_step():
    """The same two halves in one program of TensorFlow's own XLA: what the runtime is compared with."""
    import tensorflow as tf

    from t5prep.train.model.architecture import ModelConfig
    from t5prep.train.model.weight_layout import weight_layouts
    from t5prep.train.model.weights import create_variables, random_weights
    from t5prep.train.step.optimizer import AdamW
    from t5prep.train.step.step import StepOptions, TrainStep

    shape = ModelConfig.from_json({"model_type": "t5", **SHAPE})
    step = TrainStep(shape, AdamW(), StepOptions())
    weights = create_variables(random_weights(shape))
    sizes = {name: AdamW().slot_shapes(layout) for name, layout in weight_layouts(shape).items()}
    slots = {name: {slot: tf.Variable(tf.zeros(size)) for slot, size in own.items()} for name, own in sizes.items()}
    made, batch = tf.Variable(0), {name: tf.constant(value) for name, value in draw_batch().items()}

    @tf.function(jit_compile=True, autograph=False)
    def run():
        number = tf.convert_to_tensor(made)
        now = {name: tf.convert_to_tensor(one) for name, one in weights.items()}
        gradients, sums = step.gradients(now, batch, number)
        kept = {name: {slot: tf.convert_to_tensor(one) for slot, one in own.items()} for name, own in slots.items()}
        after, kept, metrics = step.update(now, kept, gradients, sums, number, tf.constant(1e-4))
        for name, one in weights.items():
            one.assign(after[name])
            for slot, own in slots[name].items():
                own.assign(kept[name][slot])
        made.assign_add(1)
        return metrics["loss"]

    return lambda: float(run())


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
    """Answer each line on stdin, a number of steps, with the wall-clock and processor seconds that they took."""
    step = {"t5prep": tensorflow_step, "xla": xla_step, "torch": torch_step}[side]()
    step()
    print("ready", flush=True)
    for line in sys.stdin:
        begin, worked = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            step()
        print(time.perf_counter() - begin, time.process_time() - worked, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--serve", choices=["t5prep", "xla", "torch"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")):
        print("bench_step: PyTorch is not here to compare with. pip install torch transformers")
        return
    sides = {}
    for side in ("t5prep", "xla", "torch"):
        command = [sys.executable, __file__, "--serve", side]
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        sides[side] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        while sides[side].stdout.readline() not in ("ready\n", ""):
            pass
    taken = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side, process in sides.items():
            process.stdin.write(f"{options.steps}\n")
            process.stdin.flush()
            taken[side].append([float(number) / options.steps for number in process.stdout.readline().split()])
    for process in sides.values():
        process.stdin.close()
        process.wait()
    wall, worked = ({side: statistics.median(pair[i] for pair in taken[side]) for side in sides} for i in (0, 1))
    result = {f"{side}_seconds_per_step": round(value, 4) for side, value in wall.items()}
    result |= {f"{side}_cpu_seconds_per_step": round(value, 4) for side, value in worked.items()}
    result["ratio_to_xla"] = round(wall["t5prep"] / wall["xla"], 3)
    result["cpu_ratio_to_xla"] = round(worked["t5prep"] / worked["xla"], 3)
    result["ratio"] = round(wall["t5prep"] / wall["torch"], 3)
    result["cpu_ratio"] = round(worked["t5prep"] / worked["torch"], 3)
    print(json.dumps(result))
    print(
        f"For one training step t5prep takes {result['ratio']:.2f} of the time that PyTorch's transformers takes"
        f" ({result['cpu_ratio']:.2f} of its processor time), and {result['ratio_to_xla']:.2f} of the time of TensorFlow's own XLA;"
        " below 1, t5prep is faster."
    )


if __name__ == "__main__":
    main()
