"""What do two hosts hold together when they load a model: its float32 weights, in sharded safetensors, and how much more?

    python -m tests.benchmarks.bench_loading [--layers 24] [--folder /tmp/t5-3b] [--shard 8]

T5-3B's shape with random weights; 24 layers are 11 GB of disk and of memory. Two processes of four CPU devices each load
it. Of each process the bench shows the memory before loading and the peak, as the kernel counts them.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np

SHARD_BYTES = 2 << 30
STATUS = Path("/proc/self/status")


def status(key: str) -> int:
    """Return a number of /proc/self/status in bytes: VmRSS, VmHWM."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024


def write_model(folder: Path, *, layers: int) -> None:
    """Write T5-3B's config with so many layers in each stack, and random weights in files of about 2 GiB."""
    from t5prep.train.model.t5_config import ModelConfig
    from t5prep.train.model.weight_layout import t5_layouts
    from t5prep.train.published import safetensors_file

    config = ModelConfig(d_model=1024, d_ff=16384, num_layers=layers, num_decoder_layers=layers, num_heads=32, d_kv=128)
    shapes: dict[str, tuple[int, ...]] = {}
    for layout in t5_layouts(config).values():
        own = layout.shape[layout.stacked_axes :]
        shapes |= dict.fromkeys(layout.tensors, own[::-1] if layout.transposed else own)
    parts: list[dict[str, tuple[int, ...]]] = [{}]
    for name, shape in shapes.items():
        if sum(4 * int(np.prod(one)) for one in parts[-1].values()) > SHARD_BYTES:
            parts.append({})
        parts[-1][name] = shape
    random, index = np.random.default_rng(0), {}
    folder.mkdir(parents=True, exist_ok=True)
    for number, own_shapes in enumerate(parts, 1):
        file = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        index |= dict.fromkeys(own_shapes, file)
        with open(folder / file, "wb") as output:
            safetensors_file.write(
                output, own_shapes, lambda name: 0.02 * random.standard_normal(shapes[name], np.float32)
            )
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "config.json").write_text(json.dumps(config.to_json()))


def load(folder: str, shard: int) -> None:
    """Load the model as one of two processes and print what it took as JSON."""
    from t5prep.train.model.weights import load_weights
    from t5prep.train.runtime import hosts
    from t5prep.train.runtime.devices import open_layout
    from t5prep.train.runtime.state import put_weights

    layout = open_layout(replicas=8 // shard, shard=shard)
    before, since = status("VmRSS"), time.monotonic()
    config, weights = load_weights(folder)
    placed = put_weights(weights, config, layout)
    size = sum(array.nbytes for array in placed.values())
    own = sum(part.data.nbytes for array in placed.values() for part in array.addressable_shards)
    seconds = time.monotonic() - since
    hosts.wait("loaded")
    print(json.dumps({"before": before, "peak": status("VmHWM"), "own": own, "size": size, "seconds": seconds}))
    hosts.leave(failed=False)


@click.command()
@click.option("--layers", default=3, show_default=True, help="Layers of each stack; T5-3B has 24.")
@click.option("--folder", default="", help="Where the model is kept; without it, it is written anew and deleted.")
@click.option("--shard", default=8, show_default=True, help="Devices that hold the weights once, of eight.")
@click.option("--as-host", is_flag=True, hidden=True)
def main(layers: int, folder: str, shard: int, as_host: bool) -> None:
    """Measure the memory of loading T5-3B's shape by two processes of four CPU devices."""
    if as_host:
        load(folder, shard)
        return
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(folder or temporary)
        if not (place / "config.json").exists():
            write_model(place, layers=layers)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [sys.executable, "-m", __spec__.name, "--as-host", "--folder", str(place), f"--shard={shard}"]
        environment = os.environ | {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2"}
        processes = [
            subprocess.Popen(command, env=environment | {"JAX_PROCESS_ID": str(number)}, stdout=subprocess.PIPE)
            for number in range(2)
        ]
        found = [json.loads(one.communicate()[0].splitlines()[-1]) for one in processes]
    size = found[0]["size"]
    for number, one in enumerate(found):
        print(
            f"process {number}: {one['before'] / 1e9:.2f} GB before, {one['peak'] / 1e9:.2f} GB at most, of which its part "
            f"of the weights {one['own'] / 1e9:.2f} GB; {one['seconds']:.0f} s"
        )
    peak, more = sum(one["peak"] for one in found), sum(one["peak"] - one["before"] for one in found)
    print(
        f"{size / 1e9:.2f} GB of weights: together {peak / size:.2f} times as much at most, {more / size:.2f} times "
        "without what the processes held before"
    )


if __name__ == "__main__":
    main()
