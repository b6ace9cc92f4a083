"""From the command to the first step, a step, and the memory of `t5prep train --gpus`, beside PyTorch's compiled step, on one card.

    python -m tests.benchmarks.bench_gpu FOLDER             ten minutes on the card
    python -m tests.benchmarks.bench_gpu FOLDER --data      prepare the datasets alone, on any machine: FOLDER can be carried
    python -m tests.benchmarks.bench_gpu FOLDER --tiny      try all of it on a CPU

T5-base on 32 rows of 512 + 114 tokens and BERT-base on 64 rows of 128, bfloat16, AdamW, dropout 0.1, random weights. Both sides
take turns. Of ours the step is that of the trainer's own loop: batches are read, and the loss is logged. XLA's log stays in
FOLDER/NAME/compiling.log; what it says of tuning and of kernels is printed.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.bench_scale import few_words

LIMIT = {True: 240, False: 1200}  # seconds of one training, on a card and on a CPU
STEPS, ROUNDS = 120, 2


class Case(NamedTuple):
    """What is trained: the model's config.json, the rows of a batch, and their lengths; a model of classes has no targets."""

    config: dict[str, object]
    rows: int
    inputs: int
    targets: int

    @property
    def is_encoder(self) -> bool:
        """Check whether it is a BERT with a head."""
        return self.config["model_type"] == "bert"


