"""Where a run computes: a TPU, the GPUs, or the CPU, as TensorFlow's strategies; and one sentence where there is none."""

import glob
import os
import socket
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep.errors import UsageError

# How a TPU chip shows itself on a TPU VM: v2 to v4 as accel devices, v5 and later through vfio.
_CHIPS = ("/dev/accel*", "/dev/vfio/[0-9]*")


def strategy(*, tpu: str | None = None, gpus: bool = False, replicas: int = 1) -> tf.distribute.Strategy:
    """The strategy for `--tpu [NAME]`, `--gpus`, or the CPU in `replicas` logical parts (for tests of several replicas).

    `tpu` is None for no TPU, `auto` to look for one, `local` on a TPU VM, a Cloud TPU's name, or its grpc:// address.
    Raises UsageError when what was asked for is not there.
    """
    if tpu is not None and gpus:
        raise UsageError("Both --tpu and --gpus were given; a run is on one of them.")
    if tpu is not None:
        return _tpu(tpu)
    if gpus:
        if not tf.config.list_physical_devices("GPU"):
            raise UsageError(
                "--gpus: TensorFlow sees no GPU here (it looked for CUDA devices). "
                'Install its CUDA libraries with `pip install "tensorflow[and-cuda]==2.20.*"`, or leave --gpus out.'
            )
        return tf.distribute.MirroredStrategy()
    if tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices([], "GPU")  # or TensorFlow would take what it was not given
    if replicas > 1:
        parts = [tf.config.LogicalDeviceConfiguration()] * replicas
        cpu = tf.config.list_physical_devices("CPU")[0]
        if len(tf.config.get_logical_device_configuration(cpu) or [None]) != replicas:
            tf.config.set_logical_device_configuration(cpu, parts)
        return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(replicas)])
    return tf.distribute.get_strategy()


def _tpu(name: str) -> tf.distribute.Strategy:
    named = os.environ.get("TPU_NAME", "")
    chips = [path for pattern in _CHIPS for path in glob.glob(pattern)]
    if name == "auto":
        name = named or ("local" if chips else "")
    if not name or (name == "local" and not chips):
        said = f'"{named}"' if named else "not set"
        raise UsageError(
            f"--tpu: no TPU here: there is no chip among {' '.join(_CHIPS)}, and TPU_NAME is {said}. "
            "Run this on a TPU VM (gcloud compute tpus tpu-vm ssh NAME), give the TPU's name with --tpu NAME, "
            "or leave --tpu out to train on the CPU."
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            _reach(resolver.master())
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # the client libraries raise whatever their transport raises
        reason = str(getattr(error, "message", None) or error).strip().splitlines()[:1] or [type(error).__name__]
        raise UsageError(
            f'--tpu: the TPU "{name}" does not answer: {reason[0][:200]}. Check that it is READY '
            "(gcloud compute tpus tpu-vm list), that this is its VM, and that `pip install t5prep[tpu]` was done here."
        ) from error


def _reach(master: str) -> None:
    """Raises OSError where nobody listens: TensorFlow would wait there, without a word."""
    address = urllib.parse.urlsplit(master)
    if address.hostname:
        socket.create_connection((address.hostname, address.port or 8470), timeout=10).close()


def on_replicas(
    strategy: tf.distribute.Strategy,
    function: Callable[..., dict[str, tf.Tensor]],
    weights: Mapping[str, tf.Variable],
) -> Callable[[Mapping[str, tf.Tensor]], dict[str, np.ndarray]]:
    """`function(weights, batch)`, compiled, with a batch's rows dealt to the replicas and its results back in order.

    Every result of `function` has the batch's rows first; the batch's rows must be a multiple of the replicas.
    """
    on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)  # which compiles whatever it runs
    compiled = function if on_tpu else tf.function(function, jit_compile=True, autograph=False)
    replicas = strategy.num_replicas_in_sync

    def on_one(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return compiled({name: tf.convert_to_tensor(variable) for name, variable in weights.items()}, batch)

    def on_all(batch: Mapping[str, Any]) -> dict[str, Any]:
        results: dict[str, Any] = strategy.run(on_one, (batch,))
        return results

    run_all = tf.function(on_all, autograph=False)

    def call(batch: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
        dealt: dict[str, Any] = dict(batch)
        if replicas > 1:
            parts = {name: tf.split(rows, replicas) for name, rows in batch.items()}
            dealt = {
                name: strategy.experimental_distribute_values_from_function(
                    lambda context, own=own: own[context.replica_id_in_sync_group]
                )
                for name, own in parts.items()
            }
        results = run_all(dealt)
        return {
            name: np.concatenate([part.numpy() for part in strategy.experimental_local_results(value)])
            for name, value in results.items()
        }

    return call
