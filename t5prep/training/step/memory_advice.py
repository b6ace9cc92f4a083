"""Make the error for a step that needs more memory than a device has, with the settings that would make it fit.

The estimate is a simple model of the results of `t5prep plan`. Weights and slots do not depend on the batch. Activations grow
with the number of rows computed at once and with their length; with remat about a quarter of them remains.
"""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator

import jax

from t5prep.errors import T5prepError
from t5prep.io import byte_sizes
from t5prep.training.runtime.layout import Layout
from t5prep.training.runtime.state import Variables
from t5prep.training.settings.train_config import TrainConfig

EXHAUSTED = "RESOURCE_EXHAUSTED"
REMAT_KEEPS = 0.25  # the share of activations that remains with remat (T5-base, 512 tokens, by the TPU compiler)

# Sizes in the messages of compilers and runtimes: the bytes that a program needs, and the bytes that a device has.
_SIZE = r"\(?([\d.]+)\s?([KMGT]?)(?:i?B| ?bytes)?\b"
_NEEDED = tuple(
    re.compile(prefix + _SIZE)
    for prefix in (r"temporaries ", r"[Uu]sed ", r"needs ", r"requires ", r"allocat(?:e|ing) ", r"allocation of ")
)
_AVAILABLE = tuple(re.compile(prefix + _SIZE) for prefix in (r"available HBM ", r" of ", r"limit of "))


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """The memory of one device in a run, in bytes, and the numbers on which it depends."""

    weights: int
    slots: int
    capacity: int  # 0: unknown
    rows: int  # of a batch, for the device's replica
    devices: int  # number of the run's devices
    shard: int  # devices of a replica

    @classmethod
    def by(cls, layout: Layout, variables: Variables, *, batch: int) -> "DeviceMemory":
        """Return the memory of each device of a layout, from the specs of the variables, as float32. batch: over all replicas."""
        weight_bytes, slot_bytes = (
            4 * sum(math.prod(spec.shape) for spec in jax.tree.leaves(specs))
            for specs in (variables.weights, variables.slots)
        )
        try:
            capacity = int((layout.devices[0].memory_stats() or {}).get("bytes_limit", 0))
        except Exception:  # a device that is only described (`plan`), or a runtime without memory statistics
            capacity = 0
        rows = batch // layout.replicas
        return cls(
            weight_bytes // layout.shard, slot_bytes // layout.shard, capacity, rows, len(layout.devices), layout.shard
        )


def sentence(reason: str, config: TrainConfig, device_memory: DeviceMemory) -> str:
    """Return the message: the problem, and the settings that would help. reason: the runtime's message, which has sizes."""
    needed, capacity = _first(_NEEDED, reason), device_memory.capacity or _first(_AVAILABLE, reason)
    state = device_memory.weights + device_memory.slots
    text = "The step does not fit into the memory of a device"
    if needed > capacity > 0:
        text += f": it needs {_gib(needed)}, but the device has {_gib(capacity)}"
    text += f". Weights and optimizer take {_gib(state)}"
    if state >= capacity > 0:
        text += ", which alone is too much"
    ways = _ways(
        config, device_memory, activations=max(needed - state, 0) if needed > capacity else None, capacity=capacity
    )
    advice = "Use larger devices, more devices (with --set shard=auto), or a smaller model."
    if ways:
        advice = f"Try {', or '.join(ways)}."
    return f"{text}. {advice} Check what fits before you pay: t5prep plan ({reason[:160]})"


@contextlib.contextmanager
def explained(config: TrainConfig, device_memory: DeviceMemory) -> Iterator[None]:
    """Raise a T5prepError with the message of `sentence` if the devices run out of memory inside the block."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        reason = " ".join(str(error).split("\n")[0].split())
        if EXHAUSTED not in reason:
            raise
        raise T5prepError(sentence(reason, config, device_memory), code="device.insufficient-memory") from error


def _ways(config: TrainConfig, device_memory: DeviceMemory, *, activations: int | None, capacity: int) -> list[str]:
    """Return the changes that would help, the cheapest first.

    activations: their bytes, None if unknown. capacity: the bytes of a device, 0 if unknown.
    """
    state = device_memory.weights + device_memory.slots
    room = capacity - state if capacity else math.inf

    def fits(share: float, extra_bytes: int = 0) -> bool:
        """Check whether this share of the activations fits, with `extra_bytes`."""
        return room > 0 and (activations is None or activations * share + extra_bytes <= room)

    ways = []
    parts = config.accumulate
    while device_memory.rows % (parts * 2) == 0:
        parts *= 2
        # The sum of the parts' gradients needs the bytes of the weights once more.
        if fits(config.accumulate / parts, extra_bytes=device_memory.weights):
            ways.append(f"--set accumulate={parts}")
            break
    if not config.remat and fits(REMAT_KEEPS):
        ways.append("--set remat=true (a third more work)")
    if shorter := next((part for part in (2, 4, 8) if fits(1 / part)), 0):
        ways.append(f"data prepared with an --input-length of 1/{shorter}")
    if config.optimizer == "adamw":
        ways.append("--set optimizer=adafactor")
    shard = device_memory.shard * 2
    while shard <= device_memory.devices and device_memory.devices % shard == 0:
        if room > 0 or state * device_memory.shard / shard < 0.9 * capacity:
            ways.append(f"--set shard={shard}")
            break
        shard *= 2
    return ways


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int:
    """Return the first size that one of `patterns` finds in `text`, in bytes; 0 if none does."""
    match = next((match for pattern in patterns if (match := pattern.search(text))), None)
    return byte_sizes.of_compiler(match[1], match[2]) if match else 0


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