def cases(*, tiny: bool) -> dict[str, Case]:
    """Return the cases by name; the tiny ones have the same parts in small."""
    d, heads, layers, rows = (32, 2, 2, 4) if tiny else (768, 12, 12, 32)
    t5 = {
        "vocab_size": 32128,
        "d_model": d,
        "d_kv": d // heads,
        "d_ff": 4 * d,
        "num_layers": layers,
        "num_heads": heads,
    }
    bert = {"hidden_size": d, "intermediate_size": 4 * d, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {
        "t5-base": Case({"model_type": "t5", **t5}, rows, *((32, 16) if tiny else (512, 114))),
        "bert-base": Case({"model_type": "bert", **bert, "vocab_size": 32128}, 2 * rows, 32 if tiny else 128, 1),
    }


def write_data(folder: Path, case: Case) -> None:
    """Prepare rows as long as the case's, and write its config.json, unless they are there."""
    if (folder / "data" / "manifest.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(case.config))
    with open(folder / "rows.jsonl", "w", encoding="ascii") as file:
        for row in range(40 * case.rows):
            words = " ".join(few_words(row + part) for part in range(case.inputs // 4))
            target = f"class{row % 2}" if case.is_encoder else words[: 8 * case.targets]
            file.write(json.dumps({"inputs": words, "targets": target}) + "\n")
    lengths = [f"--input-length={case.inputs}", *([] if case.is_encoder else [f"--target-length={case.targets}"])]
    kind = ["--target=class"] if case.is_encoder else ["--long=cut"]
    columns = ["--inputs-column=inputs", "--targets-column=targets", "--tokenizer=sample:"]
    files = [f"--source={folder / 'rows.jsonl'}", f"--out={folder / 'data'}"]
    subprocess.run([*_command("prepare", "text2text"), *files, *columns, *kind, *lengths], check=True)


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "t5prep.cli", *words]


@contextlib.contextmanager
def watched_memory() -> Iterator[list[int]]:
    """Yield a list whose one number becomes the most MiB that the card had in use; 0 without nvidia-smi."""
    peak_memory, stop_event = [0], threading.Event()
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]

    def watch() -> None:
        while shutil.which("nvidia-smi") and not stop_event.wait(0.5):
            output = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
            peak_memory[0] = max(peak_memory[0], int(output) if output.isdigit() else 0)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak_memory
    finally:
        stop_event.set()
        thread.join()


def train(folder: Path, case: Case, *, number: int, gpu: bool) -> str:
    """Run `t5prep train`, and return in words what it took: to the first step, each, the share of the peak, memory."""
    out, steps = folder / f"run{number}", STEPS if gpu else 6
    shutil.rmtree(out, ignore_errors=True)
    settings = {"weights": "random", "steps": steps, "warmup": 0, "batch": case.rows, "optimizer": "adamw"}
    settings |= {"learning_rate": 1e-4, "dtype": "bfloat16", "dropout": 0.1, "log_every": 1, "eval_every": 10 * STEPS}
    words = [f"--data={folder / 'data'}", f"--model={folder}", f"--out={out}", *(["--gpus"] if gpu else [])]
    modules = (
        "gpu_compiler",
        "config_assigner",
        "config_assigner_pass",
        "autotuner",
        "autotuner_pass",
        "nvptx_compiler",
    )
    environment = os.environ | {
        "T5PREP_CACHE": str(folder / "cache"),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": ",".join(f"{name}=1" for name in modules),
    }
    command = [*_command("train"), *words, *(f"--set={name}={value}" for name, value in settings.items())]
    since, first = time.monotonic(), 0.0
    with watched_memory() as memory, open(folder / "compiling.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        ends = []
        while process.poll() is None and time.monotonic() - since < LIMIT[gpu]:
            time.sleep(0.02)
            logged_steps = _lines(out, "loss")
            ends += [time.monotonic()] * (logged_steps - len(ends))
            first = first or (ends[0] - since if ends else 0.0)
        process.kill()
    log_text = (folder / "compiling.log").read_text(errors="replace")
    if process.returncode or not ends:
        return f"failed after {time.monotonic() - since:.0f} s: " + " ".join(log_text.splitlines()[-2:])[-300:]
    later = ends[len(ends) // 3 :]
    step_seconds = (later[-1] - later[0]) / max(len(later) - 1, 1)
    peak = re.findall(r"(\d+% of the matrix peak)", log_text)
    return (
        f"first step after {first:.1f} s, then {1e3 * step_seconds:.1f} ms each{', ' + peak[-1] if peak else ''}, "
        f"{memory[0] / 1024:.1f} GiB; {compiling_of(log_text)}"
    )


def _lines(out: Path, name: str) -> int:
    """Return how many lines of a run's metrics have a value of that name."""
    try:
        return (out / "metrics.jsonl").read_text().count(f'"{name}"')
    except FileNotFoundError:
        return 0


def compiling_of(log: str) -> str:
    """Return in words what XLA's log says of the train step: what was tuned, how long passes took, and how many kernels.

    >>> compiling_of("Finding configs for 19 unique instructions.\\nPtxToCubin for jit_train_step time: 9 ms (...#called: 7)")
    'tuned: 19; kernels: 7'
    """
    tuned = re.findall(r"Finding configs for (\d+) unique", log)
    times = dict(
        re.findall(r"(ConfigAssignerPass|AutotunerPass|RunHloPasses|RunBackend)[^\n]*? time: ([\d.]+ \w+)", log)
    )
    kernels = re.findall(r"PtxToCubin for jit_train_step [^\n]*#called: (\d+)", log)
    parts = [f"tuned: {' + '.join(tuned)}"] if tuned else []
    parts += [f"{name} {duration}" for name, duration in times.items()]
    parts += [f"kernels: {kernels[-1]}"] if kernels else []
    return "; ".join(parts) or "nothing compiled"


def torch_step(case: Case, *, gpu: bool) -> str:
    """Return in words what PyTorch's compiled step takes."""
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

    kind = AutoModelForSequenceClassification if case.is_encoder else AutoModelForSeq2SeqLM
    config = AutoConfig.for_model(**case.config, **({} if case.is_encoder else {"decoder_start_token_id": 0}))
    device = "cuda" if gpu else "cpu"
    since = time.monotonic()
    model = kind.from_config(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=gpu)
    ids = torch.randint(2, 32000, (case.rows, case.inputs), device=device)
    labels = torch.randint(2, (case.rows,), device=device)
    if not case.is_encoder:
        labels = torch.randint(2, 32000, (case.rows, case.targets), device=device)
    torch.set_float32_matmul_precision("high")
    compiled = torch.compile(model) if gpu else model

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            loss = compiled(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    step().item()
    first = time.monotonic() - since
    for _ in range(2):
        step().item()
    durations = []
    for _ in range(5):
        start_time = time.perf_counter()
        for _ in range(10 if gpu else 1):
            loss = step()
        loss.item()
        durations.append((time.perf_counter() - start_time) / (10 if gpu else 1))
    memory = torch.cuda.max_memory_allocated() / 2**30 if gpu else 0.0
    return f"first step after {first:.1f} s, then {1e3 * statistics.median(durations):.1f} ms each, {memory:.1f} GiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--torch", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen, gpu = cases(tiny=arguments.tiny), not arguments.tiny
    if arguments.torch:
        print(torch_step(chosen[arguments.torch], gpu=gpu))
        return
    for name, case in chosen.items():
        write_data(arguments.folder / name, case)
    if arguments.data:
        return
    for number in range(ROUNDS):  # the second time the program is kept
        for name, case in chosen.items():
            print(f"{name}, t5prep: {train(arguments.folder / name, case, number=number, gpu=gpu)}", flush=True)
            torch_command = [sys.executable, "-m", __spec__.name, str(arguments.folder), f"--torch={name}"]
            result = subprocess.run(
                [*torch_command, *(["--tiny"] if arguments.tiny else [])], capture_output=True, text=True, check=False
            )
            last = (result.stdout or result.stderr).strip().splitlines() or ["nothing said"]
            print(f"{name}, PyTorch: {last[-1]}", flush=True)


if __name__ == "__main__":
    main()
