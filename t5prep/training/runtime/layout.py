"""Arrange devices as replicas of the model, each split over some devices, as a mesh of jax.

Every step divides a batch by rows, one part for each replica. The table `SPLIT` defines how weights are split in a replica.
"""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from t5prep.errors import UsageError
from t5prep.training.model.architecture import Config
from t5prep.training.model.lora import A, B, variable_layouts
from t5prep.training.model.weight_layout import WeightLayout

ROWS, PARTS = "data", "shard"  # the mesh's axes

# Variable → its dimension (`split_sizes`) and axis that are split over the devices of a replica. Like Megatron-LM (Shoeybi et
# al. 2019, section 3), embeddings are split by vocabulary, attention by heads, and feed-forward by its width. Other variables
# are small (scales of norms), and complete on every device.
SPLIT = {
    "shared": ("vocabulary", 0),
    "lm_head": ("vocabulary", 0),
    "relative_bias": ("heads", 1),  # [buckets, heads]
    "q": ("heads", 2),  # [layers, d_model, heads * d_kv]
    "kv": ("heads", 3),  # [layers, 2, d_model, heads * d_kv]
    "cross_q": ("heads", 2),
    "cross_kv": ("heads", 3),
    "out": ("heads", 2),  # [layers, 1 or 2, heads * d_kv, d_model]
    "wi": ("width", 3),  # [layers, 1 or 2, d_model, d_ff]
    "wo": ("width", 1),  # [layers, d_ff, d_model]
    # Of encoders with a classification head (model/weight_layout.py)
    "word": ("vocabulary", 0),
    **dict.fromkeys(("query", "key", "value"), ("heads", 1)),  # [d_model, d_model]
    "attended": ("heads", 0),
    **dict.fromkeys(("wide", "gate"), ("width", 1)),  # [d_model, d_ff]
    "narrow": ("width", 0),
    "qkv_bias": ("heads", 2),  # [layers, 3, d_model]
    "wide_bias": ("width", 1),  # [layers, d_ff]
}
# Matrices whose first axis is split. Of their adapters A is split, of the adapters of other matrices B.
SPLIT_BY_INPUT = frozenset({"out", "wo", "attended", "narrow"})
# Optimizer slot → the axis of its weight that it lacks (`optimizer.Adafactor.slot_shapes`).
MISSING_AXIS = {"rows": -1, "columns": -2}


@dataclasses.dataclass(frozen=True)
class Layout:
    """An arrangement of devices in `replicas` groups of `shard` devices; each group holds the weights once."""

    mesh: Mesh

    @property
    def replicas(self) -> int:
        """Return the number of parts that a batch is divided into."""
        return int(self.mesh.shape[ROWS])

    @property
    def shard(self) -> int:
        """Return the number of devices that the weights are split over."""
        return int(self.mesh.shape[PARTS])

    @property
    def devices(self) -> list[jax.Device]:
        """Return all devices, replica by replica."""
        return list(self.mesh.devices.flat)

    @property
    def platform(self) -> str:
        """Return the platform that programs are made for: "tpu", "cpu" or "cuda"."""
        name = str(self.devices[0].platform)
        return "cuda" if name == "gpu" else name

    @property
    def words(self) -> str:
        """Return the layout for messages, such as "4 replicas of 2 devices each"."""
        copies = f"{self.replicas} replica{'s' if self.replicas > 1 else ''}"
        return copies if self.shard == 1 else f"{copies} of {self.shard} devices each"

    @property
    def device_words(self) -> str:
        """Return the number and kind of the devices for messages, such as "8 × TPU v5 lite"."""
        return f"{len(self.devices)} × {self.devices[0].device_kind}"

    @property
    def everywhere(self) -> NamedSharding:
        """Return the sharding of an array that is complete on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def by_rows(self) -> NamedSharding:
        """Return the sharding of a batch: each replica's rows, in order."""
        return NamedSharding(self.mesh, PartitionSpec(ROWS))

    @property
    def row_reader(self) -> tuple[int, int]:
        """Return the number of the part of each batch that this process reads, and the number of parts: `(host, hosts)`.

        Processes that share a replica read the same rows. Raises UsageError if replicas cannot be divided among the processes.
        """
        process_index = jax.process_index()
        groups = [
            number
            for number, group in enumerate(self.mesh.devices)
            if any(d.process_index == process_index for d in group)
        ]
        if (
            not groups
            or self.replicas % len(groups)
            or groups[0] % len(groups)
            or groups[-1] - groups[0] + 1 != len(groups)
        ):
            raise UsageError(
                f"{self.replicas} replicas of {self.shard} devices cannot be divided equally among "
                f"{jax.process_count()} hosts. Choose another value for shard.",
                code="device.indivisible-shard",
            )
        return groups[0] // len(groups), self.replicas // len(groups)

    def weights(self, config: Config) -> dict[str, jax.ShapeDtypeStruct]:
        """Return shape and sharding of every variable of a model, in float32."""
        return {
            name: self._split_along(split_axis(name, config, self.shard), layout.shape)
            for name, layout in variable_layouts(config).items()
        }

    def slots(
        self, config: Config, shapes: Mapping[str, Mapping[str, tuple[int, ...]]]
    ) -> dict[str, dict[str, jax.ShapeDtypeStruct]]:
        """Return shape and sharding of every optimizer slot, split like its weight. `shapes`: by weight, then by slot."""
        layouts = variable_layouts(config)
        return {
            name: {
                slot: self._split_along(slot_axis(slot, layouts[name], split_axis(name, config, self.shard)), shape)
                for slot, shape in slots.items()
            }
            for name, slots in shapes.items()
        }

    def scalar(self, dtype: type[np.generic]) -> jax.ShapeDtypeStruct:
        """Return the spec of a scalar, which every device holds."""
        return jax.ShapeDtypeStruct((), dtype, sharding=self.everywhere)

    def _split_along(self, axis: int | None, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
        names = [PARTS if number == axis else None for number in range(len(shape))]
        spec = PartitionSpec(*names) if axis is not None else PartitionSpec()
        return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(self.mesh, spec))


