"""Compare one training step on an accelerator with the same step on this machine's CPU: the first check on new hardware."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np

from t5prep.errors import T5prepError, UsageError
from t5prep.training.data import device_feed, open_datasets
from t5prep.training.log import say
from t5prep.training.model.lora import adapter_layouts
from t5prep.training.model.switches import turned_off
from t5prep.training.model.weights import draw
from t5prep.training.published.stored import Array
from t5prep.training.runtime import compiling, hosts
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.layout import Layout, arrange
from t5prep.training.runtime.programs import METRICS
from t5prep.training.runtime.state import Variables, begin
from t5prep.training.settings import checks
from t5prep.training.settings.padding import Padding
from t5prep.training.settings.train_config import TrainConfig
from t5prep.training.step.step import dtype_of
from t5prep.training.trainer import first_weights


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference of one variable after a step on the CPU and on the accelerator.

    `not_finite` counts the accelerator's infinite and NaN values, in the weights and in the optimizer's state. `update` is
    the norm of the change that the CPU makes to the weights. `weights` is the largest difference of a weight. `state` is
    the norm of the difference of the optimizer's states, divided by the norm of the CPU's state. That state depends on the
    gradient alone, so it shows a wrong gradient first.
    """

    name: str
    not_finite: int
    update: float
    weights: float
    state: float


@dataclasses.dataclass(frozen=True)
class StepCheck:
    """One step on the CPU and on the accelerator: device names, metrics of both, and the variables, worst first.

    The metrics are `loss`, `accuracy` and `gradient_norm`.
    """

    cpu: str
    accelerator: str
    cpu_metrics: dict[str, float]
    accelerator_metrics: dict[str, float]
    without: list[str]  # the switches (`model.switches.SWITCHES`) that T5PREP_WITHOUT turned off
    variables: list[Difference]

    @property
    def finite(self) -> bool:
        """Check whether the accelerator computed only finite numbers."""
        return not any(variable.not_finite for variable in self.variables) and all(
            map(np.isfinite, self.accelerator_metrics.values())
        )


def check_step(config: TrainConfig, *, tpu: str | None = None, gpus: bool = False, replicas: int = 1) -> StepCheck:
    """Run a run's first step on one CPU device in float32, and on the accelerator in the dtype of the settings.

    Nothing is written. Both steps begin with the same weights and batch. Dropout is off, because its masks differ between
    devices. `replicas`: the number of CPU devices that replace an accelerator, for tests. Raises UsageError if no
    accelerator is named, and the errors of `train`.
    """
    if tpu is None and not gpus and replicas == 1:
        raise UsageError(
            "--check-step compares an accelerator with the CPU, but no accelerator is named. Add --tpu "
            "local or --gpus.",
            code="option.missing",
        )
    config = dataclasses.replace(config, dropout=0.0)
    shard = 1 if config.shard == "auto" else int(config.shard)
    with hosts.end_all_on_failure():
        layout = open_layout(tpu=tpu, gpus=gpus, replicas=replicas, shard=shard)
        if hosts.count() > 1:
            raise UsageError(
                "--check-step runs on the devices of one host only. Start it on a single host.",
                code="device.several-hosts",
            )
        compiling.check_batch(config, layout.replicas)
        opened = open_datasets.open_training_splits(config)
        manifests = [dataset_split.manifest for dataset_split in opened]
        checks.check_data(config, manifests)
        shape, initial = first_weights(config, opened[0].dataset.tokenizer, manifests)
        initial |= draw(adapter_layouts(shape), seed=config.seed)
        lengths = device_feed.shapes(opened, config)[:1]
        batch = _first_batch(device_feed.reading_of(opened, config).batches(), lengths[0])
        packed, padding = manifests[0].settings.is_packed, Padding.of_dataset(manifests[0])

        def one_step(layout: Layout, dtype: str) -> tuple[str, dict[str, float], Variables]:
            in_dtype = dataclasses.replace(config, dtype=dtype_of(dtype, platform=layout.platform).name)
            step, _ = compiling.compile_step(
                shape, in_dtype, [layout], lengths, packed=packed, padding=padding, cache_path=""
            )
            placed = jax.device_put(batch, layout.by_rows)
            variables = begin(initial, step.variables)
            weights, slots, number, copies, metrics = step.run(*variables, placed, np.float32(config.learning_rate))
            named_metrics = dict(zip(METRICS, np.asarray(metrics).tolist(), strict=True))
            return (
                f"{layout.device_words}, {in_dtype.dtype}",
                named_metrics,
                jax.tree.map(np.asarray, Variables(weights, slots, number, copies)),
            )

        cpu, cpu_metrics, reference = one_step(arrange(jax.devices("cpu")[:1]), "float32")
        say(f"The step is done on {cpu}.")
        accelerator, metrics, computed = one_step(layout, config.dtype)
    return StepCheck(cpu, accelerator, cpu_metrics, metrics, turned_off(), differences(initial, reference, computed))


def differences(initial_weights: Mapping[str, Array], cpu: Variables, accelerator: Variables) -> list[Difference]:
    """Return the difference of each trained variable: most values that are not finite first, then by the optimizer's state."""
    comparisons = []
    for name, slots in cpu.slots.items():
        ours, theirs = accelerator.weights[name], cpu.weights[name]
        pairs = [(accelerator.slots[name][slot], value) for slot, value in slots.items()]
        distance = _norm([slot - cpu_slot for slot, cpu_slot in pairs])
        size = _norm([cpu_slot for _, cpu_slot in pairs])
        comparisons.append(
            Difference(
                name,
                not_finite=int(sum((~np.isfinite(array)).sum() for array in (ours, *(slot for slot, _ in pairs)))),
                update=_norm([theirs - np.asarray(initial_weights[name][()], np.float32)]),
                weights=float(np.abs(ours - theirs).max()),
                state=distance / size if size else distance,
            )
        )
    return sorted(comparisons, key=lambda difference: (-difference.not_finite, -difference.state, difference.name))


def _norm(arrays: Sequence[np.ndarray]) -> float:
    """Return the Euclidean norm of all values of `arrays`, as if they were one vector."""
    return float(np.sqrt(sum(np.square(array, dtype=np.float64).sum() for array in arrays)))


def _first_batch(batches: Iterator[dict[str, np.ndarray]], lengths: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return the first batch with these (input, target) lengths; with buckets, batches of other lengths may come first."""
    for _, batch in zip(range(1000), batches, strict=False):
        if (batch["input_ids"].shape[1], batch["labels"].shape[1]) == lengths:
            return batch
    raise T5prepError(
        "None of the first 1,000 batches has the lengths of the longest bucket. Remove the buckets "
        "setting to check a step.",
        code="setting.rare-bucket",
    )