def arrange(devices: list[jax.Device], *, shard: int = 1) -> Layout:
    """Return the layout of `devices` as replicas of `shard` devices each. Raises UsageError if they cannot be divided.

    >>> import jax
    >>> arrange(jax.devices("cpu")[:1]).replicas
    1
    """
    if len(devices) % shard:
        raise UsageError(
            f"shard is {shard}, which does not divide the {len(devices)} devices here. Set shard to a "
            "divisor of that number.",
            code="device.indivisible-shard",
        )
    return Layout(Mesh(np.array(devices).reshape(-1, shard), (ROWS, PARTS)))


def split_axis(name: str, config: Config, shard: int) -> int | None:
    """Return the axis along which the variable `name` is split over `shard` devices; None if it is not split.

    >>> from t5prep.training.model.architecture import ModelConfig
    >>> split_axis("encoder.kv", ModelConfig(), 4), split_axis("encoder.norms", ModelConfig(), 4)
    (3, None)
    >>> split_axis("encoder.kv", ModelConfig(num_heads=6), 4)  # heads are not cut
    >>> split_axis("encoder.kv.lora_a", ModelConfig(), 4), split_axis("encoder.kv.lora_b", ModelConfig(), 4)
    (None, 3)
    """
    matrix = name.removesuffix(A).removesuffix(B)
    dimension, axis = SPLIT.get(matrix.rpartition(".")[2], ("", None))
    # An adapter's A has the inputs of its matrix, and B the outputs, so only the one that has the split axis is split.
    if matrix != name and name.endswith(A) != (matrix.rpartition(".")[2] in SPLIT_BY_INPUT):
        return None
    size = config.split_sizes.get(dimension, 1)
    return axis if shard > 1 and size % shard == 0 else None


def slot_axis(slot: str, layout: WeightLayout, axis: int | None) -> int | None:
    """Return the axis of an optimizer slot that matches the split `axis` of its weight; None if the slot lacks this axis.

    >>> kv = WeightLayout((6, 2, 512, 64), 2, 1.0, ("encoder.kv",))
    >>> slot_axis("rows", kv, 3), slot_axis("columns", kv, 3), slot_axis("squares", kv, 3)
    (None, 2, 3)
    """
    if axis is None or slot not in MISSING_AXIS:
        return axis
    missing = MISSING_AXIS[slot] % len(layout.shape)
    return None if axis == missing else axis - (axis > missing)


def fitting_shard(devices: list[jax.Device], *, weight_bytes: int) -> int:
    """Return the fewest devices (1, 2, 4, …) for a replica with `weight_bytes` of float32 weights; 1 on a CPU.

    Weights may take half of the memory; the rest is for their bfloat16 copies and a program.
    """
    memory: dict[str, int] = devices[0].memory_stats() or {}
    limit, shard = memory.get("bytes_limit"), 1
    while limit and 2 * weight_bytes / shard > limit and len(devices) % (2 * shard) == 0:
        shard *= 2
    return shard
